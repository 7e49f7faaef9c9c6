// Mouse and fingers on the map: a loop, a move, a change of scale, a click.

/** @typedef {{ x: number, y: number }} Place */
/**
 * @typedef {object} Gestures
 * @property {() => boolean} lasso whether a drag draws a loop
 * @property {(busy: boolean) => void} busy
 * @property {(x: number, y: number, by: number) => void} zoom
 * @property {(dx: number, dy: number) => void} pan
 * @property {(loop: Place[], done: boolean) => void} loop
 * @property {(x: number, y: number) => void} click
 * @property {(x: number, y: number) => void} hover
 * @property {() => void} leave
 */

const STILL = 4; // pixels below which a drag is a click

/**
 * @param {HTMLElement} element
 * @param {Gestures} on
 */
export function gestures(element, on) {
  /** @type {Map<number, Place>} */
  const down = new Map();
  /** @type {Place[]} */
  let loop = [];
  let pan = false;
  let far = false;
  const wheel = (/** @type {WheelEvent} */ event) => {
    event.preventDefault();
    on.zoom(event.offsetX, event.offsetY, Math.exp(-event.deltaY / 400));
  };
  const start = (/** @type {PointerEvent} */ event) => {
    element.setPointerCapture(event.pointerId);
    down.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    pan = down.size > 1 || event.button > 0 || on.lasso() === (event.shiftKey || event.altKey);
    far = false;
    loop = [];
    on.busy(true);
  };
  const drag = (/** @type {PointerEvent} */ event, /** @type {Place} */ from) => {
    const [x, y] = [event.offsetX, event.offsetY];
    const other = [...down].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const before = Math.max(1, Math.hypot(from.x - other.x, from.y - other.y));
      on.zoom((x + other.x) / 2, (y + other.y) / 2, Math.hypot(x - other.x, y - other.y) / before);
    }
    on.pan((x - from.x) / down.size, (y - from.y) / down.size);
  };
  const move = (/** @type {PointerEvent} */ event) => {
    const from = down.get(event.pointerId);
    const [x, y] = [event.offsetX, event.offsetY];
    if (!from) return on.hover(x, y);
    if (!far && Math.hypot(x - from.x, y - from.y) < STILL) return undefined;
    far = true;
    if (pan) drag(event, from);
    else {
      loop.push({ x, y });
      on.loop(loop, false);
    }
    down.set(event.pointerId, { x, y });
    return undefined;
  };
  const end = (/** @type {PointerEvent} */ event) => {
    if (!down.delete(event.pointerId) || down.size) return;
    on.busy(false);
    if (!far) on.click(event.offsetX, event.offsetY);
    else if (!pan) on.loop(loop, true);
  };
  element.addEventListener("wheel", wheel, { passive: false });
  element.addEventListener("pointerdown", start);
  element.addEventListener("pointermove", move);
  element.addEventListener("pointerup", end);
  element.addEventListener("pointercancel", end);
  element.addEventListener("pointerleave", on.leave);
  element.addEventListener("contextmenu", (event) => event.preventDefault());
}
