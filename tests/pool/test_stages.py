"""A large pool whose making is ended anywhere goes on from its files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from a2lp import Pool
from a2lp.errors import A2LPError
from a2lp.pool import cells, graph, neighbours, prepare, stages, whiten
from a2lp.pool.neighbours import rows_of
from a2lp.pool.rows import products, weighted_sums
from a2lp.pool.stages import release, stored

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
    monkeypatch.setattr(stages, "LARGE", 100)
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


# a process that kills itself, when it is about to rename a file whose name begins and ends like this, or at this step;
# it prints the names of the files that it completed
PROGRAM = """
import os, signal, sys
import numpy as np
from a2lp import Pool
from a2lp.pool import neighbours, stages, whiten

points, folder, start, end = sys.argv[1:]
neighbours._EXACT, stages.LARGE, whiten.pick_method = 100, 100, lambda method, n: "exact"

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def hook(event, arguments):
    name = os.path.basename(os.fspath(arguments[1])) if event == "os.rename" else ""
    if name.startswith(start) and name.endswith(end):
        kill()
    if name.endswith(".npy"):
        print(name, flush=True)

sys.addaudithook(hook)
Pool(np.load(points), folder=folder, progress=lambda done, of: kill() if (start, str(done)) == ("step", end) else None)
"""
KILLS = [  # and the last stage that is complete then
    ("whitening", "1of2.npy", None),
    ("whitened", ".npy", "whitening"),
    ("cells", "0of2.npy", "whitened"),  # all but the first of its files are renamed
    ("step", "20", "cells"),  # of 37 cells that are compared
    ("lists 0", "0of2.npy", "cells"),
    ("step", str(3 * 37 + 20), "lists 2"),  # the third time that neighbours of neighbours are offered
    ("lists 5", "1of2.npy", "lists 4"),
    ("graph", "2of5.npy", "lists 6"),
]


@pytest.mark.skipif(os.name != "posix", reason="kills as Unix does")
def test_kill_9_in_every_stage_costs_that_stage_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", X)
    folder = tmp_path / "stages"
    made: list[str] = []
    for start, end, last in KILLS:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "points.npy"), str(folder), start, end]
        run = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        assert run.returncode == -signal.SIGKILL
        made += run.stdout.splitlines()
        complete = {path.name.split("-")[0] for path in folder.glob("*-0of*.npy")}
        assert start not in complete and (last is None or last in complete)
    labels = np.where(np.arange(len(X)) < 40, np.arange(len(X)) % 5, -1)
    found, expected = Pool(X, labels, folder=folder), Pool(X, labels)
    np.testing.assert_array_equal(found.points, expected.points)
    assert abs(found.graph.weights - expected.graph.weights).max() == 0
    np.testing.assert_array_equal(found.answer.probabilities, expected.answer.probabilities)
    assert not list(folder.glob(".*"))  # what the killed ones left half written
    complete = [name for name in made if "-0of" in name]  # the last that is renamed
    assert len(set(complete)) == len(complete)  # nothing that was complete is made again


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
    monkeypatch.setattr(stages, "LARGE", 1 << 30)
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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_of_a_map_leave_once_they_were_read(tmp_path: Path) -> None:
    def resident() -> int:
        return sum(
            int(line.split()[1]) << 10
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith(("RssFile", "RssShmem"))
        )

    x = np.random.default_rng(0).normal(size=(200_000, 64)).astype(np.float16)
    points = stored(x)
    assert isinstance(points, np.memmap)

    def work(points: Any) -> tuple[Any, Any]:
        ones, out = np.ones((len(points), 2), np.float32), np.empty(len(points), np.float32)
        return weighted_sums(ones, points), products(points, lambda _, rows: (rows**2).sum(axis=1), out)

    work(x[:10])  # so that all libraries are loaded
    before = resident()
    sums, lengths = work(points)
    assert resident() - before < x.nbytes / 4
    np.testing.assert_allclose(sums[1], x.sum(axis=0, dtype=np.float64), rtol=1e-3, atol=1)
    np.testing.assert_allclose(lengths, (x.astype(np.float32) ** 2).sum(axis=1), rtol=1e-5)
    assert points.sum(dtype=np.float64) == x.sum(dtype=np.float64) and resident() - before > x.nbytes / 2
    release(points[1000:150_000])
    assert resident() - before < x.nbytes / 2
    np.testing.assert_array_equal(points, x)
    changed = np.memmap(tmp_path / "changes", np.uint8, "w+", shape=(1 << 16,))
    changed.flush()
    private = np.memmap(tmp_path / "changes", np.uint8, "c")
    private[5] = 1
    release(private, private[:100])
    assert private[5] == 1  # it is in no file
