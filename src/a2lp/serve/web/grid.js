// The grid: lines of cells, of which only those in view are in the document, however many points there are.

import { Cells } from "./cells.js";
import { byId, h } from "./dom.js";
import { Layout } from "./layout.js";
import { Scroll } from "./scroll.js";

const HEAD = 40;
const CAPTION = 20;
const GAP = 8;
const CELLS = 260; // at most so many are in the document; larger screens get larger cells
const SIZES = [72, 104, 152, 216];

/** @typedef {{ element: HTMLElement, cells: Cell[], head: HTMLElement | null, group: number }} Row */
/** @typedef {import("./cells.js").Cell} Cell */

export class Grid extends EventTarget {
  size = 1;
  layout = new Layout([], 1, 1, HEAD);
  /** @type {Map<number, Row>} */ #rows = new Map();
  /** @type {Map<number, Cell>} */ #cells = new Map();
  #side = 104;
  #frame = 0;
  #settle = 0;
  #wide = 0;
  #tall = 0;

  /**
   * @param {import("./store.js").Store} store
   * @param {import("./view.js").View} view
   * @param {import("./points.js").Points} points
   * @param {import("./actions.js").Actions} actions
   */
  constructor(store, view, points, actions) {
    super();
    this.store = store;
    this.view = view;
    this.actions = actions;
    this.cells = new Cells(store, view, points, actions);
    this.element = byId("grid");
    this.scroll = new Scroll(this.element, () => this.#scrolled());
    new ResizeObserver(() => this.#measure()).observe(this.element);
    this.element.addEventListener("click", (event) => this.#click(event));
    this.element.addEventListener("dblclick", () => this.dispatchEvent(new Event("open")));
    for (const name of ["pointermove", "wheel"]) this.element.addEventListener(name, () => view.touch(), { passive: true });
    view.addEventListener("order", () => this.#ordered());
    view.addEventListener("current", () => this.#current());
    view.addEventListener("selection", () => this.repaint());
    store.addEventListener("rows", () => this.repaint());
    store.addEventListener("state", () => this.repaint(true));
    points.addEventListener("points", () => this.repaint());
  }

  /** @param {number} step larger or smaller cells */
  resize(step) {
    this.size = Math.min(SIZES.length - 1, Math.max(0, this.size + step));
    this.#measure(true);
  }

  #measure(again = false) {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height || (!again && width === this.#wide && height === this.#tall)) return;
    this.#wide = width;
    this.#tall = height;
    this.#anchored(() => this.#lay());
  }

  /** Choose the size of cells; so large that a screen has at most so many of them, spread over the width. */
  #lay() {
    const width = this.#wide - GAP;
    let wanted = this.#wide < 480 ? Math.min(SIZES[this.size], 96) : SIZES[this.size];
    let columns = 1;
    for (; ; wanted *= 1.1) {
      columns = Math.max(2, Math.floor(width / (wanted + GAP)));
      this.#side = Math.floor(width / columns) - GAP;
      if (columns * (Math.ceil(this.#tall / this.#cellHeight) + 2) <= CELLS) break;
    }
    const { style } = this.element;
    style.setProperty("--side", `${this.#side}px`);
    style.setProperty("--picture", `${this.#picture}px`);
    this.layout = new Layout(this.view.groups, columns, this.#cellHeight, HEAD);
    this.scroll.height = this.layout.height + 12;
    this.element.setAttribute("aria-rowcount", String(this.layout.lines));
    this.element.setAttribute("aria-colcount", String(columns));
    this.#clear();
    this.#draw();
  }

  get #picture() {
    return this.store.state.images ? this.#side : 44;
  }

  get #cellHeight() {
    return this.#picture + CAPTION + GAP;
  }

  /** Do something, and leave the current point at its height on the screen. @param {() => void} what */
  #anchored(what) {
    const before = this.#screenTop();
    const active = this.element.contains(document.activeElement);
    what();
    const after = this.#screenTop();
    if (before !== null && after !== null && before > -this.#cellHeight && before < this.#tall) {
      this.scroll.top += after - before;
      this.#draw();
    }
    if (active) this.focus();
  }

  /** @returns {number | null} where the current point is, from the top of the window of the grid */
  #screenTop() {
    const at = this.view.current >= 0 ? this.view.position[this.view.current] : -1;
    if (at < 0 || at >= this.view.order.length || !this.layout.groups.length) return null;
    return this.layout.top(this.layout.find(Math.min(at, this.#last)).line) - this.scroll.top;
  }

  get #last() {
    const last = this.layout.groups[this.layout.groups.length - 1];
    return last.start + last.count - 1;
  }

  #before = { current: -1, top: /** @type {number | null} */ (null) };

  #ordered() {
    const { current } = this.view;
    const before = this.#before.current === current ? this.#before.top : null;
    const active = this.element.contains(document.activeElement);
    this.#lay();
    const after = this.#screenTop();
    if (before !== null && after !== null && before > -this.#cellHeight && before < this.#tall) this.scroll.top += after - before;
    else if (before === null && this.view.place === "grid") this.reveal();
    this.#draw();
    if (active) this.focus();
    this.element.classList.toggle("empty", !this.view.order.length);
  }

  #current() {
    if (this.view.place === "grid") this.reveal();
    this.repaint();
    if (this.view.place === "grid" && this.element.contains(document.activeElement)) this.focus();
  }

  /** Scroll as little as shows the current point. */
  reveal() {
    const top = this.#screenTop();
    if (top === null) return;
    if (top < HEAD) this.scroll.top += top - HEAD;
    else if (top + this.#cellHeight > this.#tall) this.scroll.top += top + this.#cellHeight - this.#tall;
    this.#draw();
  }

  /** Give the current cell the keyboard. */
  focus() {
    const cell = this.#cells.get(this.view.current);
    if (cell) cell.element.focus({ preventScroll: true });
    else this.element.focus({ preventScroll: true });
  }

  #scrolled() {
    this.view.touch();
    if (!this.#frame) {
      this.#frame = requestAnimationFrame(() => {
        this.#frame = 0;
        this.#draw();
      });
    }
  }

  #clear() {
    for (const row of this.#rows.values()) row.element.remove();
    this.#rows.clear();
    this.#cells.clear();
  }

  /** Put the lines in view into the document, and take the others out; the line of the current point stays. */
  #draw() {
    const { layout, scroll } = this;
    if (!layout.lines) {
      this.cells.where(byId("where"), null);
      return this.#remember();
    }
    const first = layout.at(scroll.top - this.#cellHeight * 0.5);
    const last = layout.at(scroll.top + this.#tall + this.#cellHeight * 0.5);
    const at = this.view.current >= 0 ? this.view.position[this.view.current] : -1;
    const kept = at >= 0 && at <= this.#last ? layout.find(at).line : -1;
    for (const [line, row] of this.#rows) {
      if ((line >= first && line <= last) || line === kept) continue;
      if (line !== kept && row.element.contains(document.activeElement)) this.element.focus({ preventScroll: true });
      row.element.remove();
      this.#rows.delete(line);
      for (const cell of row.cells) this.#cells.delete(cell.row);
    }
    for (let line = first; line <= last; line++) this.#place(line);
    if (kept >= 0) this.#place(kept);
    this.#remember();
    this.#here();
    window.clearTimeout(this.#settle);
    this.#settle = window.setTimeout(() => this.#settled(), 150);
    return undefined;
  }

  /** The group at the top, where its heading is out of sight. */
  #here() {
    const { group, head } = this.layout.line(this.layout.at(this.scroll.top));
    this.cells.where(byId("where"), head ? null : this.layout.groups[group]);
  }

  #remember() {
    this.#before = { current: this.view.current, top: this.#screenTop() };
  }

  /** @param {number} line */
  #place(line) {
    let row = this.#rows.get(line);
    if (!row) {
      row = this.#make(line);
      this.#rows.set(line, row);
      const next = [...this.#rows.keys()].filter((other) => other > line).sort((a, b) => a - b)[0];
      this.scroll.content.insertBefore(row.element, next === undefined ? null : (this.#rows.get(next)?.element ?? null));
    }
    row.element.style.transform = `translateY(${this.layout.top(line) - this.scroll.shift}px)`;
  }

  /** @param {number} line @returns {Row} */
  #make(line) {
    const { group, head, start, count: cells } = this.layout.line(line);
    const element = h("div", { role: "row", class: head ? "line head" : "line", "aria-rowindex": line + 1 });
    if (head) {
      const inside = h("div", { role: "gridcell", class: "group", "aria-colspan": this.layout.columns });
      element.append(inside);
      const row = { element, cells: [], head: inside, group };
      this.cells.heading(inside, this.layout.groups[group], group);
      return row;
    }
    const made = [];
    for (let i = 0; i < cells; i++) {
      const cell = this.cells.make(this.view.order[start + i], i + 1, this.#side);
      this.#cells.set(cell.row, cell);
      element.append(cell.element);
      made.push(cell);
    }
    return { element, cells: made, head: null, group };
  }

  /** @param {Row} row */
  #heading(row) {
    const group = this.layout.groups[row.group];
    if (row.head && group) this.cells.heading(row.head, group, row.group);
  }

  /** Bring what is in the document up to date. @param {boolean} [all] also where nothing seems to have changed */
  repaint(all = false) {
    for (const row of this.#rows.values()) {
      this.#heading(row);
      for (const cell of row.cells) {
        if (all) cell.drawn = "";
        this.cells.paint(cell);
      }
    }
  }

  /** The scrolling has stopped: what is on the screen has been seen. */
  #settled() {
    const rows = [];
    const box = this.element.getBoundingClientRect();
    for (const cell of this.#cells.values()) {
      const { top, bottom } = cell.element.getBoundingClientRect();
      if (bottom < box.top || top > box.bottom) continue;
      rows.push(cell.row);
      const shown = !this.store.state.images || cell.img.complete;
      if (!this.view.blind && shown && !document.hidden) this.store.seen[cell.row] = this.store.cls[cell.row];
    }
    this.dispatchEvent(new CustomEvent("seen", { detail: rows }));
    for (const row of this.#rows.values()) this.#heading(row);
  }

  /** Ask again for images that did not come. */
  retry() {
    for (const { img } of this.#cells.values()) if (img.parentElement?.classList.contains("broken")) img.src = img.src.split("#")[0];
  }

  /** What the screen shows is seen with its newest label, too. */
  look() {
    window.clearTimeout(this.#settle);
    this.#settle = window.setTimeout(() => this.#settled(), 300);
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const target = /** @type {Element} */ (event.target);
    const button = target.closest("button[data-do]");
    if (button instanceof HTMLElement) {
      const group = this.layout.groups[Number(button.dataset.group)];
      if (button.dataset.do === "accept-seen") this.actions.acceptSeen(group);
      else this.dispatchEvent(new CustomEvent("accept-all", { detail: group }));
      return;
    }
    const cell = target.closest("[data-row]");
    if (!(cell instanceof HTMLElement)) return;
    const row = Number(cell.dataset.row);
    this.view.touch();
    if (event.shiftKey && this.view.current >= 0 && this.view.position[this.view.current] >= 0) this.view.extend(this.view.position[row]);
    else {
      if (event.ctrlKey || event.metaKey) this.view.toggle(row);
      else if (this.view.selection.size) this.view.select([]);
      this.view.go(row, "grid");
    }
    this.focus();
  }
}
