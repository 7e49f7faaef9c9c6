// What a key or button does: shown in the same frame, then sent.

import { announce } from "./dom.js";
import { plural } from "./format.js";
import { FLAG, NONE } from "./wire.js";

const REVIEW = 12; // unseen points that are shown before a whole group is accepted

export class Actions extends EventTarget {
  /** @type {{ id: string, answer: Promise<import("./api.js").Answer | null> }[]} commands of this tab that can be taken back */ #done = [];
  /** @type {string[]} names of classes, the latest first */ recent = [];

  /**
   * @param {import("./store.js").Store} store
   * @param {import("./view.js").View} view
   * @param {import("./api.js").Api} api
   * @param {import("./points.js").Points} points
   */
  constructor(store, view, api, points) {
    super();
    this.store = store;
    this.view = view;
    this.api = api;
    this.points = points;
  }

  /** @returns {number[]} the selection, or the current point */
  targets() {
    const { selection, current } = this.view;
    return selection.size ? [...selection.rows] : current >= 0 ? [current] : [];
  }

  /** @param {number[]} rows */
  #how(rows) {
    if (this.view.blind) return "audit";
    if (this.view.selection.size) return this.view.by === "lasso" ? "lasso" : rows.length > 1 ? "group" : "own";
    return this.view.place === "queue" ? "suggested" : "own";
  }

  /**
   * @param {Record<string, any> & { op: string }} command
   * @param {string} said
   * @param {((id: string) => void) | null} paint
   * @param {boolean} [undoable]
   */
  #run(command, said, paint, undoable = true) {
    this.view.touch();
    if (paint && this.#fresh) this.store.forgetChanges();
    this.#fresh = false;
    const { id, done } = this.api.command(command);
    paint?.(id);
    announce(said);
    const answer = done.then(
      (known) => {
        this.store.acknowledge(id, known.seq);
        return known;
      },
      (/** @type {Error} */ error) => {
        this.store.refuse(id);
        this.dispatchEvent(new CustomEvent("refused", { detail: error.message }));
        return null;
      },
    );
    if (undoable) this.#done.push({ id, answer });
    return answer;
  }

  #fresh = true;

  /** The next command begins a new list of what has changed. */
  settled() {
    this.#fresh = true;
  }

  /** @param {string} name a class, made where it is new @param {number[]} [rows] */
  label(name, rows = this.targets()) {
    if (!rows.length) return;
    const command = { op: "label", rows, label: name, how: this.#how(rows) };
    this.recent = [name, ...this.recent.filter((one) => one !== name)].slice(0, 30);
    this.#run(command, rows.length > 1 ? `${plural(rows.length, "point")} labelled ${name}` : `Labelled ${name}`, (id) => {
      this.store.hold(rows, { id, name, flags: FLAG.YOURS });
    });
    this.#advance(rows);
  }

  /** Not the predicted class, but the next most likely one of the current point. @param {number} place 0, or 1 for the one after it */
  async other(place) {
    const { current } = this.view;
    const rows = this.targets();
    if (current < 0 || this.view.blind) return;
    const point = this.points.shown ?? (await this.points.fetch([current]).catch(() => []))[0];
    const others = (point?.top ?? []).filter(([id]) => id !== this.store.cls[current]);
    if (others[place]) this.label(this.store.name(others[place][0]), rows);
  }

  accept() {
    const { cls, flags } = this.store;
    if (this.view.blind) return;
    const rows = this.targets().filter((row) => cls[row] !== NONE && !(flags[row] & FLAG.YOURS));
    this.#accept("accept", rows, FLAG.ACCEPTED, this.#how(rows));
    this.#advance(this.targets());
  }

  /** @param {"accept" | "accept_unseen"} op @param {number[]} rows @param {number} flag @param {string} [how] */
  #accept(op, rows, flag, how = "group") {
    if (!rows.length) return;
    const labels = rows.map((row) => this.store.cls[row]);
    this.#run({ op, rows, labels, how }, `${plural(rows.length, "prediction")} accepted`, (id) => {
      this.store.hold(rows, { id, name: null, flags: flag, cls: labels });
    });
  }

  /** @param {import("./order.js").Group} group @returns {{ seen: number[], unseen: number[] }} predictions of a group that nobody has decided */
  pending(group) {
    const { cls, flags, seen } = this.store;
    /** @type {{ seen: number[], unseen: number[] }} */
    const out = { seen: [], unseen: [] };
    if (group.id < 0) return out;
    for (let i = group.start; i < group.start + group.count; i++) {
      const row = this.view.order[i];
      if (cls[row] !== group.id || flags[row] & (FLAG.YOURS | FLAG.ACCEPTED | FLAG.REJECTED)) continue;
      if (seen[row] === cls[row]) out.seen.push(row);
      else if (!(flags[row] & FLAG.UNSEEN)) out.unseen.push(row);
    }
    return out;
  }

  /** What was seen of the group; with a selection, the selection. */
  acceptSeen(group = this.view.group) {
    if (this.view.selection.size) this.accept();
    else if (group && !this.view.blind) this.#accept("accept", this.pending(group).seen, FLAG.ACCEPTED);
  }

  /** @param {import("./order.js").Group} group @returns {number[]} of the unseen, some at random to look at first */
  sample(group) {
    const rows = this.pending(group).unseen;
    for (let i = 0; i < Math.min(REVIEW, rows.length); i++) {
      const j = i + Math.floor(Math.random() * (rows.length - i));
      [rows[i], rows[j]] = [rows[j], rows[i]];
    }
    return rows.slice(0, REVIEW);
  }

  /** @param {import("./order.js").Group} group @param {number[]} looked unseen ones that were looked at just now */
  acceptAll(group, looked) {
    const { seen, unseen } = this.pending(group);
    const now = new Set(looked);
    this.#accept("accept", [...seen, ...unseen.filter((row) => now.has(row))], FLAG.ACCEPTED);
    this.#accept(
      "accept_unseen",
      unseen.filter((row) => !now.has(row)),
      FLAG.UNSEEN,
    );
  }

  /** Seen ones, and those of the last look that were right. @param {import("./order.js").Group} group @param {number[]} looked */
  acceptLooked(group, looked) {
    this.#accept("accept", [...this.pending(group).seen, ...looked], FLAG.ACCEPTED);
  }

  reject() {
    this.#decide("reject", "None of these", FLAG.REJECTED);
  }

  clear() {
    this.#decide("clear", "Label removed", 0);
  }

  /** @param {"reject" | "clear"} op @param {string} said @param {number} flags */
  #decide(op, said, flags) {
    const rows = this.targets();
    if (!rows.length) return;
    this.#run({ op, rows, how: this.#how(rows) }, said, (id) => this.store.hold(rows, { id, name: null, flags }));
    if (op === "reject") this.#advance(rows);
    else this.view.select([]);
  }

  async undo() {
    const last = this.#done.pop();
    if (!last) {
      if (this.store.state.can_undo) await this.#run({ op: "undo" }, "Undone", null, false);
      return;
    }
    const known = await last.answer;
    if (known) await this.#run({ op: "undo", seq: known.seq }, "Undone", (id) => this.store.holdUndo(last.id, id), false);
  }

  async redo() {
    if (this.store.state.can_redo) await this.#run({ op: "redo" }, "Done again", null, false);
  }

  /** @param {Record<string, any> & { op: string }} command of a class, or another that changes no row by itself @param {string} said */
  run(command, said, undoable = true) {
    return this.#run(command, said, null, undoable);
  }

  /** On to the next one; a selection is done with. @param {number[]} rows */
  #advance(rows) {
    if (this.view.selection.size) this.view.select([]);
    else if (rows.length) this.dispatchEvent(new CustomEvent("advance", { detail: rows[0] }));
  }
}
