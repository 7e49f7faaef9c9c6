// The map: points by neighbourhood, a loop to select with, and a list for those who do not see it.

import { Camera } from "./camera.js";
import { byId, fill, h } from "./dom.js";
import { pointsOn } from "./draw.js";
import { plural } from "./format.js";
import { gestures } from "./gestures.js";
import { drawOverlay, namesOn } from "./overlay.js";
import { pointSize } from "./plain.js";
import { Plane } from "./plane.js";
import { readMap } from "./wire.js";

const LISTED = 24;
const REACH = 10; // pixels from which a point can be hit

/** @param {string} text a colour of the style sheet, #rrggbb */
const rgb = (text) => [1, 3, 5].map((i) => Number.parseInt(text.trim().slice(i, i + 2), 16));

export class PointMap {
  /** @type {Plane | null} */ plane = null;
  /** @type {ReturnType<typeof pointsOn> | null} */ #points = null;
  #camera = new Camera();
  #marks = new Uint8Array(0);
  #only = -1;
  #frame = 0;
  #stale = { rows: true, look: true, dots: true, over: true };
  #moving = 0;
  #marked = "";
  #drawing = false; // in pieces: the picture that is begun is not all there yet
  /** @type {{ x: number, y: number }[]} */ #loop = [];
  /** @type {import("./overlay.js").Name[]} */ #names = [];

