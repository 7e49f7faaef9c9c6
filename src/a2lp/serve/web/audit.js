// The audit: random points, predictions hidden, so that the share of right ones has an exact interval.

import { byId, say } from "./dom.js";
import { between } from "./format.js";

const DRAWN = 30;

export class Audit {
  /**
   * @param {import("./store.js").Store} store
   * @param {import("./view.js").View} view
   * @param {import("./actions.js").Actions} actions
   * @param {import("./grid.js").Grid} grid
   */
  constructor(store, view, actions, grid) {
    this.store = store;
    this.view = view;
    this.actions = actions;
    this.grid = grid;
    view.addEventListener("facet", () => this.#draw());
    store.addEventListener("state", () => this.#draw());
  }

  async toggle() {
    if (this.view.blind) {
      this.view.show("all");
      return;
    }
    let rows = this.store.state.audit?.rows ?? [];
    if (!rows.length) rows = (await this.actions.run({ op: "audit_start", n: DRAWN }, "Audit", false))?.rows ?? [];
    if (!rows.length) return;
    this.view.audit = rows;
    this.view.show("audit");
    this.view.go(rows[0], "grid");
    this.grid.focus();
  }

  #draw() {
    const { audit } = this.store.state;
    byId("sort").hidden = this.view.blind;
    say(byId("audit"), this.view.blind ? "End audit" : audit?.rows?.length ? `Audit (${audit.rows.length} left)` : "Audit");
    byId("audit").title = this.view.blind
      ? "Back to the grid; the rest of the audit waits for you"
      : `Label ${DRAWN} random points without seeing predictions: the share of right ones, with an exact interval${audit?.n ? `. So far ${between(audit.low, audit.high)}` : ""}`;
  }
}
