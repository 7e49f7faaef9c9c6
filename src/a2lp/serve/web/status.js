// Where the work stands: saved or not, connected or not, what is shown, and everything before the first grid.

import { announce, byId, say } from "./dom.js";
import { count, duration, plural } from "./format.js";

const TITLES = {
  all: "Everything",
  open: "Unlabelled",
  doubtful: "Doubtful",
  novel: "Probably none of the classes",
  unreached: "Not reached",
  suspect: "My doubtful labels",
  changed: "Changed by your last labels",
  yours: "Yours",
  accepted: "Accepted",
  rejected: "None of these",
  found: "Found by name",
  audit: "Audit",
};
const NOTHING = {
  all: "There is nothing here.",
  open: "Every point is labelled or accepted.",
  doubtful: "No prediction is below 80 %.",
  novel: "No point looks unlike all classes.",
  unreached: "Every point is reached.",
  suspect: "None of your labels looks like a mistake.",
  changed: "Nothing has changed class.",
  yours: "You have not labelled anything yet.",
  accepted: "You have not accepted anything yet.",
  rejected: "Nothing was set aside.",
  found: "No name contains that.",
  audit: "The audit is done.",
};
const DOING = {
  embedding: "Looking at the images",
  graph: "Finding neighbours",
  features: "Reading the features",
  thumbnails: "Making small images",
  solving: "First answer",
};

export class Status {
  /** @type {{ doing: string, done: number, t: number } | null} */ #start = null;
  #toast = 0;
  #refused = false;

  /**
   * @param {import("./store.js").Store} store
   * @param {import("./view.js").View} view
   * @param {import("./api.js").Api} api
   */
  constructor(store, view, api) {
    this.store = store;
    this.view = view;
    this.api = api;
    store.addEventListener("state", () => this.#state());
    store.addEventListener("rows", () => this.#moved());
    view.addEventListener("order", () => this.#shown());
    view.addEventListener("facet", () => this.#shown());
    view.addEventListener("stale", () => this.#moved());
    api.addEventListener("saving", () => this.#saved());
    api.addEventListener("offline", (event) => {
      this.#refused = /** @type {CustomEvent} */ (event).detail.refused;
      this.#connection();
      announce("Connection lost");
    });
    api.addEventListener("online", () => {
      this.#refused = false;
      this.#connection();
    });
    byId("hint-close").addEventListener("click", () => {
      byId("hint").hidden = true;
      this.#hinted = true;
    });
  }

  #hinted = false;

  #connection() {
    const { online } = this.api;
    document.documentElement.dataset.phase = online ? this.store.state.phase : "offline";
    byId("banner").hidden = online;
    this.#saved();
  }

  #saved() {
    const { waiting, online } = this.api;
    say(byId("saved"), waiting ? (online ? "Saving…" : `${waiting} not saved yet`) : this.store.state.seq ? "Saved" : "");
    if (online) return;
    const kept = waiting ? ` ${plural(waiting, "command")} will be sent ` : "";
    say(
      byId("banner"),
      this.#refused
        ? `The server was started anew. Open the address that it printed, then load this page again.${kept && `${kept}then.`}`
        : `No connection to the server. If it was stopped, start it again. Keep going: your labels are kept in this tab.${kept && `${kept}when it is back.`}`,
    );
  }

  #state() {
    const { state } = this.store;
    const root = document.documentElement;
    if (this.api.online && state.phase !== "ready") root.dataset.phase = state.phase;
    root.dataset.settling = String(state.settling);
    if (state.source) say(byId("source"), state.source);
    if (state.phase !== "ready") return this.#cover();
    document.title = `${state.source} · a2lp`;
    say(byId("size"), state.images ? plural(state.n, "image") : plural(state.n, "point"));
    /** @type {HTMLButtonElement} */ (byId("undo")).disabled = !state.can_undo;
    /** @type {HTMLButtonElement} */ (byId("redo")).disabled = !state.can_redo;
    byId("hint").hidden = this.#hinted || (state.counts.yours ?? 0) > 3;
    return this.#saved();
  }

  #cover() {
    const { phase, doing = "", done = 0, total = 0, message = "" } = this.store.state;
    const progress = /** @type {HTMLProgressElement} */ (byId("progress"));
    progress.hidden = phase === "failed";
    if (phase === "failed") {
      say(byId("cover-title"), "This did not work");
      say(byId("cover-text"), message);
      return;
    }
    if (this.#start?.doing !== doing) this.#start = { doing, done, t: performance.now() };
    const rate = (done - this.#start.done) / (performance.now() - this.#start.t);
    const left = rate > 0 && total > done && done - this.#start.done > 20 ? `, about ${duration((total - done) / rate / 1000)} left` : "";
    say(byId("cover-title"), DOING[/** @type {keyof typeof DOING} */ (doing)] ?? (doing ? doing[0].toUpperCase() + doing.slice(1) : "Starting…"));
    say(byId("cover-text"), total ? `${count(done)} of ${count(total)}${left}` : "");
    if (total) [progress.max, progress.value] = [total, done];
    else progress.removeAttribute("value");
  }

  #shown() {
    const { facet, only, order } = this.view;
    say(byId("what"), only === null ? TITLES[facet] : this.store.name(only));
    const nothing = byId("nothing");
    nothing.hidden = order.length > 0 || !this.store.n;
    say(nothing, NOTHING[facet]);
    this.#moved();
  }

  #moved() {
    const { stale, facet } = this.view;
    const { changes } = this.store;
    const show = changes > 0 && facet !== "audit";
    byId("moved").hidden = !show;
    byId("sort-now").hidden = !stale || facet === "audit" || !changes;
    say(byId("moved"), `${count(changes)} changed`);
  }

  /** @param {string} text */
  toast(text) {
    const element = byId("toast");
    element.hidden = false;
    say(element, text);
    window.clearTimeout(this.#toast);
    this.#toast = window.setTimeout(() => {
      element.hidden = true;
    }, 8000);
  }
}
