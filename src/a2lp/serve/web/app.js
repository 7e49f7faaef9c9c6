// The page as a whole: its parts, and what passes between them.

import { Actions } from "./actions.js";
import { Api, Refused } from "./api.js";
import { Audit } from "./audit.js";
import { Classes } from "./classes.js";
import { announce, byId } from "./dom.js";
import { Focus } from "./focus.js";
import { Grid } from "./grid.js";
import { Keys } from "./keys.js";
import { Palette } from "./palette.js";
import { Points } from "./points.js";
import { Queue } from "./queue.js";
import { Status } from "./status.js";
import { Store } from "./store.js";
import { View } from "./view.js";
import { FLAG, NONE, readRows } from "./wire.js";

const api = new Api(document.querySelector("meta[name=a2lp-key]")?.getAttribute("content") ?? "");
const store = new Store();
const view = new View(store);
const points = new Points(api);
const actions = new Actions(store, view, api, points);
const grid = new Grid(store, view, points, actions);
/** @type {import("./map.js").PointMap | null} loaded after the grid, once its places are computed */
let map = null;
const palette = new Palette(store, view, actions, points);
const queue = new Queue(store, view, points);
const status = new Status(store, view, api);
const audit = new Audit(store, view, actions, grid);
new Focus(store, view, points, actions, (id) => keys.keyOf(id));
new Classes(
  store,
  view,
  (id) => map?.focusClass(id),
  async (id) => (await dialogs()).openClass(store, actions, palette, id),
);
const dialogs = () => import("./dialogs.js");
window.setTimeout(() => dialogs().catch(() => {}), 3000); // so that the first one opens at once, and also without a connection
api.since = () => store.seq;

// --- from the server -------------------------------------------------------------------------------------------------

/** Take the whole state; after a lost connection it brings what was missed. */
async function resync() {
  try {
    const state = await api.json("/api/state");
    store.setState(state);
    if (state.phase !== "ready") return;
    store.apply(readRows(await api.bytes("/api/rows")));
    document.documentElement.dataset.phase = "ready";
    performance.mark("usable");
    api.resume(`${state.source} ${state.n}`);
    grid.retry();
    if (!map?.plane && state.map) drawMap();
  } catch (error) {
    if (error instanceof Refused && error.status !== 403) status.toast(error.message);
  }
}

async function drawMap() {
  const { PointMap } = await import("./map.js");
  map ??= new PointMap(store, view, points, api);
  await map.load().catch(() => {});
}

api.addEventListener("online", resync);
api.addEventListener("update", (event) => {
  const { detail } = /** @type {CustomEvent} */ (event);
  if (store.n || detail.full) store.apply(detail);
});
api.addEventListener("message", (event) => {
  const { detail } = /** @type {CustomEvent} */ (event);
  if (detail.type === "map") drawMap();
  else if (detail.type === "bye") status.toast(detail.message);
  else if (detail.type === "loading") {
    store.setState(detail);
    if (detail.phase === "ready") resync();
  } else if (detail.type === "state") {
    store.setState(detail);
    if (detail.phase === "ready" && !store.n) resync();
  }
});
actions.addEventListener("refused", (event) => status.toast(/** @type {CustomEvent} */ (event).detail));

// --- from the user ---------------------------------------------------------------------------------------------------

/** @param {number} from the next point in the order that nobody has decided, or simply the next one */
function advance(from) {
  if (view.place === "queue") return queue.next(from);
  const at = view.position[from] ?? -1;
  if (at < 0 || view.place === "map") return undefined;
  const open = (/** @type {number} */ row) => !(store.flags[row] & (FLAG.YOURS | FLAG.ACCEPTED | FLAG.REJECTED));
  const limit = Math.min(view.order.length, at + 5000);
  for (let i = at + 1; i < limit; i++) if (open(view.order[i])) return view.go(view.order[i], "grid");
  return undefined;
}
actions.addEventListener("advance", (event) => advance(/** @type {CustomEvent} */ (event).detail));

/** @param {number} dx @param {number} dy @param {boolean} extend */
function move(dx, dy, extend) {
  view.touch();
  if (view.place === "queue") return queue.step(dx || dy);
  if (view.place === "map") return map?.step(dx, dy);
  if (!view.order.length) return undefined;
  const at = Math.max(0, view.position[view.current] ?? 0);
  const to = view.current < 0 ? 0 : grid.layout.step(at, dx, dy);
  return extend ? view.extend(to) : view.go(view.order[to], "grid");
}

/** @param {number} by groups up or down */
function group(by) {
  const at = view.group ? view.groups.indexOf(view.group) : 0;
  const to = view.groups[Math.min(view.groups.length - 1, Math.max(0, at + by))];
  if (to) view.go(view.order[to.start], "grid");
}

function selectSeen() {
  const one = view.group;
  if (!one) return;
  const seen = actions.pending(one).seen;
  const rest = [...view.order.subarray(one.start, one.start + one.count)].filter((row) => one.id < 0 && document.getElementById(`cell-${row}`));
  view.select(one.id >= 0 ? seen : rest, "own");
  announce(`${view.selection.size} selected`);
}

/** @param {import("./order.js").Group | null} one */
async function review(one) {
  if (one && actions.pending(one).unseen.length) (await dialogs()).openReview(store, actions, points, one);
  else if (one) actions.acceptSeen(one);
}

