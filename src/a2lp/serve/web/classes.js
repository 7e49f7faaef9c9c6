// The left side: facets with their counts, classes with key, mark and counts.

import { byId, fill, h, mark, say } from "./dom.js";
import { count } from "./format.js";

/** @type {[import("./view.js").Facet, string, string][]} */
const FACETS = [
  ["all", "Everything", "All points, by class"],
  ["open", "Unlabelled", "Neither labelled nor accepted"],
  ["doubtful", "Doubtful", "Predictions below 80 %"],
  ["novel", "Probably none", "Unlike every class so far"],
  ["suspect", "My doubtful labels", "Your labels that disagree with all others"],
  ["changed", "Changed", "Points that your last labels moved to another class"],
  ["unreached", "Not reached", "No chain of neighbours to a label"],
  ["yours", "Yours", "Labelled by you"],
  ["accepted", "Accepted", "Predictions you accepted"],
  ["rejected", "None of these", "You said that no class fits"],
];
const ALWAYS = new Set(["all", "open", "doubtful"]);

/** @param {number} n nothing is written as nothing: long lists stay quiet */
const some = (n) => (n ? count(n) : "");

export class Classes {
  #drawn = "";

  /**
   * @param {import("./store.js").Store} store
   * @param {import("./view.js").View} view
   * @param {(id: number) => void} show a class alone on the map; -1 for all
   * @param {(id: number) => void} edit
   */
  constructor(store, view, show, edit) {
    this.store = store;
    this.view = view;
    this.list = byId("classes");
    this.list.addEventListener("click", (event) => {
      const button = /** @type {Element} */ (event.target).closest("button[data-id]");
      if (!(button instanceof HTMLElement)) return;
      const id = Number(button.dataset.id);
      if (button.classList.contains("more")) edit(id);
      else this.view.show("all", this.view.only === id ? null : id);
    });
    for (const [name, off] of [
      ["pointerover", "pointerout"],
      ["focusin", "focusout"],
    ]) {
      this.list.addEventListener(name, (event) => {
        const item = /** @type {Element} */ (event.target).closest("[data-id]");
        if (item instanceof HTMLElement) show(Number(item.dataset.id));
      });
      this.list.addEventListener(off, () => show(this.view.only ?? -1));
    }
    for (const source of [store, view]) for (const name of ["state", "facet"]) source.addEventListener(name, () => this.draw());
    store.addEventListener("rows", () => this.#facets());
  }

  draw() {
    this.#facets();
    const { store, view } = this;
    const drawn = JSON.stringify([store.sorted, view.only]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const active = document.activeElement instanceof HTMLElement && this.list.contains(document.activeElement) ? document.activeElement : null;
    const again = active ? `[data-id="${active.dataset.id}"]${active.classList.contains("more") ? ".more" : ":not(.more)"}` : "";
    fill(this.list, ...store.sorted.map((one) => this.#item(one)));
    say(byId("class-count"), store.sorted.length ? count(store.sorted.length) : "");
    byId("classes-empty").hidden = store.sorted.length > 0;
    byId("classes-head").hidden = !store.sorted.some((one) => one.yours + one.predicted);
    byId("left").classList.toggle("unaccepted", !store.sorted.some((one) => one.accepted + one.unseen));
    if (again) {
      const element = this.list.querySelector(`button${again}`);
      if (element instanceof HTMLElement) element.focus({ preventScroll: true });
    }
  }

  /** @param {import("./types.js").Class} one */
  #item(one) {
    const { store, view } = this;
    const sums = `${one.yours} yours, ${one.accepted + one.unseen} accepted, ${one.predicted} predicted`;
    return h(
      "li",
      { "data-id": one.id, class: view.only === one.id ? "only" : "" },
      h(
        "button",
        {
          type: "button",
          class: "class",
          "data-id": one.id,
          "aria-pressed": view.only === one.id,
          "aria-label": `${one.name}${one.pin ? `, key ${one.pin}` : ""}: ${sums}`,
          title: `${one.name}: ${sums}`,
        },
        h("kbd", {}, one.pin ?? ""),
        mark(store.slot(one.id)),
        h("span", { class: "name" }, one.name),
        h("span", { class: "num strong" }, some(one.yours)),
        h("span", { class: "num acc" }, some(one.accepted + one.unseen)),
        h("span", { class: "num soft" }, some(one.predicted)),
      ),
      h("button", { type: "button", class: "more", "data-id": one.id, "aria-label": `Edit class ${one.name}`, title: "Rename, merge, change the key" }, "⋯"),
    );
  }

  /** @returns {Record<string, number>} */
  #counts() {
    const { counts, doubtful_labels: suspect } = this.store.state;
    const { n } = this.store;
    const decided = (counts.yours ?? 0) + (counts.accepted ?? 0) + (counts.unseen ?? 0) + (counts.rejected ?? 0);
    return {
      all: n,
      open: n - decided,
      doubtful: counts.doubtful ?? 0,
      novel: counts.none ?? 0,
      suspect: suspect.length,
      changed: this.store.changes,
      unreached: counts.unreached ?? 0,
      yours: counts.yours ?? 0,
      accepted: (counts.accepted ?? 0) + (counts.unseen ?? 0),
      rejected: counts.rejected ?? 0,
    };
  }

  #facets() {
    const box = byId("facets");
    const counts = this.#counts();
    if (!box.children.length) {
      const button = (/** @type {[string, string, string]} */ [facet, name, title]) =>
        h(
          "li",
          {},
          h(
            "button",
            { type: "button", class: "facet", "data-facet": facet, title, onclick: () => this.view.show(/** @type {any} */ (facet)) },
            h("span", { class: "name" }, name),
            h("span", { class: "num" }),
          ),
        );
      fill(box, ...FACETS.map(button));
    }
    for (const item of box.children) {
      const element = /** @type {HTMLElement} */ (item.firstElementChild);
      const facet = element.dataset.facet ?? "";
      const on = this.view.facet === facet && (facet !== "all" || this.view.only === null);
      element.setAttribute("aria-pressed", String(on));
      say(element.lastElementChild, count(counts[facet]));
      /** @type {HTMLElement} */ (item).hidden = !counts[facet] && !ALWAYS.has(facet) && this.view.facet !== facet;
    }
  }
}
