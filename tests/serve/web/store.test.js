import assert from "node:assert/strict";
import test from "node:test";
import { Store } from "../../../src/a2lp/serve/web/store.js";
import { FLAG, NONE, readRows, readUpdate } from "../../../src/a2lp/serve/web/wire.js";

const kind = (id, name, pin = null) => ({ id, name, pin, yours: 0, accepted: 0, unseen: 0, predicted: 0, gone: false });

function full(seq, cells) {
  const n = cells.length;
  const buffer = new ArrayBuffer(8 + 4 * n);
  new Uint32Array(buffer, 0, 2).set([seq, n]);
  new Uint16Array(buffer, 8, n).set(cells.map((cell) => cell[0]));
  new Uint8Array(buffer, 8 + 2 * n, n).set(cells.map((cell) => cell[1]));
  new Uint8Array(buffer, 8 + 3 * n, n).set(cells.map((cell) => cell[2]));
  return buffer;
}

function patch(seq, cells) {
  const buffer = new ArrayBuffer(8 + 8 * cells.length);
  const view = new DataView(buffer);
  view.setUint32(0, seq, true);
  view.setUint32(4, cells.length, true);
  cells.forEach(([row, cls, conf, flags], i) => {
    view.setUint32(8 + 8 * i, row, true);
    view.setUint16(12 + 8 * i, cls, true);
    view.setUint8(14 + 8 * i, conf);
    view.setUint8(15 + 8 * i, flags);
  });
  return readUpdate(buffer);
}

function ready() {
  const store = new Store();
  store.setState({ phase: "ready", classes: [kind(0, "auk", "1"), kind(1, "tern", "2")] });
  store.apply(
    readRows(
      full(5, [
        [0, 200, 0],
        [1, 100, FLAG.DOUBTFUL],
        [NONE, 0, 0],
      ]),
    ),
  );
  return store;
}
const cell = (store, row) => [store.cls[row], store.conf[row], store.flags[row]];

test("a full message of the socket reads like the rows of a request", () => {
  const buffer = full(9, [
    [4, 5, 6],
    [7, 8, 9],
  ]);
  const fromRequest = readRows(buffer.slice(0));
  new Uint32Array(buffer, 4, 1)[0] = 0xffffffff;
  assert.deepEqual(readUpdate(buffer), fromRequest);
});

test("a label of yours stands against older news, and gives way to the server's own account of it", () => {
  const store = ready();
  store.hold([1], { id: "a", name: "auk", flags: FLAG.YOURS });
  assert.deepEqual(cell(store, 1), [0, 255, FLAG.YOURS]);
  store.apply(
    patch(5, [
      [1, 1, 50, 8],
      [0, 1, 90, 8],
    ]),
  ); // sent before the server knew
  assert.deepEqual(cell(store, 1), [0, 255, FLAG.YOURS]);
  assert.deepEqual(cell(store, 0), [1, 90, 8]);
  store.acknowledge("a", 6);
  store.apply(patch(5, [[1, 1, 40, 8]]));
  assert.deepEqual(cell(store, 1), [0, 255, FLAG.YOURS]);
  store.apply(patch(6, [[1, 0, 255, FLAG.YOURS]]));
  store.apply(patch(7, [[1, 1, 30, 0]])); // another tab has cleared it
  assert.deepEqual(cell(store, 1), [1, 30, 0]);
});

test("news that come before the acknowledgement are kept underneath", () => {
  const store = ready();
  store.hold([1], { id: "a", name: null, flags: 0 });
  store.apply(patch(6, [[1, 0, 77, 0]]));
  store.acknowledge("a", 6);
  assert.deepEqual(cell(store, 1), [0, 77, 0]);
});

test("what is refused or undone looks as before", () => {
  const store = ready();
  store.hold([0, 2], { id: "a", name: "gannet", flags: FLAG.YOURS });
  assert.equal(store.name(store.cls[2]), "gannet"); // a new class is there at once
  store.refuse("a");
  assert.deepEqual(
    [cell(store, 0), cell(store, 2)],
    [
      [0, 200, 0],
      [NONE, 0, 0],
    ],
  );
  store.hold([0], { id: "b", name: "tern", flags: FLAG.YOURS });
  store.acknowledge("b", 6);
  store.apply(patch(6, [[0, 1, 255, 1]]));
  store.holdUndo("b", "c");
  assert.deepEqual(cell(store, 0), [0, 200, 0]);
});

test("marks: keys first, then age, 24 in all, and they stay", () => {
  const store = new Store();
  const classes = Array.from({ length: 40 }, (_, id) => kind(id, `class ${id}`, id === 30 ? "1" : null));
  store.setState({ phase: "ready", classes });
  assert.equal(store.slot(30), 0);
  assert.equal(store.slot(0), 1);
  const slots = classes.map((one) => store.slot(one.id)).filter((slot) => slot >= 0);
  assert.deepEqual(
    [...slots].sort((a, b) => a - b),
    Array.from({ length: 24 }, (_, i) => i),
  );
  assert.deepEqual(
    store.sorted.slice(0, 4).map((one) => one.id),
    [30, 0, 1, 2],
  );
});
