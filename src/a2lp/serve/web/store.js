// What the page knows: the server's state and rows, and above them the commands that it has not confirmed yet.

import { FLAG, NONE } from "./wire.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Class} Class */
/** @typedef {{ cls: number, conf: number, flags: number }} Cell */
/** @typedef {Cell & { id: string, seq: number, name: string | null, under: Cell | null }} Held under: what the server says meanwhile */
/** @typedef {{ id: string, name: string | null, flags: number, cls?: number[] }} Paint */

/** @type {State} */
const EMPTY = {
  phase: "loading",
  source: "",
  n: 0,
  images: false,
  seq: 0,
  classes: [],
  accuracy: null,
  curve: [],
  forecast: null,
  audit: null,
  suggestions: [],
  doubtful_labels: [],
  unseen_mass: null,
  settling: false,
  counts: {},
  files: false,
  map: false,
  can_undo: false,
  can_redo: false,
};

const names = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

export class Store extends EventTarget {
  /** @type {State} */ state = EMPTY;
  seq = 0;
  /** @type {Uint16Array} */ cls = new Uint16Array(0);
  /** @type {Uint8Array} */ conf = new Uint8Array(0);
  /** @type {Uint8Array} */ flags = new Uint8Array(0);
  /** The class each row was last seen with on the screen. */
  seen = new Uint16Array(0);
  /** Rows that other labels have moved to another class. */
  changed = new Uint8Array(0);
  changes = 0;
  /** @type {Map<number, Held>} */ #held = new Map();
  /** @type {Map<string, Map<number, Cell>>} what the rows of a command were before it */ #before = new Map();
  /** @type {Map<number, number>} */ #slots = new Map();
  /** @type {Class[]} in the order of the list and of the groups */ sorted = [];

  get n() {
    return this.cls.length;
  }

  /** @param {number} id */
  name(id) {
    return this.state.classes[id]?.name ?? (id === NONE ? "" : "…");
  }

  /** @param {number} id the mark of the class, -1 for grey */
  slot(id) {
    return this.#slots.get(id) ?? -1;
  }

  /** @param {string} name */
  find(name) {
    return this.state.classes.find((one) => !one.gone && one.name === name);
  }

  /** @param {State} state */
  setState(state) {
    this.state = { ...EMPTY, ...state };
    this.#classes();
    for (const [row, held] of this.#held) if (held.name) this.#write(row, { ...held, cls: this.#code(held.name) });
    this.dispatchEvent(new Event("state"));
  }

  /** @param {string} name */
  #code(name) {
    const known = this.find(name);
    if (known) return known.id;
    const id = this.state.classes.length;
    this.state.classes.push({ id, name, pin: null, yours: 0, accepted: 0, unseen: 0, predicted: 0, gone: false });
    this.#classes();
    this.dispatchEvent(new Event("state"));
    return id;
  }

  /** The first 24 have marks: those with a key by their key, then by age, so that marks stay as they are. */
  #classes() {
    const alive = this.state.classes.filter((one) => !one.gone);
    const pin = (/** @type {Class} */ one) => (one.pin ? Number(one.pin) : 10);
    this.sorted = [...alive].sort((a, b) => pin(a) - pin(b) || names.compare(a.name, b.name));
    this.#slots = new Map();
    const taken = new Set();
    for (const one of alive) if (one.pin) this.#slots.set(one.id, Number(one.pin) - 1);
    for (const slot of this.#slots.values()) taken.add(slot);
    let next = 0;
    for (const one of alive) {
      if (this.#slots.has(one.id)) continue;
      while (taken.has(next)) next++;
      if (next >= 24) break;
      taken.add(next);
      this.#slots.set(one.id, next);
    }
  }

  /** @param {import("./wire.js").Update} update */
  apply(update) {
    for (const [row, held] of this.#held) if (held.seq <= update.seq) this.#release(row, held);
    if (update.full) this.#replace(update.full);
    else for (let i = 0; i < update.rows.length; i++) this.#patch(update.rows[i], update.values[i]);
    this.seq = Math.max(this.seq, update.seq);
    this.dispatchEvent(new CustomEvent("rows", { detail: update.full ? null : update.rows }));
  }

  /** @param {number} row @param {number} value its class, confidence and flags in one word */
  #patch(row, value) {
    const cell = { cls: value & 0xffff, conf: (value >> 16) & 0xff, flags: value >>> 24 };
    const held = this.#held.get(row);
    if (held) {
      held.under = cell;
      return;
    }
    this.#note(row, cell.cls);
    this.#write(row, cell);
  }

  /** @param {import("./wire.js").Rows} full */
  #replace(full) {
    if (full.cls.length !== this.n) {
      this.seen = new Uint16Array(full.cls.length).fill(NONE);
      this.changed = new Uint8Array(full.cls.length);
      this.changes = 0;
    } else for (let row = 0; row < this.n; row++) if (full.cls[row] !== this.cls[row]) this.#note(row, full.cls[row]);
    this.cls = full.cls;
    this.conf = full.conf;
    this.flags = full.flags;
    for (const [row, held] of this.#held) {
      held.under = this.#read(row);
      this.#write(row, held);
    }
  }

