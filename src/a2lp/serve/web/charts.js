// The curve of the expected accuracy, as the report draws: lines, a band for the interval, few words.

import { svg } from "./dom.js";
import { between, percent } from "./format.js";

const [W, H, L, R, T, B] = [260, 92, 30, 8, 6, 18];

/**
 * @param {number[][]} curve labels, value, low, high; at least one
 * @returns {SVGElement}
 */
export function accuracyCurve(curve) {
  const last = curve[curve.length - 1];
  const most = Math.max(10, last[0]);
  const x = (/** @type {number} */ labels) => L + ((W - L - R) * labels) / most;
  const y = (/** @type {number} */ share) => H - B - (H - T - B) * share;
  const line = (/** @type {number[][]} */ points, /** @type {number} */ k) => points.map((point) => `${x(point[0]).toFixed(1)},${y(point[k]).toFixed(1)}`);
  const said = `Expected accuracy ${percent(last[1])} with ${last[0]} labels, 95 % interval ${between(last[2], last[3])}.`;
  const chart = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": said, class: "curve" });
  for (const share of [0, 0.5, 1]) {
    chart.append(svg("line", { x1: L, x2: W - R, y1: y(share), y2: y(share), class: "rule" }));
    chart.append(svg("text", { x: L - 5, y: y(share) + 3.5, "text-anchor": "end" }, 100 * share));
  }
  chart.append(svg("text", { x: L, y: H - 4, "text-anchor": "start" }, 0), svg("text", { x: W - R, y: H - 4, "text-anchor": "end" }, `${most} labels`));
  chart.append(svg("polygon", { points: [...line(curve, 3), ...line([...curve].reverse(), 2)].join(" "), class: "band" }));
  chart.append(svg("polyline", { points: line(curve, 1).join(" "), class: "path" }));
  chart.append(svg("circle", { cx: x(last[0]), cy: y(last[1]), r: 3, class: "end" }));
  return chart;
}
