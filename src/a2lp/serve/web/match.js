// Which classes a few typed letters mean.

/** @param {string} text without case and accents */
export const fold = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().trim();

/**
 * How well a name fits: 0 equal, 1 begins with it, 2 a word begins with it, 3 contains it, 4 has its letters in order; -1 not at all.
 * @param {string} name
 * @param {string} query
 */
export function fit(name, query) {
  const text = fold(name);
  const wanted = fold(query);
  if (text === wanted) return 0;
  if (text.startsWith(wanted)) return 1;
  const at = text.indexOf(wanted);
  if (at > 0) {
    for (let from = at; from > 0; from = text.indexOf(wanted, from + 1)) if (!/[\p{L}\p{N}]/u.test(text[from - 1])) return 2;
    return 3;
  }
  let next = 0;
  for (const letter of text) if (letter === wanted[next]) next++;
  return next === wanted.length ? 4 : -1;
}

/**
 * Classes that fit, best first; among equals the recent ones, then those of the longer list.
 * @template {{ id: number, name: string }} C
 * @param {C[]} classes
 * @param {string} query
 * @param {number[]} recent ids, the latest first
 * @returns {C[]}
 */
export function rank(classes, query, recent) {
  const when = new Map(recent.map((id, i) => [id, i]));
  return classes
    .map((one, i) => ({ one, i, fit: fit(one.name, query), when: when.get(one.id) ?? recent.length }))
    .filter((entry) => entry.fit >= 0)
    .sort((a, b) => a.fit - b.fit || a.when - b.when || a.i - b.i)
    .map((entry) => entry.one);
}
