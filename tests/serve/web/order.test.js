import assert from "node:assert/strict";
import test from "node:test";
import { arrange, GROUP } from "../../../src/a2lp/serve/web/order.js";
import { FLAG, NONE } from "../../../src/a2lp/serve/web/wire.js";

const random = (seed) => () => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return seed / 2 ** 32;
};

function data(n, seed) {
  const next = random(seed);
  const flags = [0, FLAG.YOURS, FLAG.ACCEPTED, FLAG.UNSEEN, FLAG.REJECTED, FLAG.DOUBTFUL];
  return {
    cls: Uint16Array.from({ length: n }, () => [0, 3, 5, NONE][Math.floor(4 * next())]),
    conf: Uint8Array.from({ length: n }, () => 256 * next()),
    flags: Uint8Array.from({ length: n }, () => flags[Math.floor(6 * next())]),
  };
}

test("the counting sort is the plain sort", () => {
  const ids = [5, 0, 3];
  for (const sort of ["sure", "doubtful", "file"]) {
    const { cls, conf, flags } = data(500, 7);
    const rows = Uint32Array.from({ length: 500 }, (_, i) => i).filter((i) => i % 3);
    const group = (row) => (flags[row] & FLAG.REJECTED ? 99 : cls[row] === NONE ? 98 : ids.indexOf(cls[row]));
    const kind = (row) => (flags[row] & FLAG.YOURS ? 0 : flags[row] & FLAG.ACCEPTED ? 2 : flags[row] & FLAG.UNSEEN ? 3 : 1);
    const certainty = (row) => (kind(row) !== 1 ? 0 : sort === "sure" ? -conf[row] : conf[row]);
    const within = (a, b) => (sort === "file" ? 0 : kind(a) - kind(b) || certainty(a) - certainty(b));
    const plain = [...rows].sort((a, b) => group(a) - group(b) || within(a, b) || a - b);
    const { order, groups } = arrange({ cls, conf, flags }, rows, ids, sort);
    assert.deepEqual([...order], plain);
    assert.deepEqual(
      groups.map((one) => one.id),
      [5, 0, 3, GROUP.OPEN, GROUP.REJECTED],
    );
    for (const one of groups) {
      const expected = group(order[one.start]);
      assert.ok(order.slice(one.start, one.start + one.count).every((row) => group(row) === expected));
    }
    assert.equal(
      groups.reduce((sum, one) => sum + one.count, 0),
      rows.length,
    );
  }
});

test("a class that the list does not know yet has no group of its own", () => {
  const rows = Uint32Array.of(0);
  const { groups } = arrange({ cls: Uint16Array.of(7), conf: Uint8Array.of(0), flags: Uint8Array.of(0) }, rows, [1], "sure");
  assert.deepEqual(groups, [{ id: GROUP.OPEN, start: 0, count: 1 }]);
});
