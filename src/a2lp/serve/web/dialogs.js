// Windows above the page: help with the keys, a class, the last look before a group is accepted, a large image.
// Loaded when the first one is opened, with their styles.

import { byId, fill, h } from "./dom.js";
import { count, plural } from "./format.js";
import { ACTIONS, chord } from "./keys.js";

/** @param {string} id */
const dialog = (id) => /** @type {HTMLDialogElement} */ (byId(id));

/**
 * Make a window; a click beside it closes it, and so do its buttons marked for it.
 * @param {string} id
 * @param {string} title
 * @param {...import("./dom.js").Child} inside
 */
function make(id, title, ...inside) {
  const close = h("button", { type: "button", "data-close": true, "aria-label": "Close" }, "×");
  const header = h("header", {}, h("h2", { id: `${id}-title` }, title), close);
  const element = h("dialog", { id, "aria-labelledby": `${id}-title` }, header, ...inside);
  element.addEventListener("click", (event) => {
    const target = /** @type {Element} */ (event.target);
    if (target === element || target.closest("[data-close]")) element.close();
  });
  document.body.append(element);
}

/** @param {string} id @param {string} text @param {string} [kind] */
const button = (id, text, kind = "") => h("button", { type: "button", id, class: kind }, text);
const gap = () => h("span", { class: "push" });

await new Promise((done) => document.head.append(h("link", { rel: "stylesheet", href: "/dialogs.css", onload: done, onerror: done })));
make(
  "help",
  "Keys",
  h("p", { class: "soft" }, "They work while the grid, the map or the queue has the focus. Click a key to change it."),
  h("div", { id: "help-keys" }),
  h("p", { id: "help-note", role: "status" }),
  h(
    "p",
    { class: "soft" },
    "A label of yours always wins. What you accept after seeing it becomes an example, too; what you accept unseen is only exported. Nothing is sorted while you work: what has changed is marked, and moves when you pause.",
  ),
  h("footer", {}, button("help-reset", "Original keys")),
);
make(
  "class",
  "",
  h("p", { id: "class-sums", class: "soft num" }),
  h("label", {}, "Name ", h("input", { id: "class-name", type: "text", autocomplete: "off", spellcheck: "false", maxlength: 200 })),
  h("label", {}, "Key ", h("select", { id: "class-pin" })),
  h("footer", {}, button("class-merge", "Merge into another…"), gap(), button("class-save", "Save", "main")),
);
make(
  "review",
  "",
  h("p", { id: "review-text", class: "soft" }),
  h("div", { id: "review-cards" }),
  h("footer", {}, h("button", { type: "button", "data-close": true }, "Cancel"), gap(), button("review-ok", "", "main")),
);
make("large", "", h("img", { id: "large-image", alt: "" }));

/**
 * Keys, to read and to change.
 * @param {import("./keys.js").Keys} keys
 * @param {(own: Record<string, string>) => void} save
 */
export function openHelp(keys, save) {
  const fixed = /** @type {[string, string, string][]} */ ([
    ["Decide", "1 … 9", "Label with a pinned class"],
    ["Decide", "any letter", "Find a class by name; Enter labels, Ctrl+Enter makes a new one"],
    ["Move", "arrows", "To the next point"],
    ["Select", "Shift+arrows", "From where you started to here"],
  ]);
  const draw = () => {
    const parts = ["Decide", "Move", "Select", "Page"].map((part) => {
      const lines = fixed.filter(([of]) => of === part).map(([, key, text]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, text)));
      const own = ACTIONS.filter((action) => action.part === part).map((action) => h("tr", {}, h("td", {}, change(action)), h("td", {}, action.text)));
      return h("section", {}, h("h3", {}, part), h("table", {}, h("tbody", {}, ...lines, ...own)));
    });
    fill(byId("help-keys"), ...parts);
  };
  /** @param {import("./keys.js").Action} action */
  const change = (action) => {
    const cap = h(
      "button",
      { type: "button", class: "keycap", "aria-label": `${keys.keyOf(action.id)}, ${action.text}: change the key` },
      keys.keyOf(action.id),
    );
    cap.addEventListener("click", () => {
      cap.textContent = "press…";
      cap.addEventListener("keydown", (event) => {
        if (["Shift", "Control", "Alt", "Meta", "Tab"].includes(event.key)) return;
        event.preventDefault();
        event.stopPropagation();
        const name = chord(event);
        const taken = ACTIONS.some((other) => other.id !== action.id && keys.keyOf(other.id) === name) || /^([1-9\p{L}]|Arrow\w+)$/u.test(name);
        if (!taken) keys.own = { ...keys.own, [action.id]: name };
        byId("help-note").textContent = taken ? `${name} is taken. Choose another key, or change that one first.` : "";
        save(keys.own);
        draw();
      });
    });
    return cap;
  };
  byId("help-reset").onclick = () => {
    keys.own = {};
    save(keys.own);
    draw();
  };
  byId("help-note").textContent = "";
  draw();
  dialog("help").showModal();
}

