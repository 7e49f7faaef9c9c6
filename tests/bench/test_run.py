from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from a2lp.bench import run as runs
from a2lp.bench.records import RecordStore
from a2lp.errors import InputError, MissingExtraError


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
