// How numbers read.

const whole = new Intl.NumberFormat("en");

/** @param {number} value 1797 as 1,797 */
export const count = (value) => whole.format(value);

/** @param {number} share 0.97 as 97 % */
export const percent = (share) => `${Math.round(100 * share)}\u202f%`;

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 50) return `${Math.max(1, Math.round(seconds))}\u202fs`;
  if (seconds < 5400) return `${Math.max(1, Math.round(seconds / 60))}\u202fmin`;
  return `${(seconds / 3600).toFixed(1)}\u202fh`;
}

/** @param {number} low @param {number} high an interval of shares, as 90 to 96 % */
export const between = (low, high) => `${Math.round(100 * low)} to ${percent(high)}`;

/** @param {number} gain of a share, in percentage points */
export const points = (gain) => `${gain < 0 ? "−" : "+"}${Math.abs(100 * gain).toFixed(1)} points`;