/**
 * Rename a class, give it a key, merge it into another.
 * @param {import("./store.js").Store} store
 * @param {import("./actions.js").Actions} actions
 * @param {import("./palette.js").Palette} palette
 * @param {number} id
 */
export function openClass(store, actions, palette, id) {
  const one = store.state.classes[id];
  const name = /** @type {HTMLInputElement} */ (byId("class-name"));
  const pin = /** @type {HTMLSelectElement} */ (byId("class-pin"));
  byId("class-title").textContent = one.name;
  byId("class-sums").textContent = `${count(one.yours)} yours, ${count(one.accepted + one.unseen)} accepted, ${count(one.predicted)} predicted`;
  name.value = one.name;
  const holder = (/** @type {string} */ key) => store.sorted.find((other) => other.pin === key && other.id !== id);
  fill(
    pin,
    !one.pin && h("option", { value: "" }, "no key"),
    ..."123456789".split("").map((key) => h("option", { value: key, selected: one.pin === key }, holder(key) ? `${key}, now ${holder(key)?.name}` : key)),
  );
  byId("class-save").onclick = () => {
    const to = name.value.trim();
    if (to && to !== one.name) actions.run({ op: store.find(to) ? "merge" : "rename", label: one.name, to }, `Renamed to ${to}`);
    if (pin.value && pin.value !== one.pin) actions.run({ op: "pin", label: to || one.name, key: pin.value }, `Key ${pin.value}`);
    dialog("class").close();
  };
  byId("class-merge").onclick = () => {
    dialog("class").close();
    palette.ask({
      title: `Merge ${one.name} into`,
      make: false,
      chosen: (to) => to !== one.name && actions.run({ op: "merge", label: one.name, to }, `Merged into ${to}`),
    });
  };
  dialog("class").showModal();
}

/**
 * Some of the unseen ones of a group, before all of it is accepted.
 * @param {import("./store.js").Store} store
 * @param {import("./actions.js").Actions} actions
 * @param {import("./points.js").Points} points
 * @param {import("./order.js").Group} group
 */
export function openReview(store, actions, points, group) {
  const rows = actions.sample(group);
  const { seen, unseen } = actions.pending(group);
  const left = unseen.length - rows.length;
  points.want(rows);
  byId("review-title").textContent = `Accept ${plural(seen.length + unseen.length, "prediction")} as ${store.name(group.id)}?`;
  byId("review-text").textContent =
    `You have not seen ${plural(unseen.length, "point")}. Here ${rows.length === 1 ? "is" : "are"} ${rows.length} of them, at random: click those that are wrong.${left ? ` The other ${count(left)} will be exported, but not used as examples.` : ""}`;
  const odd = new Set();
  const ok = byId("review-ok");
  const tell = () => {
    ok.textContent = odd.size ? `${plural(odd.size, "is", "are")} wrong: accept only what I have seen` : `Accept ${count(seen.length + unseen.length)}`;
  };
  const card = (/** @type {number} */ row) => {
    const look = h(
      "button",
      { type: "button", class: "look", "aria-pressed": "false", "aria-label": `${points.key(row) || `point ${row}`} is wrong` },
      store.state.images ? h("img", { src: `/thumb/${row}/128`, alt: "" }) : points.key(row) || `point ${row}`,
    );
    look.onclick = () => {
      if (!odd.delete(row)) odd.add(row);
      look.setAttribute("aria-pressed", String(odd.has(row)));
      tell();
    };
    return look;
  };
  fill(byId("review-cards"), ...rows.map(card));
  tell();
  ok.onclick = () => {
    dialog("review").close();
    if (odd.size)
      actions.acceptLooked(
        group,
        rows.filter((row) => !odd.has(row)),
      );
    else actions.acceptAll(group, rows);
  };
  dialog("review").showModal();
  ok.focus();
}

/** @param {number} row @param {string} key */
export function openImage(row, key) {
  const image = /** @type {HTMLImageElement} */ (byId("large-image"));
  image.src = `/image/${row}`;
  image.alt = key;
  byId("large-title").textContent = key;
  dialog("large").showModal();
}
