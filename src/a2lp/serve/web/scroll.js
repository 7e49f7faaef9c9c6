// Scrolling over more pixels than a browser has: above the limit the bar is a scale, and steps stay steps.

const LIMIT = 12e6; // Firefox stops near 17.8 million pixels, Chromium near 33.5

export class Scroll {
  #height = 0;
  #top = 0;
  #last = 0;
  #timer = 0;
  /** What lies at y is drawn at y - shift. */
  shift = 0;

  /**
   * @param {HTMLElement} element that scrolls
   * @param {() => void} moved
   */
  constructor(element, moved) {
    this.element = element;
    this.content = /** @type {HTMLElement} */ (element.firstElementChild);
    this.moved = moved;
    element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
  }

  get #scaled() {
    return this.#height > LIMIT;
  }

  /** Pixels that can be scrolled: by us, and by the browser. */
  get #range() {
    return Math.max(1, this.#height - this.element.clientHeight);
  }

  get #bar() {
    return Math.max(1, Math.min(this.#height, LIMIT) - this.element.clientHeight);
  }

  /** @param {number} height of all lines together */
  set height(height) {
    this.#height = height;
    this.content.style.height = `${Math.min(height, LIMIT)}px`;
    this.top = this.#top;
  }

  get top() {
    return this.#top;
  }

  set top(top) {
    this.#top = Math.min(this.#range, Math.max(0, top));
    if (this.#height <= this.element.clientHeight) this.#top = 0;
    this.element.scrollTop = this.#scaled ? (this.#top / this.#range) * this.#bar : this.#top;
    this.#last = this.element.scrollTop;
    this.shift = this.#scaled ? this.#top - this.#last : 0;
  }

  #scrolled() {
    const now = this.element.scrollTop;
    if (now === this.#last) return;
    const step = now - this.#last;
    this.#last = now;
    if (!this.#scaled) this.#top = now;
    else {
      const far = Math.abs(step) > this.element.clientHeight || now <= 0 || now >= this.#bar - 1;
      this.#top = far ? (now / this.#bar) * this.#range : Math.min(this.#range, Math.max(0, this.#top + step));
      this.shift = this.#top - now;
      window.clearTimeout(this.#timer);
      this.#timer = window.setTimeout(() => {
        this.top = this.#top; // the bar follows where small steps have led
        this.moved();
      }, 200);
    }
    this.moved();
  }
}
