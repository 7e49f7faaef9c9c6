// What the server sends as a whole; for the type checker alone, the browser never loads it.

export interface Class {
  id: number;
  name: string;
  pin: string | null;
  yours: number;
  accepted: number;
  unseen: number;
  predicted: number;
  gone: boolean;
}

export interface Suggestion {
  row: number;
  why: string;
  how: string;
}

export interface State {
  phase: "loading" | "ready" | "failed";
  source: string;
  n: number;
  images: boolean;
  seq: number;
  classes: Class[];
  accuracy: { value: number; low: number; high: number; seq: number; method: string; note: string } | null;
  curve: number[][];
  forecast: { n: number; gain: number; seconds: number | null } | null;
  audit: { n: number; right: number; low: number; high: number; target: number | null; rows: number[] | null } | null;
  suggestions: Suggestion[];
  doubtful_labels: { row: number; label: number; instead: number; probability: number }[];
  unseen_mass: number | null;
  settling: boolean;
  counts: Record<string, number>;
  /** whether the points are image files */
  files: boolean;
  /** whether the map is computed */
  map: boolean;
  can_undo: boolean;
  can_redo: boolean;
  doing?: string;
  done?: number;
  total?: number;
  message?: string;
}
