from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from a2lp.bench import run as runs
from a2lp.bench.records import RecordStore
from a2lp.errors import InputError, MissingExtraError
from a2lp.features import BaseStatistics


def test_accuracies_are_those_of_scikit_learn_task_by_task(make_cells, digits):
    [cell] = make_cells(["prototypical"], shots=(3,), n_tasks=runs.BLOCK + 5)  # more than one block
    [record] = runs.run([cell])
    unit = digits.features / np.linalg.norm(digits.features, axis=1, keepdims=True)
    tasks = cell.episodes.tasks
    expected = []
    for s, sl, q, ql in zip(tasks.support, tasks.support_labels, tasks.query, tasks.query_labels, strict=True):
        means = [unit[s][sl == label].mean(axis=0) for label in range(3)]
        expected.append(100 * KNeighborsClassifier(1).fit(means, range(3)).score(unit[q], ql))
    np.testing.assert_allclose(record.accuracies, expected)
    assert record.seconds > 0
    assert record.versions["a2lp"]
    assert record.hardware["cores"] >= 1


def test_progress_counts_tasks(make_cells):
    [cell] = make_cells(["prototypical"], n_tasks=runs.BLOCK + 5)
    seen = []
    runs.run([cell], progress=lambda c, done: seen.append((c is cell, done)))
    assert seen == [(True, 0), (True, runs.BLOCK), (True, runs.BLOCK + 5)]


def test_finished_cells_are_not_run_again(make_cells, tmp_path):
    store = RecordStore(tmp_path)
    cells = make_cells(["prototypical", "lp"])
    first = runs.run(cells[:1], store)
    begun = []
    records = runs.run(cells, store, lambda cell, done: begun.append(cell.name))
    assert set(begun) == {"lp"}
    assert records[0] == first[0]
    assert [r.config["method"] for r in records] == ["prototypical", "lp"]


def test_torch_gives_what_numpy_gives(make_cells):
    pytest.importorskip("torch")
    params = {"settings": {"a2lp": {"steps": 20}}}
    on_numpy = runs.run(make_cells(["lp", "a2lp"], **params))
    on_torch = runs.run(make_cells(["lp", "a2lp"], device="torch", **params))
    for a, b in zip(on_numpy, on_torch, strict=True):
        np.testing.assert_allclose(a.accuracies, b.accuracies)
    assert "torch" in on_torch[0].versions


def test_a_device_that_is_not_there(make_cells):
    pytest.importorskip("torch")
    for device in ("nonsense", "cuda:99"):
        with pytest.raises(InputError, match=f"device '{device}' cannot be used"):
            runs.run(make_cells(["lp"], device=device))


def test_a_device_without_torch(make_cells, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"a2lp\[torch\]"):
        runs.run(make_cells(["lp"], device="cuda"))


def broken(cell, name="lp"):
    """The cell with a method that raises an error."""

    class Broken(type(cell.method)):
        def _solve(self, points, callback):
            raise ZeroDivisionError("no luck")

    return dataclasses.replace(cell, method=Broken()) if cell.name == name else cell


def test_one_that_fails_does_not_stop_the_others(make_cells, tmp_path):
    cells = [broken(cell) for cell in make_cells(["lp", "prototypical"])]
    with pytest.raises(ZeroDivisionError):
        runs.run(cells)
    store = RecordStore(tmp_path)
    records = runs.run(cells, store, keep_going=True)
    assert [record.failed for record in records] == ["ZeroDivisionError: no luck", None]
    assert [record.accuracies == [] for record in records] == [True, False]
    assert cells[0].key not in store  # it is tried again
    with pytest.raises(ZeroDivisionError):  # nothing to show at all
        runs.run(cells[:1], keep_going=True)


def test_a_limit_stops_a_cell_and_a_higher_one_goes_on(make_cells, tmp_path, monkeypatch):
    """A clock that counts a second for each task: with a limit of 5 seconds some are done, then the rest."""
    [cell] = make_cells(["prototypical"], n_tasks=30)
    expected = runs.run([cell])[0].accuracies
    now = [0.0]
    predict = type(cell.method).predict

    def slow(self, batch, callback=None):
        now[0] += len(batch)
        return predict(self, batch, callback)

    monkeypatch.setattr(type(cell.method), "predict", slow)
    monkeypatch.setattr(runs.time, "perf_counter", lambda: now[0])
    store = RecordStore(tmp_path)
    [part] = runs.run([cell], store, limit=5.0)
    assert (part.limit, part.whole, part.seconds) == (5.0, False, 5.0)
    assert part.accuracies == expected[:5]
    before = now[0]
    assert runs.run([cell], store, limit=5.0) == [part]
    assert now[0] == before  # nothing was run
    [more] = runs.run([cell], store, limit=12.0)
    assert more.accuracies == expected[:12]
    [whole] = runs.run([cell], store)
    assert (whole.limit, whole.whole, whole.accuracies) == (None, True, expected)


def test_records_say_what_was_assumed(make_cells, digits):
    base = BaseStatistics.of(digits.features, digits.labels)
    [plain] = runs.run(make_cells(["prototypical"]))
    [whitened] = runs.run(make_cells(["prototypical"], preprocess=("whiten",), base=base))
    assert (plain.uses_base, whitened.uses_base, plain.uniform) == (False, True, False)
