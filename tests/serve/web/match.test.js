import assert from "node:assert/strict";
import test from "node:test";
import { chord, types } from "../../../src/a2lp/serve/web/keys.js";
import { rank } from "../../../src/a2lp/serve/web/match.js";
import { Plane } from "../../../src/a2lp/serve/web/plane.js";

const classes = ["Black Tern", "Tern", "Arctic Tern", "Great Auk", "Turnstone", "Épervier"].map((name, id) => ({ id, name }));
const found = (query, recent = []) => rank(classes, query, recent).map((one) => one.name);

test("equal, prefix, word, letters in order; recent first among equals", () => {
  assert.deepEqual(
    found("tern"),
    ["Tern", "Black Tern", "Arctic Tern", "Turnstone"].filter((name) => name !== "Turnstone"),
  );
  assert.deepEqual(found("t"), ["Tern", "Turnstone", "Black Tern", "Arctic Tern", "Great Auk"]);
  assert.deepEqual(found("t", [4]), ["Turnstone", "Tern", "Black Tern", "Arctic Tern", "Great Auk"]);
  assert.deepEqual(found("bt"), ["Black Tern"]);
  assert.deepEqual(found("ep"), ["Épervier"]);
  assert.deepEqual(found("xyz"), []);
  assert.equal(found("").length, classes.length);
});

const key = (name, held = {}) => ({ key: name, ctrlKey: false, metaKey: false, altKey: false, shiftKey: false, ...held });

test("keys have one name each", () => {
  assert.equal(chord(key("z", { ctrlKey: true })), "Ctrl+Z");
  assert.equal(chord(key("Z", { metaKey: true, shiftKey: true })), "Ctrl+Shift+Z");
  assert.equal(chord(key("Enter", { shiftKey: true })), "Shift+Enter");
  assert.equal(chord(key("?", { shiftKey: true })), "?");
  assert.equal(chord(key(" ")), "Space");
  assert.ok(types(key("ß")) && !types(key("a", { ctrlKey: true })) && !types(key(" ")) && !types(key("Tab")));
});

test("the nearest points, by the index and by looking at all", () => {
  let seed = 3;
  const next = () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return seed >>> 16;
  };
  const x = Uint16Array.from({ length: 3000 }, next);
  const y = Uint16Array.from({ length: 3000 }, next);
  const plane = new Plane(x, y);
  for (const [px, py, stretch] of [
    [100, 60_000, 1],
    [30_000, 30_000, 0.5],
    [65_000, 10, 2],
  ]) {
    const far = (row) => Math.hypot(x[row] - px, (y[row] - py) * stretch);
    const plain = [...x.keys()].filter((row) => far(row) <= 4000).sort((a, b) => far(a) - far(b));
    assert.deepEqual(plane.near(px, py, 10, 4000, stretch), plain.slice(0, 10));
  }
  const right = plane.step(0, 1, 0);
  assert.ok(x[right] > x[0] || right === 0);
});
