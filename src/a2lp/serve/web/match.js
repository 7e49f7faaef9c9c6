// Which classes a few typed letters mean.

/** @param {string} text without case and accents */
export const fold = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().trim();

/** @param {string} text @param {string} letters whether they stand in this order in the text */
function within(text, letters) {
  let next = 0;
  for (const letter of text) if (letter === letters[next]) next++;
  return next === letters.length;
}

/**
 * How well a name fits: 0 equal, 1 begins with it, 2 a word begins with it, 3 initials of words, 4 contains it,
 * 5 its letters in order from the first one on, 6 its letters in order; -1 not at all.
 * @param {string} name
 * @param {string} query
 */
export function fit(name, query) {
  const text = fold(name);
  const wanted = fold(query);
  if (text === wanted) return 0;
  if (text.startsWith(wanted)) return 1;
  const words = text.split(/[^\p{L}\p{N}]+/u);
  if (words.some((_, i) => words.slice(i).join(" ").startsWith(wanted))) return 2;
  if (within(words.map((word) => word[0]).join(""), wanted)) return 3;
  if (text.includes(wanted)) return 4;
  if (!within(text, wanted)) return -1;
  return text[0] === wanted[0] ? 5 : 6;
}

/**
 * Classes that fit, best first; among equals those that are named first, then those of the longer list.
 * @template {{ id: number, name: string }} C
 * @param {C[]} classes
 * @param {string} query
 * @param {number[]} first ids: what the point probably is, then the classes that were used last
 * @returns {C[]}
 */
export function rank(classes, query, first) {
  const place = new Map(first.map((id, i) => [id, i]));
  return classes
    .map((one, i) => ({ one, i, fit: fit(one.name, query), place: place.get(one.id) ?? first.length }))
    .filter((entry) => entry.fit >= 0)
    .sort((a, b) => a.fit - b.fit || a.place - b.place || a.i - b.i)
    .map((entry) => entry.one);
}
