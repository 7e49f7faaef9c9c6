// The palette: any letter opens it, a few more find the class, Enter labels.

import { byId, fill, h, mark } from "./dom.js";
import { count, plural } from "./format.js";
import { rank } from "./match.js";

const SHOWN = 9;

/** @typedef {{ title: string, make: boolean, chosen: (name: string) => void }} Question */

export class Palette {
  /** @type {{ name: string, fresh: boolean }[]} */ #options = [];
  #at = 0;
  /** @type {Question | null} */ #question = null;

  /**
   * @param {import("./store.js").Store} store
   * @param {import("./view.js").View} view
   * @param {import("./actions.js").Actions} actions
   * @param {import("./points.js").Points} points
   */
  constructor(store, view, actions, points) {
    this.store = store;
    this.view = view;
    this.actions = actions;
    this.points = points;
    this.dialog = /** @type {HTMLDialogElement} */ (byId("palette"));
    this.input = /** @type {HTMLInputElement} */ (byId("palette-input"));
    this.list = byId("palette-list");
    this.input.addEventListener("input", () => this.#find());
    this.input.addEventListener("keydown", (event) => this.#key(event));
    this.list.addEventListener("click", (event) => {
      const option = /** @type {Element} */ (event.target).closest("[role=option]");
      if (option instanceof HTMLElement) this.#choose(Number(option.dataset.at));
    });
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
    this.dialog.addEventListener("close", () => this.#closed());
  }

  /** Ask which class the selection or the current point has. @param {string} text typed so far */
  open(text) {
    const rows = this.actions.targets();
    if (!rows.length) return;
    this.ask(
      { title: rows.length > 1 ? `Label ${plural(rows.length, "point")}` : "Label this point", make: true, chosen: (name) => this.actions.label(name) },
      text,
    );
  }

  /** @param {Question} question @param {string} [text] */
  ask(question, text = "") {
    this.#question = question;
    this.view.busy = true;
    byId("palette-title").textContent = question.title;
    this.input.value = text;
    this.dialog.showModal();
    this.input.focus();
    this.input.setSelectionRange(text.length, text.length);
    this.#find();
  }

  #find() {
    const text = this.input.value.trim();
    const likely = this.view.blind ? [] : (this.points.shown?.top ?? []).map(([id]) => id);
    const recent = this.actions.recent.flatMap((name) => this.store.find(name)?.id ?? []);
    const found = rank(this.store.sorted, text, [...new Set([...likely, ...recent])]);
    this.#options = found.slice(0, SHOWN).map((one) => ({ name: one.name, fresh: false }));
    if (this.#question?.make && text && !this.store.find(text)) this.#options.push({ name: text, fresh: true });
    this.#at = 0;
    this.#draw(Math.max(0, found.length - SHOWN));
  }

  /** @param {number} [more] classes that are not listed */
  #draw(more = 0) {
    fill(this.list, ...this.#options.map((option, i) => this.#option(option, i)));
    byId("palette-more").textContent = more ? `and ${plural(more, "more class", "more classes")}` : "";
    byId("palette-empty").hidden = this.#options.length > 0;
    this.input.setAttribute("aria-activedescendant", this.#options.length ? `option-${this.#at}` : "");
  }

  /** @param {{ name: string, fresh: boolean }} option @param {number} i */
  #option({ name, fresh }, i) {
    const one = fresh ? undefined : this.store.find(name);
    const selected = i === this.#at;
    return h(
      "li",
      { role: "option", id: `option-${i}`, "data-at": i, "aria-selected": selected },
      one ? mark(this.store.slot(one.id)) : h("span", { class: "plus", "aria-hidden": "true" }, "+"),
      h("span", { class: "name" }, fresh ? `New class “${name}”` : name),
      one ? h("span", { class: "soft num" }, count(one.yours + one.accepted)) : null,
      h("kbd", {}, selected ? "Enter" : fresh ? "Ctrl+Enter" : (one?.pin ?? "")),
    );
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : this.#options.length - 1;
      this.#at = (this.#at + step) % Math.max(1, this.#options.length);
      this.#draw();
    } else if (event.key === "Enter") {
      event.preventDefault();
      const fresh = this.#options.findIndex((option) => option.fresh);
      this.#choose((event.ctrlKey || event.metaKey) && fresh >= 0 ? fresh : this.#at);
    }
  }

  /** @param {number} at */
  #choose(at) {
    const option = this.#options[at];
    const question = this.#question;
    if (!option || !question) return;
    this.dialog.close();
    question.chosen(option.name);
    this.view.dispatchEvent(new Event("refocus"));
  }

  #closed() {
    this.view.busy = false;
    this.view.touch();
    this.view.dispatchEvent(new Event("refocus"));
  }
}
