// Keys: only with the focus in grid, map or queue; each can be changed in the help.

/** @typedef {{ id: string, key: string, text: string, part: string }} Action */

/** @type {Action[]} */
export const ACTIONS = [
  { id: "accept", key: "Enter", text: "Accept the prediction", part: "Decide" },
  { id: "second", key: ",", text: "The second most likely class", part: "Decide" },
  { id: "third", key: ";", text: "The third most likely class", part: "Decide" },
  { id: "acceptSeen", key: "Shift+Enter", text: "Accept what you have seen of the group", part: "Decide" },
  { id: "acceptAll", key: "Ctrl+Shift+Enter", text: "Accept the whole group, after a look", part: "Decide" },
  { id: "reject", key: "-", text: "None of these classes", part: "Decide" },
  { id: "clear", key: "Backspace", text: "Remove the label", part: "Decide" },
  { id: "undo", key: "Ctrl+Z", text: "Undo", part: "Decide" },
  { id: "redo", key: "Ctrl+Shift+Z", text: "Redo", part: "Decide" },
  { id: "suggestion", key: ".", text: "Next suggestion", part: "Move" },
  { id: "groupUp", key: "PageUp", text: "Previous group", part: "Move" },
  { id: "groupDown", key: "PageDown", text: "Next group", part: "Move" },
  { id: "first", key: "Home", text: "First point", part: "Move" },
  { id: "last", key: "End", text: "Last point", part: "Move" },
  { id: "select", key: "Space", text: "Select or deselect", part: "Select" },
  { id: "selectSeen", key: "Ctrl+A", text: "Select what you have seen of the group", part: "Select" },
  { id: "escape", key: "Escape", text: "Select nothing", part: "Select" },
  { id: "sort", key: "=", text: "Sort again now", part: "Page" },
  { id: "open", key: "Ctrl+Enter", text: "Large image", part: "Page" },
  { id: "help", key: "?", text: "This help", part: "Page" },
];

const NAMED = /** @type {Record<string, string>} */ ({ " ": "Space" });

/**
 * The name of a key as it is written in the help: Ctrl+Shift+Z. Shift is named where the key has no other sign for it.
 * @param {{ key: string, ctrlKey: boolean, metaKey: boolean, altKey: boolean, shiftKey: boolean }} event
 */
export function chord(event) {
  const key = NAMED[event.key] ?? (event.key.length === 1 ? event.key.toUpperCase() : event.key);
  const command = event.ctrlKey || event.metaKey;
  const shift = event.shiftKey && (event.key.length > 1 || event.key === " " || command);
  return `${command ? "Ctrl+" : ""}${event.altKey ? "Alt+" : ""}${shift ? "Shift+" : ""}${key}`;
}

/** @param {{ key: string, ctrlKey: boolean, metaKey: boolean, altKey: boolean }} event whether it types a sign that a name can begin with */
export const types = (event) => event.key.length === 1 && event.key !== " " && !event.ctrlKey && !event.metaKey && !event.altKey;

const ARROWS = /** @type {Record<string, [number, number]>} */ ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] });

export class Keys {
  /** @type {Record<string, string>} changed keys, by action */ own = {};

  /**
   * @param {Record<string, () => void>} actions by name
   * @param {{ pinned: (key: string) => string | null, label: (name: string) => void, palette: (text: string) => void, move: (dx: number, dy: number, extend: boolean) => void }} on
   */
  constructor(actions, on) {
    this.actions = actions;
    this.on = on;
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  /** @param {string} id */
  keyOf(id) {
    return this.own[id] ?? ACTIONS.find((action) => action.id === id)?.key ?? "";
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const target = /** @type {Element} */ (event.target);
    const zone = target.closest("[data-keys]");
    if (!zone || event.defaultPrevented || target.closest("button, input, select, textarea, a")) return;
    if (event.isComposing || event.key === "Process" || event.key === "Dead") {
      this.on.palette("");
      return;
    }
    const arrow = ARROWS[event.key];
    const name = chord(event);
    const action = ACTIONS.find((one) => this.keyOf(one.id) === name);
    if (action) this.actions[action.id]();
    else if (arrow && !event.ctrlKey && !event.altKey && !event.metaKey) this.on.move(arrow[0], arrow[1], event.shiftKey);
    else if (types(event)) {
      const label = /^[1-9]$/.test(event.key) ? this.on.pinned(event.key) : null;
      if (label !== null) this.on.label(label);
      else this.on.palette(event.key);
    } else return;
    event.preventDefault();
  }
}