  /** @param {number} row @param {number} cls */
  #note(row, cls) {
    if (this.cls[row] === cls || this.cls[row] === NONE || this.changed[row] || this.#held.has(row)) return;
    this.changed[row] = 1;
    this.changes++;
  }

  forgetChanges() {
    this.changed.fill(0);
    this.changes = 0;
  }

  /** @param {number} row @returns {Cell} */
  #read(row) {
    return { cls: this.cls[row], conf: this.conf[row], flags: this.flags[row] };
  }

  /** @param {number} row @param {Held} held */
  #release(row, held) {
    this.#held.delete(row);
    if (held.under) this.#write(row, held.under);
  }

  /** @param {number} row @param {Cell} cell */
  #write(row, cell) {
    this.cls[row] = cell.cls;
    this.conf[row] = cell.conf;
    this.flags[row] = cell.flags;
  }

  /**
   * Show a command before the server has answered; it stays until an answer that knows of it.
   * @param {number[]} rows
   * @param {Paint} paint
   */
  hold(rows, paint) {
    const before = new Map();
    const code = paint.name === null ? NONE : this.#code(paint.name);
    rows.forEach((row, i) => {
      before.set(row, this.#read(row));
      const cls = paint.cls ? paint.cls[i] : code;
      this.#holdOne(row, { cls, conf: paint.flags & FLAG.REJECTED ? 0 : 255, flags: paint.flags }, paint.id, paint.name);
    });
    this.#before.set(paint.id, before);
    this.dispatchEvent(new CustomEvent("rows", { detail: Uint32Array.from(rows) }));
  }

  /**
   * Show the rows of an earlier command as they were before it.
   * @param {string} of
   * @param {string} id of the command that takes it back
   */
  holdUndo(of, id) {
    const before = this.#before.get(of);
    if (!before) return;
    this.#before.set(id, new Map([...before.keys()].map((row) => [row, this.#read(row)])));
    for (const [row, cell] of before) this.#holdOne(row, cell, id, null);
    this.dispatchEvent(new CustomEvent("rows", { detail: Uint32Array.from(before.keys()) }));
  }

  /** @param {number} row @param {Cell} cell @param {string} id @param {string | null} name */
  #holdOne(row, cell, id, name) {
    this.#held.set(row, { ...cell, id, seq: Number.POSITIVE_INFINITY, name, under: null });
    this.#write(row, cell);
  }

  /** @param {string} id @param {number} seq the server has it; an update of this age or younger shows it */
  acknowledge(id, seq) {
    /** @type {number[]} */
    const rows = [];
    for (const [row, held] of this.#held) {
      if (held.id !== id) continue;
      held.seq = seq;
      if (seq > this.seq) continue;
      this.#release(row, held);
      rows.push(row);
    }
    if (rows.length) this.dispatchEvent(new CustomEvent("rows", { detail: Uint32Array.from(rows) }));
  }

  /** @param {string} id the server has refused it: show what was there */
  refuse(id) {
    const before = this.#before.get(id);
    if (!before) return;
    for (const [row, cell] of before) {
      if (this.#held.get(row)?.id !== id) continue;
      this.#release(row, /** @type {Held} */ ({ under: this.#held.get(row)?.under ?? cell }));
    }
    this.dispatchEvent(new CustomEvent("rows", { detail: Uint32Array.from(before.keys()) }));
  }
}
