// Binary messages of the server, all little endian: see docs/serve.md.

export const NONE = 0xffff;
export const FLAG = { YOURS: 1, ACCEPTED: 2, UNSEEN: 4, DOUBTFUL: 8, NOVEL: 16, REJECTED: 32, UNREACHED: 64, SETTLING: 128 };
/** What a person has decided, in one way or another. */
export const DECIDED = FLAG.YOURS | FLAG.ACCEPTED | FLAG.UNSEEN | FLAG.REJECTED;

const FULL = 0xffffffff;

/** @typedef {{ cls: Uint16Array, conf: Uint8Array, flags: Uint8Array }} Rows */
/** @typedef {{ seq: number, full: Rows | null, rows: Uint32Array, values: Uint32Array }} Update */

/** @param {ArrayBuffer} buffer @param {number} n @returns {Rows} */
function columns(buffer, n) {
  return {
    cls: new Uint16Array(buffer.slice(8, 8 + 2 * n)),
    conf: new Uint8Array(buffer.slice(8 + 2 * n, 8 + 3 * n)),
    flags: new Uint8Array(buffer.slice(8 + 3 * n, 8 + 4 * n)),
  };
}

/** @param {ArrayBuffer} buffer the answer of /api/rows @returns {Update} */
export function readRows(buffer) {
  const [seq, n] = new Uint32Array(buffer, 0, 2);
  return { seq, full: columns(buffer, n), rows: new Uint32Array(0), values: new Uint32Array(0) };
}

/**
 * A message of the socket: all rows, or pairs of a row and its class (16 bits), confidence (8) and flags (8).
 * @param {ArrayBuffer} buffer
 * @returns {Update}
 */
export function readUpdate(buffer) {
  const [seq, k] = new Uint32Array(buffer, 0, 2);
  if (k === FULL) return { seq, full: columns(buffer, (buffer.byteLength - 8) / 4), rows: new Uint32Array(0), values: new Uint32Array(0) };
  const words = new Uint32Array(buffer, 8, 2 * k);
  const rows = new Uint32Array(k);
  const values = new Uint32Array(k);
  for (let i = 0; i < k; i++) {
    rows[i] = words[2 * i];
    values[i] = words[2 * i + 1];
  }
  return { seq, full: null, rows, values };
}

/** @param {ArrayBuffer} buffer the answer of /api/map */
export function readMap(buffer) {
  const n = new Uint32Array(buffer, 0, 1)[0];
  return { x: new Uint16Array(buffer.slice(4, 4 + 2 * n)), y: new Uint16Array(buffer.slice(4 + 2 * n, 4 + 4 * n)) };
}
