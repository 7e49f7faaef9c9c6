from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from a2lp.bench import run as runs
from a2lp.bench.predict import HOST_BLOCK
from a2lp.bench.records import RecordStore
from a2lp.errors import InputError, MissingExtraError
from a2lp.features import BaseStatistics


def test_accuracies_are_those_of_scikit_learn_task_by_task(make_cells, digits):
    [cell] = make_cells(["prototypical"], shots=(3,), n_tasks=HOST_BLOCK + 5)  # more than one block
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
    [cell] = make_cells(["prototypical"], n_tasks=HOST_BLOCK + 5)
    seen = []
    runs.run([cell], progress=lambda c, done: seen.append((c is cell, done)))
    assert seen == [(True, 0), (True, HOST_BLOCK), (True, HOST_BLOCK + 5)]


GIB = 1 << 30


def test_blocks_fill_a_device_within_its_memory():
    task = 4 * 80 * 640  # bytes of a 5-way 1-shot task with 75 queries
    assert runs.block_size("cpu", task, None) == runs.block_size("torch", task, None) == 100
    assert runs.block_size("cuda", task, 140 * GIB) >= 10_000  # all tasks of a usual run at once
    assert runs.block_size("cuda:1", task, 140 * GIB) * task <= 2 * GIB  # the host gathers them
    for free in (4 * GIB, GIB, GIB // 100):
        assert task * runs.block_size("cuda", task, free) <= free / 8
    assert runs.block_size("cuda", task, 0) == 1
    assert runs.block_size("cuda", 10 * task, 4 * GIB) == runs.block_size("cuda", task, 4 * GIB) // 10
    assert runs.block_size("mps", task, None) * task <= GIB  # a device whose memory is not known


def test_an_accelerator_gets_its_tasks_in_one_block(make_cells, monkeypatch):
    """With a stand-in for the device, whose arrays stay where they are."""
    [cell] = make_cells(["prototypical"], n_tasks=HOST_BLOCK + 5, device="cuda")
    monkeypatch.setattr(runs, "mover", lambda device: lambda batch: batch)
    monkeypatch.setattr(runs, "free_memory", lambda device: 8 * GIB)
    monkeypatch.setattr(runs.environment, "hardware", lambda device: {"device": device})
    seen = []
    [record] = runs.run([cell], progress=lambda c, done: seen.append(done))
    assert seen == [0, HOST_BLOCK + 5]
    assert record.accuracies == runs.run(make_cells(["prototypical"], n_tasks=HOST_BLOCK + 5))[0].accuracies


def test_the_size_of_a_task_counts_all_of_its_vectors(make_cells):
    [cell] = make_cells(["prototypical"], shots=(2,))
    batch = cell.episodes.tasks[:1].batch(cell.episodes.features.features)
    assert runs.bytes_per_task(cell.episodes) == batch.support.nbytes + batch.query.nbytes


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
    params = {"params": {"a2lp": {"steps": 20}}}
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
    with pytest.raises(MissingExtraError, match=r"\[torch\]"):
        runs.run(make_cells(["lp"], device="cuda"))


def broken(cell, name="lp"):
    """The cell with a method that raises an error."""

    class Broken(type(cell.method)):
        def _solve(self, points):
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


def test_what_other_code_began_is_run_from_the_start(make_cells, tmp_path):
    """A record has one stamp, so its parts must not come from different commits or machines."""
    [cell] = make_cells(["prototypical"], n_tasks=6)
    [whole] = runs.run([cell])
    store = RecordStore(tmp_path)
    wrong = [1.0, 2.0]  # no accuracy of this cell, so that it is seen where they are kept
    for change, kept in (
        ({}, True),
        ({"commit": "another"}, False),
        ({"hardware": {"cpu": "another", "cores": 1, "device": "cpu"}}, False),
        ({"versions": whole.versions | {"numpy": "1.0"}}, False),
    ):
        store.put(dataclasses.replace(whole, accuracies=wrong, limit=1e-6, **change))
        [record] = runs.run([cell], store)
        assert record.whole
        assert (record.accuracies[:2] == wrong) is kept
        assert record.accuracies[2:] == whole.accuracies[2:]


def test_records_say_what_was_assumed(make_cells, digits):
    base = BaseStatistics.of(digits.features, digits.labels)
    [plain] = runs.run(make_cells(["prototypical"]))
    [whitened] = runs.run(make_cells(["prototypical"], preprocess=("whiten",), base=base))
    assert (plain.uses_base, whitened.uses_base, plain.uniform) == (False, True, False)
