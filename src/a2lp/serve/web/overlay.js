// What lies above the points of the map: names of classes, the ring of the current point, the loop that is being drawn.

const NAMES = 24;
const BINS = 20;
const LONGEST = 22;
const SAMPLE = 20_000; // points that the places of names are found from

/** @typedef {{ text: string, x: number, y: number }} Name in units of the plane */

/**
 * Where the names stand: where most points of the class are.
 * @param {import("./store.js").Store} store
 * @param {import("./plane.js").Plane} plane
 * @param {number} only a class that is looked at alone
 * @returns {Name[]}
 */
export function namesOn(store, plane, only) {
  const named = store.sorted.filter((one) => store.slot(one.id) >= 0 || one.id === only);
  const ids = named.sort((a, b) => store.slot(a.id) - store.slot(b.id)).slice(0, NAMES);
  const bins = new Map(ids.map((one) => [one.id, new Uint32Array(3 * BINS * BINS)]));
  const step = Math.max(1, Math.floor(store.n / SAMPLE));
  for (let row = 0; row < store.n; row += step) {
    const sums = bins.get(store.cls[row]);
    if (!sums) continue;
    const [x, y] = [plane.x[row], plane.y[row]];
    const k = 3 * (((y * BINS) >> 16) * BINS + ((x * BINS) >> 16));
    sums[k]++;
    sums[k + 1] += x;
    sums[k + 2] += y;
  }
  const names = [];
  for (const [id, sums] of bins) {
    let best = 0;
    for (let k = 0; k < sums.length; k += 3) if (sums[k] > sums[best]) best = k;
    if (sums[best]) names.push({ text: store.name(id), x: sums[best + 1] / sums[best], y: sums[best + 2] / sums[best] });
  }
  return names;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import("./camera.js").Camera} camera
 * @param {CSSStyleDeclaration} style of the page
 * @param {{ names: Name[], size: number, ring: { x: number, y: number, radius: number } | null, loop: { x: number, y: number }[] }} what
 */
export function drawOverlay(context, camera, style, { names, size, ring, loop }) {
  const { ratio } = camera.frame;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, camera.width, camera.height);
  context.font = `600 ${size}px system-ui, sans-serif`;
  for (const [width, colour] of ring
    ? [
        [5, "--box"],
        [2.5, "--mark"],
      ]
    : []) {
    context.lineWidth = Number(width);
    context.strokeStyle = style.getPropertyValue(String(colour));
    context.beginPath();
    if (ring) context.arc(ring.x, ring.y, ring.radius, 0, 2 * Math.PI);
    context.stroke();
  }
  drawNames(context, camera, style, names);
  if (loop.length > 1) drawLoop(context, style, loop);
}

/** Names that would cover another one are left out. @param {CanvasRenderingContext2D} context @param {import("./camera.js").Camera} camera @param {CSSStyleDeclaration} style @param {Name[]} names */
function drawNames(context, camera, style, names) {
  context.textAlign = "center";
  context.lineJoin = "round";
  context.lineWidth = 4;
  context.strokeStyle = style.getPropertyValue("--box");
  context.fillStyle = style.getPropertyValue("--ink");
  /** @type {{ x: number, y: number, half: number }[]} */
  const written = [];
  for (const name of names) {
    const text = name.text.length > LONGEST ? `${name.text.slice(0, LONGEST - 1)}…` : name.text;
    const half = context.measureText(text).width / 2;
    const at = camera.screen(name.x, name.y);
    const x = Math.min(camera.width - half - 4, Math.max(half + 4, at.x));
    const y = at.y + 4;
    if (written.some((other) => Math.abs(other.y - y) < 15 && Math.abs(other.x - x) < other.half + half + 4)) continue;
    written.push({ x, y, half });
    context.strokeText(text, x, y);
    context.fillText(text, x, y);
  }
}

/** @param {CanvasRenderingContext2D} context @param {CSSStyleDeclaration} style @param {{ x: number, y: number }[]} loop */
function drawLoop(context, style, loop) {
  context.beginPath();
  for (const { x, y } of loop) context.lineTo(x, y);
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
