// Points on a plain canvas, some thousand of them, where WebGL 2 is missing.

import { DECIDED, FLAG } from "./wire.js";

const PLAIN = 20_000;

/** @param {number} n @param {number} k @returns {Uint32Array} a fixed sample of rows */
export function sample(n, k) {
  const rows = Uint32Array.from({ length: n }, (_, i) => i);
  let random = 1;
  for (let i = 0; i < k; i++) {
    random = (Math.imul(random, 1664525) + 1013904223) >>> 0;
    const j = i + (random % (n - i));
    [rows[i], rows[j]] = [rows[j], rows[i]];
  }
  return rows.slice(0, k);
}

/** @param {number} n how large a point is, in CSS pixels */
export const pointSize = (n) => (n > 300_000 ? 2 : n > 50_000 ? 3 : n > 10_000 ? 4 : n > 2500 ? 5 : 7);

export class PlainPoints {
  /** @type {import("./wire.js").Rows | null} */ #rows = null;
  /** @type {Uint8Array} */ #marks = new Uint8Array(0);
  /** @type {import("./draw.js").Look | null} */ #look = null;
  /** @type {{ frame: import("./draw.js").Frame, only: number } | null} */ #frame = null;

  /** @param {CanvasRenderingContext2D} context @param {Uint16Array} x @param {Uint16Array} y */
  constructor(context, x, y) {
    this.context = context;
    this.x = x;
    this.y = y;
    this.shown = sample(x.length, Math.min(PLAIN, x.length));
  }

  /** @param {import("./wire.js").Rows} rows @param {Uint8Array} marks */
  rows(rows, marks) {
    this.#rows = rows;
    this.#marks = marks;
  }

  /** @param {import("./draw.js").Look} look */
  look(look) {
    this.#look = look;
  }

  /** @param {import("./draw.js").Frame} frame @param {number} only */
  begin(frame, only) {
    this.#frame = { frame, only };
  }

  /** @returns {boolean} whether all is shown */
  more() {
    if (this.#frame) this.#draw(this.#frame.frame, this.#frame.only);
    return true;
  }

  /** @param {import("./draw.js").Frame} frame @param {number} only */
  #draw(frame, only) {
    const { context } = this;
    if (!this.#rows || !this.#look) return;
    const { cls, conf, flags } = this.#rows;
    const { palette } = this.#look;
    const size = pointSize(this.shown.length) * 0.9;
    context.setTransform(frame.ratio, 0, 0, frame.ratio, 0, 0);
    context.clearRect(0, 0, frame.width, frame.height);
    for (const row of this.shown) {
      const faint = this.#marks[row] & 2 || (only >= 0 && cls[row] !== only);
      context.globalAlpha = (0.3 + (0.7 * (flags[row] & DECIDED ? 255 : conf[row])) / 255) * (faint ? 0.14 : 1);
      context.fillStyle = `rgb(${palette[4 * cls[row]]} ${palette[4 * cls[row] + 1]} ${palette[4 * cls[row] + 2]})`;
      const scale = flags[row] & FLAG.YOURS || this.#marks[row] & 1 ? 1.7 * size : size;
      context.fillRect(
        frame.left + (this.x[row] / 65535) * frame.scaleX - scale / 2,
        frame.top + (this.y[row] / 65535) * frame.scaleY - scale / 2,
        scale,
        scale,
      );
    }
  }
}
