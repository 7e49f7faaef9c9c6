// Geometry of the map: which point is near a place, and which lie inside a loop.

const CELLS = 128;
const SIDE = 65536 / CELLS;

export class Plane {
  /** @param {Uint16Array} x @param {Uint16Array} y */
  constructor(x, y) {
    this.x = x;
    this.y = y;
    const starts = new Uint32Array(CELLS * CELLS + 1);
    for (let i = 0; i < x.length; i++) starts[this.#cell(x[i], y[i]) + 1]++;
    for (let k = 0; k < CELLS * CELLS; k++) starts[k + 1] += starts[k];
    const next = starts.slice();
    this.rows = new Uint32Array(x.length);
    for (let i = 0; i < x.length; i++) this.rows[next[this.#cell(x[i], y[i])]++] = i;
    this.starts = starts;
  }

  /** @param {number} x @param {number} y */
  #cell(x, y) {
    return Math.floor(y / SIDE) * CELLS + Math.floor(x / SIDE);
  }

  /**
   * The nearest points, the nearest first.
   * @param {number} x
   * @param {number} y
   * @param {number} k at most so many
   * @param {number} reach no further than this in x
   * @param {number} [stretch] a step in y counts as so many in x
   */
  near(x, y, k, reach, stretch = 1) {
    /** @type {{ row: number, far: number }[]} */
    const found = [];
    const clamp = (/** @type {number} */ value) => Math.min(CELLS - 1, Math.max(0, Math.floor(value / SIDE)));
    for (let cy = clamp(y - reach / stretch); cy <= clamp(y + reach / stretch); cy++) {
      for (let cx = clamp(x - reach); cx <= clamp(x + reach); cx++) {
        for (let i = this.starts[cy * CELLS + cx]; i < this.starts[cy * CELLS + cx + 1]; i++) {
          const row = this.rows[i];
          const far = Math.hypot(this.x[row] - x, (this.y[row] - y) * stretch);
          if (far <= reach) found.push({ row, far });
        }
      }
    }
    found.sort((a, b) => a.far - b.far);
    return found.slice(0, k).map((one) => one.row);
  }

  /**
   * The next point in a direction, as the report has it: along counts once, aside three times.
   * @param {number} from
   * @param {number} dx
   * @param {number} dy
   */
  step(from, dx, dy) {
    let best = from;
    let least = Number.POSITIVE_INFINITY;
    for (let row = 0; row < this.x.length; row++) {
      const ax = this.x[row] - this.x[from];
      const ay = this.y[row] - this.y[from];
      const along = ax * dx + ay * dy;
      if (along <= 0 || row === from) continue;
      const cost = along + 3 * (Math.abs(ax * dy) + Math.abs(ay * dx));
      if (cost < least) [least, best] = [cost, row];
    }
    return best;
  }

  /**
   * Rows inside a loop: it is filled on a raster, and each point looks up its place there.
   * @param {{ x: number, y: number }[]} loop in units of the plane
   * @returns {Uint32Array}
   */
  inside(loop) {
    const raster = 1024;
    const xs = loop.map((point) => point.x);
    const ys = loop.map((point) => point.y);
    const [left, top] = [Math.min(...xs), Math.min(...ys)];
    const sx = (raster - 1) / Math.max(1, Math.max(...xs) - left);
    const sy = (raster - 1) / Math.max(1, Math.max(...ys) - top);
    const context = new OffscreenCanvas(raster, raster).getContext("2d", { willReadFrequently: true });
    if (!context) return new Uint32Array(0);
    context.beginPath();
    for (const point of loop) context.lineTo((point.x - left) * sx, (point.y - top) * sy);
    context.fill("evenodd");
    const pixels = new Uint32Array(context.getImageData(0, 0, raster, raster).data.buffer);
    const { x, y } = this;
    const rows = new Uint32Array(x.length);
    let found = 0;
    for (let row = 0; row < x.length; row++) {
      const px = ((x[row] - left) * sx + 0.5) | 0;
      const py = ((y[row] - top) * sy + 0.5) | 0;
      // drawn in black, so a pixel is its opacity alone: above half of it counts
      if (px >= 0 && py >= 0 && px < raster && py < raster && pixels[py * raster + px] >= 0x80000000) rows[found++] = row;
    }
    return rows.slice(0, found);
  }
}
