// What is shown and where the user is: filter, order, current point, selection.

import { arrange } from "./order.js";
import { Selection } from "./selection.js";
import { DECIDED, FLAG } from "./wire.js";

/** @typedef {"all" | "open" | "doubtful" | "novel" | "unreached" | "suspect" | "changed" | "yours" | "accepted" | "rejected" | "found" | "audit"} Facet */

const QUIET = 2000; // ms without keys, clicks or scrolling, after which the grid may be sorted again

export class View extends EventTarget {
  /** @type {Facet} */ facet = "all";
  /** @type {import("./order.js").Sort} */ sort = "sure";
  /** @type {number | null} the only class that is shown */ only = null;
  /** @type {Uint32Array} rows of a search */ found = new Uint32Array(0);
  /** @type {number[]} rows of the audit, in its own order */ audit = [];
  order = new Uint32Array(0);
  /** @type {import("./order.js").Group[]} */ groups = [];
  position = new Int32Array(0);
  current = -1;
  /** @type {"grid" | "queue" | "map"} */ place = "grid";
  selection = new Selection();
  /** @type {string | null} how the selection was made */ by = null;
  anchor = -1;
  stale = false;
  /** While set, nothing is sorted: the palette is open, or a button is down. */
  busy = false;
  #touched = 0;
  #timer = 0;

  /** @param {import("./store.js").Store} store */
  constructor(store) {
    super();
    this.store = store;
    store.addEventListener("rows", () => this.#noticed());
  }

  /** The user is at work: leave everything where it is. */
  touch() {
    this.#touched = performance.now();
  }

  #noticed() {
    if (!this.order.length && this.store.n) this.arrange();
    this.stale = true;
    this.dispatchEvent(new Event("stale"));
    if (!this.#timer) this.#timer = window.setTimeout(() => this.#wait(), QUIET);
  }

  #wait() {
    const left = this.#touched + QUIET - performance.now();
    this.#timer = 0;
    if (!this.stale) return;
    if (left > 0 || this.busy || this.facet === "audit") this.#timer = window.setTimeout(() => this.#wait(), Math.max(left, 250));
    else this.arrange();
  }

  /** @param {number} row @returns {boolean} */
  #fits(row) {
    const flags = this.store.flags[row];
    switch (this.facet) {
      case "open":
        return !(flags & DECIDED);
      case "doubtful":
        return !(flags & DECIDED) && (flags & FLAG.DOUBTFUL) > 0;
      case "novel":
        return !(flags & DECIDED) && (flags & FLAG.NOVEL) > 0;
      case "unreached":
        return (flags & FLAG.UNREACHED) > 0;
      case "changed":
        return this.store.changed[row] > 0;
      case "yours":
        return (flags & FLAG.YOURS) > 0;
      case "accepted":
        return (flags & (FLAG.ACCEPTED | FLAG.UNSEEN)) > 0;
      case "rejected":
        return (flags & FLAG.REJECTED) > 0;
      default:
        return true;
    }
  }

  /** @returns {Uint32Array} rows that are shown, ascending */
  #rows() {
    const { store } = this;
    const base = this.facet === "found" ? this.found : null;
    const out = new Uint32Array(base ? base.length : store.n);
    let k = 0;
    for (let i = 0; i < out.length; i++) {
      const row = base ? base[i] : i;
      if (this.only !== null && store.cls[row] !== this.only) continue;
      if (this.#fits(row)) out[k++] = row;
    }
    return out.subarray(0, k);
  }

  /** Sort now; the current point stays the current one where it is still shown, else its successor takes over. */
  arrange() {
    const before = { order: this.order, at: this.current >= 0 ? (this.position[this.current] ?? -1) : -1 };
    const listed = this.facet === "audit" ? this.audit : this.facet === "suspect" ? this.store.state.doubtful_labels.map((one) => one.row) : null;
    if (listed) {
      this.order = Uint32Array.from(listed);
      this.groups = listed.length ? [{ id: -3, start: 0, count: listed.length }] : [];
    } else
      Object.assign(
        this,
        arrange(
          this.store,
          this.#rows(),
          this.store.sorted.map((one) => one.id),
          this.sort,
        ),
      );
    this.position = new Int32Array(this.store.n).fill(-1);
    for (let i = 0; i < this.order.length; i++) this.position[this.order[i]] = i;
    this.stale = false;
    const moved = this.place === "grid" && this.#keepCurrent(before);
    this.dispatchEvent(new Event("order")); // before anything looks at the current point in it
    if (moved) this.dispatchEvent(new Event("current"));
  }

  /** @param {{ order: Uint32Array, at: number }} before @returns {boolean} whether another point is the current one now */
  #keepCurrent(before) {
    if (this.current >= 0 && this.position[this.current] >= 0) return false;
    let next = -1;
    for (let i = Math.max(0, before.at); i < before.order.length && next < 0; i++) if (this.position[before.order[i]] >= 0) next = before.order[i];
    this.current = next >= 0 ? next : this.order.length ? this.order[0] : -1;
    this.anchor = -1;
    return true;
  }

  /**
   * @param {Facet} facet
   * @param {number | null} [only]
   */
  show(facet, only = null) {
    this.facet = facet;
    this.only = only;
    this.select([]);
    this.place = "grid";
    this.arrange();
    this.dispatchEvent(new Event("facet"));
  }

  /**
   * @param {number} row
   * @param {"grid" | "queue" | "map"} [place] where the user is
   */
  go(row, place = this.place) {
    this.place = place;
    this.current = row;
    this.anchor = -1;
    this.dispatchEvent(new Event("current"));
  }

  /** @param {ArrayLike<number>} rows each once @param {string | null} [by] */
  select(rows, by = null) {
    this.selection.set(rows, this.store.n);
    this.by = by;
    this.dispatchEvent(new Event("selection"));
  }

  /** @param {number} row */
  toggle(row) {
    this.selection.toggle(row, this.store.n);
    this.by ??= "own";
    this.dispatchEvent(new Event("selection"));
  }

  /** @param {number} to place in the order: all from the anchor to it are selected */
  extend(to) {
    if (this.anchor < 0) this.anchor = this.position[this.current];
    const [from, until] = this.anchor < to ? [this.anchor, to] : [to, this.anchor];
    this.current = this.order[to];
    this.place = "grid";
    this.select(this.order.subarray(from, until + 1), "own");
    this.dispatchEvent(new Event("current"));
  }

  /** @param {number} row @returns {import("./order.js").Group | null} where it stands, which may be another class than its own by now */
  groupOf(row) {
    const at = this.position[row] ?? -1;
    return at < 0 ? null : (this.groups.find((one) => at < one.start + one.count) ?? null);
  }

  get group() {
    return this.groupOf(this.current);
  }

  /** @returns {boolean} whether predictions are hidden */
  get blind() {
    return this.facet === "audit";
  }
}
