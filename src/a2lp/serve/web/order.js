// The order of the grid: rows by group, and within a group yours, then predictions, then what was accepted.

import { FLAG, NONE } from "./wire.js";

/** Groups that are no class. */
export const GROUP = { OPEN: -1, REJECTED: -2 };

/** @typedef {{ id: number, start: number, count: number }} Group */
/** @typedef {"sure" | "doubtful" | "file"} Sort */

const LAST = 258;

/** @param {number} flags @param {number} conf @param {Sort} sort */
function place(flags, conf, sort) {
  if (sort === "file") return 0;
  if (flags & FLAG.YOURS) return 0;
  if (flags & FLAG.ACCEPTED) return 257;
  if (flags & FLAG.UNSEEN) return LAST;
  return sort === "sure" ? 256 - conf : 1 + conf;
}

/**
 * A stable counting sort.
 * @param {Uint32Array} rows
 * @param {(row: number) => number} key
 * @param {number} size keys are below it
 * @returns {{ sorted: Uint32Array, starts: Uint32Array }}
 */
function countingSort(rows, key, size) {
  const starts = new Uint32Array(size + 1);
  for (let i = 0; i < rows.length; i++) starts[key(rows[i]) + 1]++;
  for (let k = 0; k < size; k++) starts[k + 1] += starts[k];
  const next = starts.slice();
  const sorted = new Uint32Array(rows.length);
  for (let i = 0; i < rows.length; i++) sorted[next[key(rows[i])]++] = rows[i];
  return { sorted, starts };
}

/**
 * @param {import("./wire.js").Rows} data
 * @param {Uint32Array} rows that are shown, ascending
 * @param {number[]} ids classes in the order of their groups
 * @param {Sort} sort
 * @returns {{ order: Uint32Array, groups: Group[] }}
 */
export function arrange(data, rows, ids, sort) {
  const { cls, conf, flags } = data;
  const open = ids.length;
  const rankOf = new Int32Array(NONE + 1).fill(open);
  ids.forEach((id, i) => {
    rankOf[id] = i;
  });
  const within = countingSort(rows, (row) => place(flags[row], conf[row], sort), LAST + 1).sorted;
  const { sorted, starts } = countingSort(within, (row) => (flags[row] & FLAG.REJECTED ? open + 1 : rankOf[cls[row]]), open + 2);
  const names = [...ids, GROUP.OPEN, GROUP.REJECTED];
  const groups = names.map((id, k) => ({ id, start: starts[k], count: starts[k + 1] - starts[k] }));
  return { order: sorted, groups: groups.filter((group) => group.count > 0) };
}
