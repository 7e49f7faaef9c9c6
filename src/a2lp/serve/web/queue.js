// What to label next, with the reason; and beside it what it would bring.

import { byId, fill, h, say } from "./dom.js";
import { between, duration, percent, points } from "./format.js";
import { DECIDED } from "./wire.js";

export class Queue {
  /** @type {import("./types.js").Suggestion[]} */ items = [];
  #drawn = "";

  /**
   * @param {import("./store.js").Store} store
   * @param {import("./view.js").View} view
   * @param {import("./points.js").Points} names
   */
  constructor(store, view, names) {
    this.store = store;
    this.view = view;
    this.names = names;
    this.element = byId("queue");
    this.element.addEventListener("click", (event) => {
      const item = /** @type {Element} */ (event.target).closest("[data-row]");
      if (item instanceof HTMLElement) this.go(Number(item.dataset.row));
    });
    this.element.addEventListener("focusin", (event) => {
      const { row } = /** @type {HTMLElement} */ (event.target).dataset;
      if (row !== undefined && Number(row) !== view.current) view.go(Number(row), "queue");
    });
    store.addEventListener("state", () => this.#refresh());
    store.addEventListener("rows", () => this.#draw());
    view.addEventListener("current", () => this.#draw());
    view.addEventListener("order", () => this.#refresh(true));
    names.addEventListener("points", () => this.#draw());
  }

  /** @param {number} row whether nobody has decided it */
  #open(row) {
    return !(this.store.flags[row] & DECIDED);
  }

  /** New suggestions come when all are done or nobody is at work; the current one stays the first. @param {boolean} [quiet] */
  #refresh(quiet = false) {
    const fresh = this.store.state.suggestions.filter((item) => this.#open(item.row)); // the server may not know the last labels yet
    const left = this.items.filter((item) => this.#open(item.row));
    const working = this.view.place === "queue" && left.length > 0 && this.element.contains(document.activeElement);
    if (!working || quiet) {
      const current = this.view.place === "queue" ? left.find((item) => item.row === this.view.current) : undefined;
      this.items = current ? [current, ...fresh.filter((item) => item.row !== current.row)] : fresh;
      this.names.want(this.items.map((item) => item.row));
    }
    this.#draw();
    this.#outlook();
    if (document.activeElement === this.element && this.items.length) this.next();
  }

  /** @param {number} [after] row of the list: the next open one behind it, from the top again at the end */
  next(after = this.view.current) {
    const from = this.items.findIndex((item) => item.row === after);
    const order = [...this.items.slice(from + 1), ...this.items.slice(0, from + 1)];
    let found = order.find((item) => this.#open(item.row) && item.row !== after);
    if (!found) {
      this.items = this.store.state.suggestions.filter((item) => this.#open(item.row));
      found = this.items[0];
    }
    if (found) this.go(found.row);
    else this.#wait();
  }

  /** All are done: keep the keyboard, and label nothing, until the next ones come. */
  #wait() {
    this.view.go(-1, "queue");
    this.element.focus({ preventScroll: true });
  }

  /** @param {number} by arrow keys */
  step(by) {
    const at = this.items.findIndex((item) => item.row === this.view.current);
    const to = this.items[Math.min(this.items.length - 1, Math.max(0, at + by))];
    if (to) this.go(to.row);
  }

  /** @param {number} row */
  go(row) {
    this.view.go(row, "queue");
    this.focus();
  }

  focus() {
    const item = this.element.querySelector("[tabindex='0']");
    if (item instanceof HTMLElement) {
      item.focus({ preventScroll: true });
      item.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
  }

  #draw() {
    const { store, view } = this;
    const drawn = this.items.map(({ row }) => `${row} ${store.cls[row]} ${store.flags[row]} ${row === view.current} ${this.names.key(row)}`).join();
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const active = this.element.contains(document.activeElement);
    const here = this.items.some((item) => item.row === view.current);
    fill(this.element, ...this.items.map((item, i) => this.#item(item, here ? item.row === view.current : i === 0)));
    byId("queue-empty").hidden = this.items.length > 0;
    if (active && this.items.length) this.focus();
    else if (active) this.#wait();
  }

  /** @param {import("./types.js").Suggestion} item @param {boolean} tab */
  #item({ row, why }, tab) {
    const { store, view } = this;
    const done = !this.#open(row);
    const label = done ? store.name(store.cls[row]) || "none of these" : "";
    const key = this.names.key(row);
    const [typical, doubt] = why.split(/, (.*)/); // there is room for one of them
    const picture = store.state.images ? h("img", { src: `/thumb/${row}/128`, alt: "", draggable: "false" }) : h("span", { class: "key" }, key);
    return h(
      "li",
      {
        role: "option",
        class: `suggestion${done ? " done" : ""}${row === view.current ? " current" : ""}`,
        "data-row": row,
        tabindex: tab ? 0 : -1,
        "aria-selected": row === view.current,
        "aria-label": `${key || `point ${row}`}: ${done ? `labelled ${label}` : why}`,
        title: `${key}: ${why}`,
      },
      picture,
      h("span", { class: "why" }, done ? h("strong", {}, `✓ ${label}`) : doubt || typical),
    );
  }

  /** @param {number[][]} curve drawn by a module that the first look at the page does without */
  async #chart(curve) {
    if (!curve.length) return;
    const { accuracyCurve } = await import("./charts.js");
    fill(byId("curve"), accuracyCurve(curve));
  }

  #outlook() {
    const { accuracy, curve, forecast, audit, counts } = this.store.state;
    this.#chart(curve);
    const seconds = forecast?.seconds ? `, ${duration(forecast.seconds)} at your pace` : "";
    const gain = forecast
      ? forecast.gain < 0.003
        ? `${forecast.n} more labels would hardly change it`
        : `${forecast.n} more labels: about ${points(forecast.gain)}${seconds}`
      : "";
    const wait = curve.length
      ? "The estimate is being computed…"
      : (counts.yours ?? 0) < 2
        ? "The estimate starts when two classes have labels."
        : "The estimate needs a few more labels in each class.";
    say(byId("outlook"), accuracy ? gain : wait);
    say(byId("audited"), audit?.n ? `Audit: ${audit.right} of ${audit.n} right, so ${between(audit.low, audit.high)}` : "");
    say(byId("accuracy-value"), accuracy ? percent(accuracy.value) : "–");
    say(byId("accuracy-range"), accuracy ? between(accuracy.low, accuracy.high) : "not yet");
  }
}
