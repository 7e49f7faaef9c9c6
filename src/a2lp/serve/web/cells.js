// What a cell and a heading of the grid show.

import { fill, h, mark, say } from "./dom.js";
import { count, percent } from "./format.js";
import { GROUP } from "./order.js";
import { FLAG, NONE } from "./wire.js";

/** @typedef {{ element: HTMLElement, img: HTMLImageElement, text: HTMLElement, caption: HTMLElement, row: number, drawn: string }} Cell */
/** @typedef {{ caption: string, state: string }} Described in a word or two, and as a class of the style sheet */

export class Cells {
  /**
   * @param {import("./store.js").Store} store
   * @param {import("./view.js").View} view
   * @param {import("./points.js").Points} points
   * @param {import("./actions.js").Actions} actions
   */
  constructor(store, view, points, actions) {
    this.store = store;
    this.view = view;
    this.points = points;
    this.actions = actions;
  }

  /** @param {number} row @param {number} column @param {number} side in CSS pixels @returns {Cell} */
  make(row, column, side) {
    const img = h("img", { alt: "", decoding: "async", draggable: "false" });
    const text = h("span", { class: "key" });
    const caption = h("span", { class: "caption" });
    const picture = h("span", { class: "picture" }, this.store.state.images ? img : text);
    const element = h("div", { role: "gridcell", class: "cell", id: `cell-${row}`, "data-row": row, tabindex: -1, "aria-colindex": column }, picture, caption);
    img.addEventListener("load", () => picture.classList.replace("broken", "here") || picture.classList.add("here"));
    img.addEventListener("error", () => picture.classList.add("broken"));
    if (this.store.state.images) img.src = `/thumb/${row}/${side * devicePixelRatio > 150 ? 256 : 128}`;
    const cell = { element, img, text, caption, row, drawn: "" };
    this.paint(cell);
    return cell;
  }

  /** @param {Cell} cell brought up to date, where anything has changed */
  paint(cell) {
    const { row, element } = cell;
    const { store, view } = this;
    const key = this.points.key(row);
    const selected = view.selection.has(row);
    const current = view.current === row;
    const drawn = `${store.cls[row]} ${store.conf[row]} ${store.flags[row]} ${selected} ${current} ${key} ${view.blind}`;
    if (cell.drawn === drawn) return;
    cell.drawn = drawn;
    const { caption, state } = this.#describe(row);
    element.className = `cell ${state}${selected ? " selected" : ""}${current ? " current" : ""}`;
    element.tabIndex = current ? 0 : -1;
    element.setAttribute("aria-selected", String(selected));
    element.setAttribute("aria-label", `${key || `point ${row}`}: ${this.#spoken(row, caption, state)}`);
    element.title = key;
    say(cell.caption, caption);
    say(cell.text, key);
  }

  /** @param {number} row @param {string} caption @param {string} state */
  #spoken(row, caption, state) {
    if (this.view.blind && state !== "yours") return "not labelled yet";
    const name = this.store.name(this.store.cls[row]) || "no class";
    return caption && !caption.startsWith(name) ? `${name}, ${caption}` : caption || name;
  }

  /** @param {number} row @returns {Described} */
  #describe(row) {
    const { cls, conf, flags } = this.store;
    const flag = flags[row];
    const name = this.store.name(cls[row]);
    const moved = this.view.groupOf(row)?.id !== cls[row];
    if (flag & FLAG.REJECTED) return { caption: "none of these", state: "rejected" };
    if (flag & FLAG.YOURS) return { caption: moved ? this.#suspect(row, name) : "yours", state: "yours" };
    if (this.view.blind) return { caption: "", state: "" };
    if (flag & FLAG.ACCEPTED) return { caption: "✓ accepted", state: "accepted" };
    if (flag & FLAG.UNSEEN) return { caption: "✓ unseen", state: "unseen" };
    if (flag & FLAG.UNREACHED) return { caption: "not reached", state: "novel" };
    if (cls[row] === NONE) return { caption: "", state: "" };
    const sure = percent(conf[row] / 255);
    if (moved) return { caption: `${name} ${sure}`, state: "changed" };
    if (flag & FLAG.NOVEL) return { caption: `${sure}, odd?`, state: "novel" };
    return flag & FLAG.DOUBTFUL ? { caption: `${sure} ?`, state: "doubtful" } : { caption: sure, state: "" };
  }

  /** @param {number} row @param {string} name of its label, and what it looks like where that is another class */
  #suspect(row, name) {
    const doubt = this.view.facet === "suspect" ? this.store.state.doubtful_labels.find((one) => one.row === row) : undefined;
    return doubt ? `${name}, or ${this.store.name(doubt.instead)}?` : name;
  }

  /** @param {import("./order.js").Group} group */
  #name(group) {
    if (group.id >= 0) return this.store.name(group.id);
    if (group.id === GROUP.OPEN) return "No class yet";
    if (group.id === GROUP.REJECTED) return "None of these";
    return this.view.blind ? "What is it? Predictions are hidden." : "Your labels that may be mistakes";
  }

  /** @param {HTMLElement} element @param {import("./order.js").Group | null} group in which the top of the grid is */
  where(element, group) {
    const drawn = group ? `${group.id} ${this.#name(group)}` : "";
    if (element.dataset.drawn === drawn) return;
    element.dataset.drawn = drawn;
    fill(element, group && "›", group && group.id >= 0 && mark(this.store.slot(group.id)), group && h("span", { class: "name" }, this.#name(group)));
  }

  /**
   * The name of a group, and what can be done with it.
   * @param {HTMLElement} element
   * @param {import("./order.js").Group} group
   * @param {number} index
   */
  heading(element, group, index) {
    const name = this.#name(group);
    const { seen, unseen } = this.actions.pending(group);
    const drawn = `${name} ${group.count} ${seen.length} ${unseen.length} ${this.store.slot(group.id)}`;
    if (element.dataset.drawn === drawn) return;
    element.dataset.drawn = drawn;
    const tool = (/** @type {string} */ what, /** @type {string} */ title, /** @type {(string | Node)[]} */ ...text) =>
      h("button", { type: "button", class: "small", tabindex: -1, "data-do": what, "data-group": index, title }, ...text);
    const wide = (/** @type {string} */ text) => h("span", { class: "wide" }, text); // a phone has no room for it
    fill(
      element,
      group.id >= 0 && mark(this.store.slot(group.id)),
      h("strong", {}, name),
      h("span", { class: "soft" }, count(group.count)),
      h("span", { class: "push" }),
      seen.length > 0 && tool("accept-seen", "Shift+Enter: those that were on the screen become examples", `Accept ${count(seen.length)}`, wide(" seen")),
      unseen.length > 0 &&
        tool("accept-all", "Ctrl+Shift+Enter: look at twelve of the unseen ones first", wide("Accept "), `all ${count(seen.length + unseen.length)}…`),
    );
  }
}
