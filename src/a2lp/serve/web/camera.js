// Which part of the map is seen, and from how near.

const MARGIN = 18;
const NEAREST = 60;

export class Camera {
  width = 0;
  height = 0;
  #zoom = 1;
  #x = 0;
  #y = 0;

  /** @returns {import("./draw.js").Frame} */
  get frame() {
    const { width, height } = this;
    const [scaleX, scaleY] = [(width - 2 * MARGIN) * this.#zoom, (height - 2 * MARGIN) * this.#zoom];
    return { width, height, scaleX, scaleY, left: MARGIN + this.#x, top: MARGIN + this.#y, ratio: devicePixelRatio };
  }

  fit() {
    [this.#zoom, this.#x, this.#y] = [1, 0, 0];
  }

  /** @param {number} x @param {number} y the place that stays @param {number} by */
  zoom(x, y, by) {
    const zoom = Math.min(NEAREST, Math.max(1, this.#zoom * by));
    const ratio = zoom / this.#zoom;
    this.#x = x - MARGIN - (x - MARGIN - this.#x) * ratio;
    this.#y = y - MARGIN - (y - MARGIN - this.#y) * ratio;
    this.#zoom = zoom;
    if (zoom === 1) this.fit();
  }

  /** @param {number} dx @param {number} dy */
  pan(dx, dy) {
    this.#x += dx;
    this.#y += dy;
  }

  /** @param {number} x @param {number} y of the plane, 0 to 65535; where that is on the canvas */
  screen(x, y) {
    const { scaleX, scaleY, left, top } = this.frame;
    return { x: left + (x / 65535) * scaleX, y: top + (y / 65535) * scaleY };
  }

  /** @param {number} x @param {number} y on the canvas; where that is in the plane */
  world(x, y) {
    const { scaleX, scaleY, left, top } = this.frame;
    return { x: ((x - left) / scaleX) * 65535, y: ((y - top) / scaleY) * 65535 };
  }
}
