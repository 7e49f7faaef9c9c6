// Elements made in code: every text becomes a text node, so that no name of a file or class is ever read as HTML.

/** @typedef {string | number | Node | null | undefined | false} Child */

/**
 * Make an element. Names that begin with "on" are listeners, true and false set or leave out an attribute but of ARIA.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [props]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-") && typeof value === "boolean") element.setAttribute(name, String(value));
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  fill(element, ...children);
  return element;
}

/**
 * Make an SVG element.
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {...Child} children
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  fill(element, ...children);
  return element;
}

/**
 * Replace what an element contains.
 * @param {Element} element
 * @param {...Child} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/**
 * The element of the page with this id; the page has it, or the page is broken.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`index.html has no #${id}`);
  return found;
}

/** @param {Element | null} element @param {string} text */
export function say(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

/**
 * Text for screen readers, in the one polite live region.
 * @param {string} text
 */
export function announce(text) {
  const live = byId("live");
  live.textContent = live.textContent === text ? `${text} ` : text;
}

const SHAPES = ["M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13z", "M2 2h12v12H2z", "M8 1L15.2 14.2H.8z"];

/**
 * The mark of a class: one of eight colours and three shapes, or a grey ring.
 * @param {number} slot 0 to 23, or -1 for the rest
 */
export function mark(slot) {
  const shape = svg("path", { d: SHAPES[slot < 0 ? 0 : Math.floor(slot / 8)] });
  return svg("svg", { class: `mark ${slot < 0 ? "rest" : `c${slot % 8}`}`, viewBox: "0 0 16 16", "aria-hidden": "true" }, shape);
}
