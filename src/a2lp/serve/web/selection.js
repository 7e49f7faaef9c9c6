// Selected points: half a million of them can lie in one loop, so they are a mask and a list.

export class Selection {
  #mask = new Uint8Array(0);
  /** @type {Uint32Array} each once */ rows = new Uint32Array(0);

  get size() {
    return this.rows.length;
  }

  /** @param {number} row */
  has(row) {
    return this.#mask[row] === 1;
  }

  /** @param {ArrayLike<number>} rows each once @param {number} n points in all */
  set(rows, n) {
    if (this.#mask.length !== n) this.#mask = new Uint8Array(n);
    else for (const row of this.rows) this.#mask[row] = 0;
    this.rows = Uint32Array.from(rows);
    for (const row of this.rows) this.#mask[row] = 1;
  }

  /** @param {number} row @param {number} n */
  toggle(row, n) {
    this.set(this.has(row) ? this.rows.filter((other) => other !== row) : [...this.rows, row], n);
  }
}