const help = async () => (await dialogs()).openHelp(keys, (own) => api.post("/api/settings", { keys: own }).catch((error) => status.toast(error.message)));
async function large() {
  const row = view.current;
  if (row >= 0 && store.state.images) (await dialogs()).openImage(row, points.key(row));
}

/** Links to the images, in a folder for each class. */
async function sortIntoFolders() {
  status.toast("Sorting the images…");
  try {
    const { folder } = await api.post("/api/export", {});
    status.toast(`Links to all images are in ${folder}, a folder for each class.`);
  } catch (error) {
    status.toast(/** @type {Error} */ (error).message);
  }
}
const keys = new Keys(
  {
    accept: () => actions.accept(),
    second: () => actions.other(0),
    third: () => actions.other(1),
    acceptSeen: () => actions.acceptSeen(),
    acceptAll: () => review(view.group),
    reject: () => actions.reject(),
    clear: () => actions.clear(),
    undo: () => actions.undo(),
    redo: () => actions.redo(),
    suggestion: () => queue.next(),
    groupUp: () => group(-1),
    groupDown: () => group(1),
    first: () => view.order.length && view.go(view.order[0], "grid"),
    last: () => view.order.length && view.go(view.order[view.order.length - 1], "grid"),
    select: () => view.current >= 0 && view.toggle(view.current),
    selectSeen,
    escape: () => view.select([]),
    sort: () => view.arrange(),
    open: large,
    help,
  },
  {
    pinned: (key) => store.sorted.find((one) => one.pin === key)?.name ?? null,
    label: (name) => actions.label(name),
    palette: (text) => palette.open(text),
    move,
  },
);

/** @param {string} id @param {() => void} what */
const on = (id, what) => byId(id).addEventListener("click", what);
on("undo", () => actions.undo());
on("redo", () => actions.redo());
on("audit", () => audit.toggle());
on("help-open", help);
on("export-folders", sortIntoFolders);
on("sort-now", () => view.arrange());
on("smaller", () => grid.resize(-1));
on("larger", () => grid.resize(1));
on("focus-open", large);
for (const id of ["do-accept", "act-accept"]) on(id, () => actions.accept());
for (const id of ["do-label", "act-label-button"]) on(id, () => palette.open(""));
on("do-reject", () => actions.reject());
on("do-clear", () => actions.clear());
on("map-lasso", () => {
  const button = byId("map-lasso");
  button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
});
byId("sort").addEventListener("change", (event) => {
  view.sort = /** @type {any} */ (event.target).value;
  view.arrange();
});
grid.addEventListener("open", large);
grid.addEventListener("accept-all", (event) => review(/** @type {CustomEvent} */ (event).detail));
grid.addEventListener("seen", (event) => {
  const rows = /** @type {CustomEvent} */ (event).detail;
  points.want(rows);
  api.viewing(rows.slice(0, 300));
});
store.addEventListener("state", () => {
  byId("export-folders").hidden = !store.state.files;
});
store.addEventListener("rows", () => {
  grid.look();
  document.documentElement.dataset.seq = String(store.seq);
});
view.addEventListener("order", () => actions.settled());
/** The keyboard goes back to where the user works. */
function refocus() {
  if (document.querySelector("dialog[open]")) return;
  if (view.place === "grid") grid.focus();
  else if (view.place === "queue") queue.focus();
  else byId("map").focus({ preventScroll: true });
}
view.addEventListener("refocus", refocus);
document.addEventListener("close", () => document.activeElement === document.body && refocus(), true);
for (const id of ["grid", "map", "queue"]) {
  byId(id).addEventListener("focusin", () => {
    view.place = /** @type {any} */ (id);
  });
}

// A search shows points and changes no label.
let typing = 0;
const search = /** @type {HTMLInputElement} */ (byId("search"));
search.addEventListener("input", () => {
  window.clearTimeout(typing);
  typing = window.setTimeout(async () => {
    const text = search.value.trim();
    if (!text) return view.facet === "found" && view.show("all");
    const { rows } = await api.json(`/api/search?q=${encodeURIComponent(text)}`);
    view.found = Uint32Array.from(rows).sort();
    return view.show("found");
  }, 150);
});
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter" || event.key === "ArrowDown") grid.focus();
});
view.addEventListener("facet", () => {
  if (view.facet !== "found") search.value = "";
});

for (const button of document.querySelectorAll("#tabs button")) {
  button.addEventListener("click", () => {
    document.body.dataset.tab = /** @type {HTMLElement} */ (button).dataset.show;
    for (const other of document.querySelectorAll("#tabs button")) other.setAttribute("aria-pressed", String(other === button));
  });
}
document.addEventListener("click", (event) => {
  const menu = /** @type {HTMLDetailsElement} */ (byId("export"));
  if (menu.open && !(event.target instanceof Element && event.target.closest("summary"))) menu.open = false;
});
if (matchMedia("(pointer: coarse)").matches) byId("map-lasso").setAttribute("aria-pressed", "false");
// with a mouse, the keys work right after a click on a filter
byId("left").addEventListener("click", (event) => {
  if (event.detail > 0 && event.target instanceof Element && event.target.closest(".facet, .class")) grid.focus();
});

api.json("/api/settings").then(
  (settings) => Object.assign(keys.own, settings.keys ?? {}),
  () => {},
);
resync();
api.connect();
store.addEventListener("state", function first() {
  if (store.state.phase !== "ready") return;
  store.removeEventListener("state", first);
  if (store.cls[0] === NONE || document.activeElement === document.body) requestAnimationFrame(() => grid.focus());
});