  /**
   * @param {import("./store.js").Store} store
   * @param {import("./view.js").View} view
   * @param {import("./points.js").Points} points
   * @param {import("./api.js").Api} api
   */
  constructor(store, view, points, api) {
    this.store = store;
    this.view = view;
    this.points = points;
    this.api = api;
    this.element = byId("map");
    this.canvas = /** @type {HTMLCanvasElement} */ (byId("dots"));
    this.over = /** @type {HTMLCanvasElement} */ (byId("over"));
    this.list = byId("maplist");
    new ResizeObserver(() => this.#resized()).observe(this.element);
    for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"])
      matchMedia(query).addEventListener("change", () => this.#again({ look: true }));
    store.addEventListener("rows", () => this.#again({ rows: true }));
    store.addEventListener("state", () => this.#stated());
    view.addEventListener("facet", () => this.#again({ look: true }));
    view.addEventListener("selection", () => this.#again({ rows: true }));
    view.addEventListener("order", () => this.#again({ rows: true }));
    view.addEventListener("current", () => this.#again({}));
    view.addEventListener("current", () => this.#listTwin());
    points.addEventListener("points", () => this.#listTwin());
    this.canvas.addEventListener("webglcontextlost", () => location.reload());
    this.#tools();
  }

  #tools() {
    const camera = this.#camera;
    const zoom = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ by) => {
      camera.zoom(x, y, by);
      this.#moved();
    };
    gestures(this.over, {
      lasso: () => byId("map-lasso").getAttribute("aria-pressed") === "true",
      busy: (busy) => {
        this.view.busy = busy;
        if (!busy) this.element.focus({ preventScroll: true });
      },
      zoom,
      pan: (dx, dy) => {
        camera.pan(dx, dy);
        this.#moved();
      },
      loop: (loop, done) => this.#looped(loop, done),
      click: (x, y) => this.#click(x, y),
      hover: (x, y) => this.#hover(x, y),
      leave: () => byId("tip").setAttribute("hidden", ""),
    });
    byId("map-in").addEventListener("click", () => zoom(camera.width / 2, camera.height / 2, 1.5));
    byId("map-out").addEventListener("click", () => zoom(camera.width / 2, camera.height / 2, 1 / 1.5));
    byId("map-list").addEventListener("click", () => this.#toggleList());
    byId("map-fit").addEventListener("click", () => {
      camera.fit();
      this.#again({ dots: true });
    });
  }

  async load() {
    const { x, y } = readMap(await this.api.bytes("/api/map"));
    this.plane = new Plane(x, y);
    this.#points ??= pointsOn(this.canvas, x, y);
    this.#marks = new Uint8Array(x.length);
    this.element.classList.add("here");
    this.#again({ rows: true, look: true });
    this.#listTwin();
  }

  /** @param {number} id a class to look at alone, or -1 */
  focusClass(id) {
    if (this.#only === id) return;
    this.#only = id;
    this.#again({ look: true, rows: true });
  }

  #resized() {
    const { clientWidth, clientHeight } = this.element;
    if (!clientWidth || !clientHeight) return;
    [this.#camera.width, this.#camera.height] = [clientWidth, clientHeight];
    for (const canvas of [this.canvas, this.over]) {
      canvas.width = Math.round(clientWidth * devicePixelRatio);
      canvas.height = Math.round(clientHeight * devicePixelRatio);
    }
    this.#drawing = false;
    this.#stale.dots = this.#stale.over = true;
    this.#paint();
    if (this.#drawing) this.#drawing = !this.#points?.more(true); // an empty canvas would flash
  }

  /** Classes may have other names or marks now; most states bring neither, and the picture stays. */
  #stated() {
    const marks = this.store.sorted.map(({ id, name }) => `${id} ${this.store.slot(id)} ${name}`).join();
    if (marks === this.#marked) return;
    this.#marked = marks;
    this.#again({ rows: true, look: true });
  }

  /** @param {{ rows?: boolean, look?: boolean, dots?: boolean }} what is new beside the overlay; drawn a frame after the grid, which must not wait for it */
  #again({ rows = false, look = false, dots = rows || look }) {
    this.#stale.rows ||= rows;
    this.#stale.look ||= look;
    this.#stale.dots ||= dots;
    this.#stale.over = true;
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = requestAnimationFrame(() => this.#step());
    });
  }

  /** A frame: go on with the picture that was begun, or begin the next one. */
  #step() {
    this.#frame = 0;
    if (this.#drawing) this.#drawing = !this.#points?.more();
    this.#paint();
    if (this.#drawing) this.#frame = requestAnimationFrame(() => this.#step());
  }

  #moved() {
    this.#moving = performance.now();
    this.#again({ dots: true });
    window.setTimeout(() => this.#again({ dots: true }), 250);
  }

  #paint() {
    const camera = this.#camera;
    const { plane } = this;
    if (!this.#points || !plane || !camera.width || this.store.n !== plane.x.length) return;
    if (!this.#drawing && this.#stale.dots) this.#begin(this.#points, plane);
    if (!this.#stale.over) return;
    this.#stale.over = false;
    const { current } = this.view;
    const ring = current < 0 ? null : { ...camera.screen(plane.x[current], plane.y[current]), radius: pointSize(this.store.n) + 4 };
    const size = Math.round(0.86 * Number.parseFloat(getComputedStyle(this.element).fontSize));
    const context = /** @type {CanvasRenderingContext2D} */ (this.over.getContext("2d"));
    drawOverlay(context, camera, getComputedStyle(document.documentElement), { names: this.view.blind ? [] : this.#names, size, ring, loop: this.#loop });
  }

  /** @param {ReturnType<typeof pointsOn>} points @param {Plane} plane */
  #begin(points, plane) {
    if (this.#stale.look) points.look(this.#look());
    if (this.#stale.rows) {
      this.#mark();
      points.rows(this.store, this.#marks);
      this.#names = namesOn(this.store, plane, this.#only);
    }
    points.begin(this.#camera.frame, this.#only, performance.now() - this.#moving < 200);
    this.#drawing = !points.more();
    this.#stale = { rows: false, look: false, dots: false, over: true };
  }

  /** Bit 1: selected, bit 2: outside of what the grid shows. */
  #mark() {
    const part = this.view.facet !== "all" || this.view.only !== null;
    for (let row = 0; row < this.#marks.length; row++) this.#marks[row] = part && this.view.position[row] < 0 ? 2 : 0;
    for (const row of this.view.selection.rows) this.#marks[row] |= 1;
  }

  /** @returns {import("./draw.js").Look} in an audit all classes are grey */
  #look() {
    const style = getComputedStyle(document.documentElement);
    const colour = (/** @type {string} */ name) => rgb(style.getPropertyValue(name));
    const palette = new Uint8Array(4 * 65536);
    const [grey, accent] = [colour("--rest"), colour("--mark")];
    const colours = Array.from({ length: 8 }, (_, i) => colour(`--c${i}`));
    new DataView(palette.buffer).setUint32(0, (grey[0] << 24) | (grey[1] << 16) | (grey[2] << 8) | 3);
    new Uint32Array(palette.buffer).fill(new Uint32Array(palette.buffer, 0, 1)[0]);
    for (const { id } of this.view.blind ? [] : this.store.sorted) {
      const slot = this.store.slot(id);
      if (slot >= 0) palette.set([...colours[slot % 8], Math.floor(slot / 8)], 4 * id);
      else if (id === this.#only) palette.set([...accent, 0], 4 * id);
    }
    return { palette, ink: colour("--ink").map((v) => v / 255), accent: accent.map((v) => v / 255) };
  }

  /** @param {number} x @param {number} y @returns {number} the point there, or -1 */
  #at(x, y) {
    if (!this.plane) return -1;
    const { scaleX, scaleY } = this.#camera.frame;
    const place = this.#camera.world(x, y);
    return this.plane.near(place.x, place.y, 1, (REACH / scaleX) * 65535, scaleY / scaleX)[0] ?? -1;
  }

  /** @param {number} x @param {number} y */
  #click(x, y) {
    const row = this.#at(x, y);
    if (row >= 0) this.view.go(row, "map");
    else this.view.select([]);
  }

  /** @param {{ x: number, y: number }[]} loop @param {boolean} done */
  #looped(loop, done) {
    this.#loop = done ? [] : loop;
    this.#again({});
    if (!done || !this.plane || loop.length < 3) return;
    const rows = this.plane.inside(loop.map(({ x, y }) => this.#camera.world(x, y)));
    this.view.select(rows, "lasso");
    if (rows.length) this.view.go(rows[0], "map");
  }

  /** @param {number} x @param {number} y */
  #hover(x, y) {
    const tip = byId("tip");
    const row = this.#at(x, y);
    tip.toggleAttribute("hidden", row < 0);
    this.over.classList.toggle("hit", row >= 0);
    if (row < 0 || tip.dataset.row === String(row) || !this.plane) return;
    tip.dataset.row = String(row);
    this.points.want([row]);
    const at = this.#camera.screen(this.plane.x[row], this.plane.y[row]);
    const name = this.view.blind ? this.points.key(row) : this.store.name(this.store.cls[row]) || "no class";
    fill(tip, this.store.state.images && h("img", { src: `/thumb/${row}/128`, alt: "" }), h("span", {}, name));
    tip.style.left = `${Math.min(this.#camera.width - 96, Math.max(4, at.x + 12))}px`;
    tip.style.top = `${at.y > this.#camera.height - 130 ? at.y - 118 : at.y + 12}px`;
  }

  /** @param {number} dx @param {number} dy an arrow key */
  step(dx, dy) {
    if (!this.plane) return;
    this.view.go(this.view.current < 0 ? 0 : this.plane.step(this.view.current, dx, dy), "map");
  }

  #toggleList() {
    this.list.hidden = !this.list.hidden;
    byId("map-list").setAttribute("aria-pressed", String(!this.list.hidden));
    this.#listTwin();
  }

  /** The neighbours of the current point as a list: the map for those who do not see it. */
  #listTwin() {
    if (this.list.hidden || !this.plane) return;
    const { current } = this.view;
    if (current < 0) {
      fill(this.list, h("li", { class: "soft" }, "Choose a point in the grid: its neighbours on the map are listed here."));
      return;
    }
    let rows = /** @type {number[]} */ ([]);
    for (let reach = 500; rows.length <= LISTED && reach < 140_000; reach *= 2)
      rows = this.plane.near(this.plane.x[current], this.plane.y[current], LISTED + 1, reach);
    const others = rows.filter((row) => row !== current);
    this.points.want([current, ...others]);
    const text = (/** @type {number} */ row) =>
      `${this.points.key(row) || `point ${row}`}: ${this.view.blind ? "hidden" : this.store.name(this.store.cls[row]) || "no class"}`;
    fill(
      this.list,
      h("li", { class: "soft" }, `${plural(others.length, "neighbour")} of ${this.points.key(current) || "the current point"}, nearest first`),
      ...others.map((row) => h("li", {}, h("button", { type: "button", onclick: () => this.view.go(row, "map") }, text(row)))),
    );
  }
}
