// The map: points by neighbourhood, names of classes, a loop to select with, and a list for those who do not see it.

import { byId, fill, h } from "./dom.js";
import { pointSize, pointsOn } from "./draw.js";
import { plural } from "./format.js";
import { Plane } from "./plane.js";
import { readMap } from "./wire.js";

const NAMES = 24;
const BINS = 20;
const MARGIN = 18;
const LISTED = 24;

/** @param {string} text a colour of the style sheet, #rrggbb */
const rgb = (text) => [1, 3, 5].map((i) => Number.parseInt(text.trim().slice(i, i + 2), 16));

export class PointMap {
  /** @type {Plane | null} */ plane = null;
  /** @type {ReturnType<typeof pointsOn> | null} */ #points = null;
  #zoom = 1;
  #x = 0;
  #y = 0;
  #width = 0;
  #height = 0;
  #marks = new Uint8Array(0);
  #only = -1;
  #frame = 0;
  #stale = { rows: true, look: true };
  #moving = 0;
  /** @type {{ x: number, y: number }[]} */ #loop = [];
  /** @type {{ text: string, x: number, y: number }[]} */ #names = [];

  /**
   * @param {import("./store.js").Store} store
   * @param {import("./view.js").View} view
   * @param {import("./points.js").Points} points
   * @param {import("./api.js").Api} api
   */
  constructor(store, view, points, api) {
    Object.assign(this, { store, view, points, api });
    this.store = store;
    this.view = view;
    this.points = points;
    this.api = api;
    this.element = byId("map");
    this.canvas = /** @type {HTMLCanvasElement} */ (byId("dots"));
    this.over = /** @type {HTMLCanvasElement} */ (byId("over"));
    this.list = byId("maplist");
    new ResizeObserver(() => this.#resized()).observe(this.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#again({ look: true }));
    matchMedia("(forced-colors: active)").addEventListener("change", () => this.#again({ look: true }));
    store.addEventListener("rows", () => this.#again({ rows: true }));
    store.addEventListener("state", () => this.#again({ look: true }));
    view.addEventListener("selection", () => this.#again({ rows: true }));
    view.addEventListener("order", () => this.#again({ rows: true }));
    view.addEventListener("current", () => {
      this.#again({});
      this.#listTwin();
    });
    this.canvas.addEventListener("webglcontextlost", () => location.reload());
    this.#pointer();
    byId("map-fit").addEventListener("click", () => this.fit());
    byId("map-in").addEventListener("click", () => this.#zoomAt(this.#width / 2, this.#height / 2, 1.5));
    byId("map-out").addEventListener("click", () => this.#zoomAt(this.#width / 2, this.#height / 2, 1 / 1.5));
    byId("map-list").addEventListener("click", () => this.#toggleList());
  }

  async load() {
    const { x, y } = readMap(await this.api.bytes("/api/map"));
    this.plane = new Plane(x, y);
    if (this.#points === null) this.#points = pointsOn(this.canvas, x, y);
    this.#marks = new Uint8Array(x.length);
    this.element.classList.add("here");
    this.#again({ rows: true, look: true });
    this.#listTwin();
  }

  fit() {
    [this.#zoom, this.#x, this.#y] = [1, 0, 0];
    this.#again({});
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
    this.#width = clientWidth;
    this.#height = clientHeight;
    for (const canvas of [this.canvas, this.over]) {
      canvas.width = Math.round(clientWidth * devicePixelRatio);
      canvas.height = Math.round(clientHeight * devicePixelRatio);
    }
    this.#paint();
  }

  /** @param {{ rows?: boolean, look?: boolean }} what is to be drawn anew, after the grid has been painted */
  #again({ rows = false, look = false }) {
    this.#stale.rows ||= rows;
    this.#stale.look ||= look;
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = requestAnimationFrame(() => {
        this.#frame = 0;
        this.#paint();
      });
    });
  }

  /** @returns {import("./draw.js").Frame} */
  get #window() {
    const [width, height] = [this.#width, this.#height];
    const [scaleX, scaleY] = [(width - 2 * MARGIN) * this.#zoom, (height - 2 * MARGIN) * this.#zoom];
    return { width, height, scaleX, scaleY, left: MARGIN + this.#x, top: MARGIN + this.#y, ratio: devicePixelRatio };
  }

  #paint() {
    if (!this.#points || !this.plane || !this.#width || this.store.n !== this.plane.x.length) return;
    if (this.#stale.look) this.#points.look(this.#look());
    if (this.#stale.rows) {
      this.#marked();
      this.#points.rows(this.store, this.#marks);
      this.#centres();
    }
    this.#stale = { rows: false, look: false };
    this.#points.draw(this.#window, this.#only, performance.now() - this.#moving < 200);
    this.#overlay();
  }

  /** Bit 1: selected, bit 2: outside of what the grid shows. */
  #marked() {
    const part = this.view.facet !== "all" || this.view.only !== null;
    for (let row = 0; row < this.#marks.length; row++) this.#marks[row] = part && this.view.position[row] < 0 ? 2 : 0;
    for (const row of this.view.selection) this.#marks[row] |= 1;
  }

  #look() {
    const style = getComputedStyle(document.documentElement);
    const colour = (/** @type {string} */ name) => rgb(style.getPropertyValue(name));
    const palette = new Uint8Array(4 * 65536);
    const grey = colour("--rest");
    const accent = colour("--mark");
    const colours = Array.from({ length: 8 }, (_, i) => colour(`--c${i}`));
    for (let id = 0; id < 65536; id++) palette.set([...grey, 3], 4 * id);
    for (const { id } of this.store.sorted) {
      const slot = this.store.slot(id);
      if (slot >= 0) palette.set([...colours[slot % 8], Math.floor(slot / 8)], 4 * id);
      else if (id === this.#only) palette.set([...accent, 0], 4 * id);
    }
    return { palette, ink: colour("--ink").map((v) => v / 255), accent: accent.map((v) => v / 255) };
  }

  /** Where the names stand: where most points of the class are. */
  #centres() {
    const { store, plane } = this;
    if (!plane) return;
    const named = store.sorted.filter((one) => store.slot(one.id) >= 0 || one.id === this.#only);
    const ids = named
      .sort((a, b) => store.slot(a.id) - store.slot(b.id))
      .slice(0, NAMES)
      .map((one) => one.id);
    const bins = new Map(ids.map((id) => [id, new Uint32Array(3 * BINS * BINS)]));
    const step = Math.max(1, Math.floor(store.n / 100_000));
    for (let row = 0; row < store.n; row += step) {
      const sums = bins.get(store.cls[row]);
      if (!sums) continue;
      const [x, y] = [plane.x[row], plane.y[row]];
      const k = 3 * (((y * BINS) >> 16) * BINS + ((x * BINS) >> 16));
      sums[k]++;
      sums[k + 1] += x;
      sums[k + 2] += y;
    }
    this.#names = [];
    for (const [id, sums] of bins) {
      let best = 0;
      for (let k = 0; k < sums.length; k += 3) if (sums[k] > sums[best]) best = k;
      if (sums[best]) this.#names.push({ text: store.name(id), x: sums[best + 1] / sums[best] / 65535, y: sums[best + 2] / sums[best] / 65535 });
    }
  }

  #overlay() {
    const context = /** @type {CanvasRenderingContext2D} */ (this.over.getContext("2d"));
    const style = getComputedStyle(document.documentElement);
    const { scaleX, scaleY, left, top, ratio } = this.#window;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.#width, this.#height);
    context.font = `600 ${Math.round(0.86 * Number.parseFloat(getComputedStyle(this.element).fontSize))}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.lineJoin = "round";
    /** @type {{ x: number, y: number, half: number }[]} */
    const written = [];
    for (const name of this.#names) {
      const text = name.text.length > 22 ? `${name.text.slice(0, 21)}…` : name.text;
      const half = context.measureText(text).width / 2;
      const x = Math.min(this.#width - half - 4, Math.max(half + 4, left + name.x * scaleX));
      const y = top + name.y * scaleY + 4;
      if (written.some((other) => Math.abs(other.y - y) < 15 && Math.abs(other.x - x) < other.half + half + 4)) continue;
      written.push({ x, y, half });
      context.lineWidth = 4;
      context.strokeStyle = style.getPropertyValue("--box");
      context.strokeText(text, x, y);
      context.fillStyle = style.getPropertyValue("--ink");
      context.fillText(text, x, y);
    }
    this.#ring(context, style);
    this.#lasso(context, style);
  }

  /** @param {CanvasRenderingContext2D} context @param {CSSStyleDeclaration} style */
  #ring(context, style) {
    const { current } = this.view;
    if (current < 0 || !this.plane) return;
    const { x, y } = this.#screen(current);
    const radius = pointSize(this.store.n) + 4;
    for (const [width, colour] of /** @type {[number, string][]} */ ([
      [5, "--box"],
      [2.5, "--mark"],
    ])) {
      context.lineWidth = width;
      context.strokeStyle = style.getPropertyValue(colour);
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {CSSStyleDeclaration} style */
  #lasso(context, style) {
    if (this.#loop.length < 2) return;
    context.beginPath();
    for (const { x, y } of this.#loop) context.lineTo(x, y);
    context.closePath();
    context.strokeStyle = context.fillStyle = style.getPropertyValue("--mark");
    context.globalAlpha = 0.12;
    context.fill();
    context.globalAlpha = 1;
    context.lineWidth = 1.5;
    context.setLineDash([5, 4]);
    context.stroke();
    context.setLineDash([]);
  }

  /** @param {number} row */
  #screen(row) {
    const { scaleX, scaleY, left, top } = this.#window;
    const plane = /** @type {Plane} */ (this.plane);
    return { x: left + (plane.x[row] / 65535) * scaleX, y: top + (plane.y[row] / 65535) * scaleY };
  }

  /** @param {number} x @param {number} y */
  #world(x, y) {
    const { scaleX, scaleY, left, top } = this.#window;
    return { x: ((x - left) / scaleX) * 65535, y: ((y - top) / scaleY) * 65535 };
  }

  /** @param {number} x @param {number} y @param {number} by */
  #zoomAt(x, y, by) {
    const zoom = Math.min(60, Math.max(1, this.#zoom * by));
    const ratio = zoom / this.#zoom;
    this.#x = x - MARGIN - (x - MARGIN - this.#x) * ratio;
    this.#y = y - MARGIN - (y - MARGIN - this.#y) * ratio;
    this.#zoom = zoom;
    if (zoom === 1) [this.#x, this.#y] = [0, 0];
    this.#moved();
  }

  #moved() {
    this.#moving = performance.now();
    this.#again({});
    window.setTimeout(() => this.#again({}), 250);
  }

  /** @param {number} x @param {number} y @returns {number} the point there, or -1 */
  #at(x, y) {
    if (!this.plane) return -1;
    const { scaleX, scaleY } = this.#window;
    const place = this.#world(x, y);
    return this.plane.near(place.x, place.y, 1, (10 / scaleX) * 65535, scaleY / scaleX)[0] ?? -1;
  }

  #pointer() {
    const { over } = this;
    /** @type {Map<number, { x: number, y: number }>} */
    const down = new Map();
    let pan = false;
    let far = false;
    over.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.#zoomAt(event.offsetX, event.offsetY, Math.exp(-event.deltaY / 400));
      },
      { passive: false },
    );
    over.addEventListener("pointerdown", (event) => {
      over.setPointerCapture(event.pointerId);
      down.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      const lasso = byId("map-lasso").getAttribute("aria-pressed") === "true";
      pan = down.size > 1 || event.button > 0 || lasso === (event.shiftKey || event.altKey);
      far = false;
      this.#loop = [];
      this.view.busy = true;
    });
    over.addEventListener("pointermove", (event) => {
      const from = down.get(event.pointerId);
      const [x, y] = [event.offsetX, event.offsetY];
      if (!from) return this.#hover(x, y);
      if (!far && Math.hypot(x - from.x, y - from.y) < 4) return undefined;
      far = true;
      if (pan) this.#drag(down, event.pointerId, x, y);
      else this.#loop.push({ x, y });
      down.set(event.pointerId, { x, y });
      return this.#again({});
    });
    const up = (/** @type {PointerEvent} */ event) => {
      if (!down.delete(event.pointerId) || down.size) return;
      this.view.busy = false;
      this.element.focus({ preventScroll: true });
      if (far && !pan) this.#select();
      else if (!far) {
        const row = this.#at(event.offsetX, event.offsetY);
        if (row >= 0) this.view.go(row, "map");
        else this.view.select([]);
      }
    };
    over.addEventListener("pointerup", up);
    over.addEventListener("pointercancel", up);
    over.addEventListener("pointerleave", () => byId("tip").setAttribute("hidden", ""));
    over.addEventListener("contextmenu", (event) => event.preventDefault());
  }

  /**
   * One finger or the mouse moves the map, two fingers also change its scale.
   * @param {Map<number, { x: number, y: number }>} down
   * @param {number} id
   * @param {number} x
   * @param {number} y
   */
  #drag(down, id, x, y) {
    const from = /** @type {{ x: number, y: number }} */ (down.get(id));
    const other = [...down].find(([key]) => key !== id)?.[1];
    if (other)
      this.#zoomAt((x + other.x) / 2, (y + other.y) / 2, Math.hypot(x - other.x, y - other.y) / Math.max(1, Math.hypot(from.x - other.x, from.y - other.y)));
    this.#x += (x - from.x) / down.size;
    this.#y += (y - from.y) / down.size;
    this.#moved();
  }

  #select() {
    const loop = this.#loop.map(({ x, y }) => this.#world(x, y));
    this.#loop = [];
    if (this.plane && loop.length > 2) this.view.select(this.plane.inside(loop), "lasso");
    const { size } = this.view.selection;
    if (size) this.view.go([...this.view.selection][0], "map");
  }

  /** @param {number} x @param {number} y */
  #hover(x, y) {
    const tip = byId("tip");
    const row = this.#at(x, y);
    tip.toggleAttribute("hidden", row < 0);
    this.over.classList.toggle("hit", row >= 0);
    if (row < 0 || tip.dataset.row === String(row)) return;
    tip.dataset.row = String(row);
    this.points.want([row]);
    const { x: left, y: top } = this.#screen(row);
    const name = this.view.blind ? "" : this.store.name(this.store.cls[row]) || "no class";
    fill(tip, this.store.state.images && h("img", { src: `/thumb/${row}/128`, alt: "" }), h("span", {}, name || this.points.key(row)));
    tip.style.left = `${Math.min(this.#width - 96, Math.max(4, left + 12))}px`;
    tip.style.top = `${top > this.#height - 130 ? top - 118 : top + 12}px`;
  }

  /** @param {number} dx @param {number} dy an arrow key */
  step(dx, dy) {
    if (!this.plane) return;
    this.view.go(this.view.current < 0 ? 0 : this.plane.step(this.view.current, dx, dy), "map");
  }

  #toggleList() {
    const shown = byId("map-list").getAttribute("aria-pressed") !== "true";
    byId("map-list").setAttribute("aria-pressed", String(shown));
    this.list.hidden = !shown;
    this.#listTwin();
  }

  /** The neighbours of the current point as a list: the map for those who do not see it. */
  #listTwin() {
    if (this.list.hidden || !this.plane) return;
    const { current } = this.view;
    if (current < 0) return fill(this.list, h("li", { class: "soft" }, "Choose a point in the grid: its neighbours on the map are listed here."));
    let rows = /** @type {number[]} */ ([]);
    for (let reach = 500; rows.length <= LISTED && reach < 140_000; reach *= 2)
      rows = this.plane.near(this.plane.x[current], this.plane.y[current], LISTED + 1, reach);
    const others = rows.filter((row) => row !== current);
    this.points.want(others);
    return fill(
      this.list,
      h("li", { class: "soft" }, `${plural(others.length, "neighbour")} of ${this.points.key(current) || "the current point"}, nearest first`),
      ...others.map((row) =>
        h(
          "li",
          {},
          h(
            "button",
            { type: "button", onclick: () => this.view.go(row, "map") },
            `${this.points.key(row) || `point ${row}`}: ${this.view.blind ? "hidden" : this.store.name(this.store.cls[row]) || "no class"}`,
          ),
        ),
      ),
    );
  }
}
