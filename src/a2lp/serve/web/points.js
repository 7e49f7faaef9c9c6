// Names and reasons of points, asked for only where they are looked at.

/**
 * @typedef {object} Point
 * @property {number} row
 * @property {string} key
 * @property {[number, number][]} top
 * @property {number | null} nearest
 * @property {number} novelty
 * @property {string | null} how
 * @property {{ seq: number, t: number | string, op: string, label: string | null, how: string | null, undone: boolean }[]} history
 */

const MOST = 300; // rows in one request
const KEPT = 20000;

export class Points extends EventTarget {
  /** @type {Map<number, string>} */ #keys = new Map();
  /** @type {Point | null} what the page shows about the current point */ shown = null;
  #wanted = new Set();
  #timer = 0;

  /** @param {import("./api.js").Api} api */
  constructor(api) {
    super();
    this.api = api;
  }

  /** @param {number} row */
  key(row) {
    return this.#keys.get(row) ?? "";
  }

  /** @param {Iterable<number>} rows whose names will be shown */
  want(rows) {
    for (const row of rows) if (!this.#keys.has(row)) this.#wanted.add(row);
    if (this.#wanted.size && !this.#timer) this.#timer = window.setTimeout(() => this.#ask(), 60);
  }

  async #ask() {
    const rows = [...this.#wanted].slice(-MOST);
    this.#wanted.clear();
    await this.fetch(rows).catch(() => {});
    this.#timer = 0;
    if (this.#wanted.size) this.want([]);
  }

  /** @param {number[]} rows @returns {Promise<Point[]>} */
  async fetch(rows) {
    if (!rows.length) return [];
    const points = await this.api.json(`/api/points?rows=${rows.join(",")}`);
    if (this.#keys.size > KEPT) this.#keys.clear();
    let news = false;
    for (const point of points) {
      news ||= !this.#keys.has(point.row);
      this.#keys.set(point.row, point.key);
    }
    if (news) this.dispatchEvent(new Event("points"));
    return points;
  }
}
