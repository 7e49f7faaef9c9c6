// The current point: its image, what it may be and why, and what happened to it.

import { byId, fill, h, mark } from "./dom.js";
import { percent } from "./format.js";
import { FLAG, NONE } from "./wire.js";

const DONE = {
  label: "labelled",
  accept: "accepted",
  accept_unseen: "accepted unseen",
  reject: "none of these",
  clear: "label removed",
  undo: "undone",
  import: "from your file",
};
const WAYS = { own: "", suggested: "from the queue", audit: "in an audit", lasso: "with a lasso", group: "in a group" };

/** @param {number | string} t seconds or ISO */
const time = (t) => new Date(typeof t === "number" ? 1000 * t : t).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

export class Focus {
  #asked = 0;
  #timer = 0;

  /**
   * @param {import("./store.js").Store} store
   * @param {import("./view.js").View} view
   * @param {import("./points.js").Points} points
   * @param {import("./actions.js").Actions} actions
   * @param {(action: string) => string} keyOf
   */
  constructor(store, view, points, actions, keyOf) {
    this.store = store;
    this.view = view;
    this.points = points;
    this.actions = actions;
    this.keyOf = keyOf;
    this.image = /** @type {HTMLImageElement} */ (byId("focus-image"));
    this.image.addEventListener("load", () => this.image.classList.add("here"));
    view.addEventListener("current", () => this.#changed());
    view.addEventListener("selection", () => this.#draw());
    store.addEventListener("rows", () => this.#later());
    store.addEventListener("state", () => this.#draw());
    this.#draw();
  }

  #changed() {
    this.points.shown = null;
    this.#draw();
    this.#later(40);
  }

  /** Ask again, but not for each of many keys. */
  #later(delay = 250) {
    this.#draw();
    window.clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => this.#ask(), delay);
  }

  async #ask() {
    const row = this.view.current;
    if (row < 0) return;
    const asked = ++this.#asked;
    const [point] = await this.points.fetch([row]).catch(() => []);
    if (asked !== this.#asked || row !== this.view.current || !point) return;
    this.points.shown = point;
    this.#draw();
  }

  #draw() {
    const row = this.view.current;
    const panel = byId("focus");
    panel.classList.toggle("none", row < 0);
    if (row < 0) return;
    if (this.store.state.images && this.image.dataset.row !== String(row)) {
      this.image.dataset.row = String(row);
      this.image.classList.remove("here");
      this.image.src = `/thumb/${row}/256`;
      byId("focus-open").style.backgroundImage = `url(/thumb/${row}/128)`; // the grid's, until that has come
    }
    byId("focus-open").hidden = !this.store.state.images;
    const { size } = this.view.selection;
    byId("focus-key").textContent = this.points.key(row) || "\u00a0";
    fill(byId("focus-label"), ...this.#label(row));
    byId("focus-count").textContent = size > 1 ? `${size} selected: a key labels all of them` : "";
    const settled = this.view.blind || this.store.cls[row] === NONE || (this.store.flags[row] & FLAG.YOURS) > 0;
    for (const id of ["do-accept", "act-accept"]) byId(id).toggleAttribute("disabled", settled);
    fill(byId("focus-top"), ...this.#top());
    this.#nearest();
    this.#history();
    const act = /** @type {HTMLImageElement} */ (byId("act-image"));
    act.hidden = !this.store.state.images;
    if (this.store.state.images && act.dataset.row !== String(row)) {
      act.dataset.row = String(row);
      act.src = `/thumb/${row}/128`;
    }
    fill(byId("act-label"), ...this.#label(row));
  }

  /** @param {number} row @returns {(Node | string)[]} */
  #label(row) {
    const { cls, conf, flags } = this.store;
    const flag = flags[row];
    if (flag & FLAG.REJECTED) return [h("strong", {}, "None of these"), h("span", { class: "soft" }, "you said so")];
    if (this.view.blind && !(flag & FLAG.YOURS)) return [h("strong", {}, "What is it?"), h("span", { class: "soft" }, "the prediction is hidden")];
    if (cls[row] === NONE) return [h("strong", {}, "No class yet"), h("span", { class: "soft" }, "type a name")];
    const how =
      flag & FLAG.YOURS ? "yours" : flag & FLAG.ACCEPTED ? "accepted" : flag & FLAG.UNSEEN ? "accepted unseen" : `predicted, ${percent(conf[row] / 255)}`;
    const odd = !(flag & 7) && flag & FLAG.NOVEL ? ", perhaps none of the classes" : "";
    return [mark(this.store.slot(cls[row])), h("strong", {}, this.store.name(cls[row])), h("span", { class: "soft" }, how + odd)];
  }

  #top() {
    if (this.view.blind || !this.points.shown?.top.length) return [];
    const shown = this.store.cls[this.view.current];
    const others = ["second", "third"];
    return this.points.shown.top.map(([id, p]) => {
      const action = id !== shown ? others.shift() : this.store.flags[this.view.current] & FLAG.YOURS ? undefined : "accept";
      const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span"));
      /** @type {HTMLElement} */ (bar.firstChild).style.width = `${100 * p}%`;
      const name = this.store.name(id);
      return h(
        "li",
        {},
        h(
          "button",
          { type: "button", title: `Label it ${name}`, onclick: () => this.actions.label(name) },
          mark(this.store.slot(id)),
          h("span", { class: "name" }, name),
          bar,
          h("span", { class: "num" }, percent(p)),
          h("kbd", {}, action && this.keyOf(action)),
        ),
      );
    });
  }

  #nearest() {
    const near = this.view.blind ? null : (this.points.shown?.nearest ?? null);
    const box = byId("focus-nearest");
    box.hidden = near === null || near === this.view.current;
    if (near === null || box.hidden) return;
    this.points.want([near]);
    const name = this.store.name(this.store.cls[near]);
    const text = h("span", {}, h("span", { class: "soft" }, "Nearest example"), h("strong", {}, name), h("span", { class: "key soft" }, this.points.key(near)));
    fill(
      box,
      h(
        "button",
        { type: "button", onclick: () => this.view.go(near, "grid") },
        this.store.state.images && h("img", { src: `/thumb/${near}/128`, alt: "" }),
        text,
      ),
    );
  }

  #history() {
    const past = this.points.shown?.history ?? [];
    byId("focus-history-box").hidden = !past.length;
    const line = (/** @type {import("./points.js").Point["history"][0]} */ step) => {
      const done = DONE[/** @type {keyof typeof DONE} */ (step.op)] ?? step.op;
      const way = WAYS[/** @type {keyof typeof WAYS} */ (step.how ?? "own")] ?? step.how;
      return h(
        "li",
        { class: step.undone ? "undone" : "" },
        h("time", { class: "num soft" }, time(step.t)),
        h("span", {}, [done, step.label, way, step.undone && "(undone)"].filter(Boolean).join(" ")),
      );
    };
    fill(byId("focus-history"), ...past.slice(-6).reverse().map(line));
  }
}
