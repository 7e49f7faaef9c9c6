import assert from "node:assert/strict";
import test from "node:test";
import { Layout } from "../../../src/a2lp/serve/web/layout.js";

const counts = [7, 1, 12, 30];
let start = 0;
const groups = counts.map((count, id) => {
  const group = { id, start, count };
  start += count;
  return group;
});
const layout = new Layout(groups, 5, 100, 40);

test("lines, places and heights agree", () => {
  let y = 0;
  let index = 0;
  for (let line = 0; line < layout.lines; line++) {
    assert.equal(layout.top(line), y);
    assert.equal(layout.at(y), line);
    assert.equal(layout.at(y + 39), line);
    const { head, start: first, count } = layout.line(line);
    assert.equal(first, index);
    for (let i = 0; i < count; i++) assert.deepEqual([layout.find(index + i).line, layout.find(index + i).column], [line, i]);
    index += count;
    y += head ? 40 : 100;
  }
  assert.equal(index, start);
  assert.equal(layout.height, y);
  assert.equal(layout.at(1e9), layout.lines - 1);
});

test("arrows keep the column, jump over headings and stop at the ends", () => {
  assert.equal(layout.step(3, 0, 1), 6); // the second line has two cells
  assert.equal(layout.step(6, 0, 1), 7); // over the heading, to a group of one
  assert.equal(layout.step(7, 0, 1), 8);
  assert.equal(layout.step(8, 0, -1), 7);
  assert.equal(layout.step(2, 0, -1), 2);
  assert.equal(layout.step(start - 1, 1, 0), start - 1);
  assert.equal(layout.step(start - 1, 0, 1), start - 1);
  assert.equal(layout.step(0, -1, 0), 0);
});

test("a million points take no more work than ten", () => {
  const large = new Layout([{ id: 0, start: 0, count: 1e6 }], 3, 130, 40);
  assert.equal(large.find(999_999).line, 333_334);
  assert.equal(large.at(large.top(333_334)), 333_334);
});
