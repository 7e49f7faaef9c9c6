"""A large pool whose making is ended anywhere goes on from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from a2lp import Pool
from a2lp.errors import A2LPError
from a2lp.pool import cells, graph, neighbours, prepare, whiten
from a2lp.pool.neighbours import rows_of

X = np.random.default_rng(0).normal(size=(1500, 12)).astype(np.float16)
WORK = {  # what each stage does, in its order
    "whitening": (prepare, "neighbour_whitening"),
    "cells": (cells, "_make_cells"),
    "lists": (cells, "compare_cells"),
    "join": (cells, "join_cells"),
    "graph": (graph, "from_chosen"),
}


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool takes the way of large ones."""
    monkeypatch.setattr(neighbours, "_EXACT", 100)
    monkeypatch.setattr(whiten, "LARGE", 100)
    monkeypatch.setattr(whiten, "pick_method", lambda method, n: "exact")  # the cells below are those of the graph


class Killed(BaseException):
    pass


@pytest.mark.parametrize("ended_in", WORK)
def test_a_run_that_was_ended_goes_on(ended_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Pool(X)
    done: list[str] = []
    armed = True

    for name, (module, function) in WORK.items():
        real = getattr(module, function)

        def counted(*arguments: Any, name: str = name, real: Any = real, **options: Any) -> Any:
            if armed and name == ended_in:
                raise Killed
            done.append(name)
            return real(*arguments, **options)

        monkeypatch.setattr(module, function, counted)
    with pytest.raises(Killed):
        Pool(X, folder=tmp_path)
    before, armed = list(WORK)[: list(WORK).index(ended_in)], False
    done.clear()
    found = Pool(X, folder=tmp_path)
    assert not set(before) & set(done)
    np.testing.assert_array_equal(found.points, expected.points)
    assert abs(found.graph.weights - expected.graph.weights).max() == 0
    done.clear()
    again = Pool(X, folder=tmp_path)
    assert not done
    assert isinstance(again.points, np.memmap) and not list(tmp_path.glob("*lists 1*"))


def test_other_points_have_other_files(tmp_path: Path) -> None:
    first = Pool(X, folder=tmp_path)
    other = X.copy()
    other[7, 3] += 1
    second = Pool(other, folder=tmp_path)
    assert (first.points != second.points).any()
    np.testing.assert_array_equal(second.points, Pool(other).points)


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    Pool(X, folder=tmp_path)
    expected = Pool(X).graph.weights
    (path,) = tmp_path.glob("graph*-0of5.npy")
    start = path.read_bytes()[:50]
    path.unlink()  # it may still be mapped
    path.write_bytes(start)
    assert abs(Pool(X, folder=tmp_path).graph.weights - expected).max() == 0


def test_half_precision_costs_no_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, 1500)
    x = rng.normal(size=(5, 12))[truth] + rng.normal(size=(1500, 12))
    labels = np.where(np.arange(1500) < 40, truth, -1)
    half = Pool(x, labels)
    monkeypatch.setattr(whiten, "LARGE", 1 << 30)
    full = Pool(x, labels)
    assert half.points is not None and half.points.dtype == np.float16 and full.points is not None
    np.testing.assert_allclose(rows_of(half.points), full.points, atol=1e-3)
    assert (half.answer.labels == full.answer.labels).mean() > 0.995
    assert half.assessment.accuracy == pytest.approx(full.assessment.accuracy, abs=0.01)
    np.testing.assert_allclose(half.novelty, full.novelty, atol=0.1)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(A2LPError, match="file"):
        Pool(X, folder=tmp_path / "file")


def test_every_half_has_its_value() -> None:
    every = np.arange(65536, dtype=np.uint16).view(np.float16).reshape(256, 256)
    finite = np.isfinite(every)
    np.testing.assert_array_equal(rows_of(every)[finite], every.astype(np.float32)[finite])
    assert np.isnan(rows_of(every)[~finite]).all()
