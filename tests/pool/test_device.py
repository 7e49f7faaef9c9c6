"""Pools as tensors, against NumPy: torch on the CPU runs what a GPU runs, but for candidates in float16."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from a2lp.errors import InputError
from a2lp.pool import device as module
from a2lp.pool import device_graph
from a2lp.pool.graph import PoolGraph, from_sparse, neighbour_graph
from a2lp.pool.methods import Task
from a2lp.pool.neighbours import search
from a2lp.pool.propagate import propagate
from a2lp.pool.session import Pool
from a2lp.pool.solve import solve
from a2lp.preprocess import l2

torch = pytest.importorskip("torch")

C = 12
CPU = torch.device("cpu")
DEVICES = [
    CPU,
    pytest.param(
        torch.device("cuda"),
        marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]
pytestmark = pytest.mark.parametrize("device", DEVICES)


def points(n: int, d: int = 32, noise: float = 2.0) -> Any:
    """Points of classes that overlap; row i is of class i % C."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(C, d))
    return np.asarray(l2(centres[np.arange(n) % C] + noise * rng.normal(size=(n, d)))).astype(np.float32)


def labels(n: int, given: int = 5 * C) -> Any:
    return np.where(np.arange(n) < given, np.arange(n) % C, -1)


def same_graph(found: PoolGraph, expected: PoolGraph) -> None:
    assert found.weights.nnz == expected.weights.nnz
    assert abs(found.weights - expected.weights).max() < 4e-6  # float32, summed in another order


@pytest.mark.parametrize("n", [15, 700, 5000])
def test_neighbours_are_those_of_all_pairs(device: Any, n: int) -> None:
    x = points(n)
    expected, found = search(x, min(28, n - 1)), device_graph.search(torch.from_numpy(x).to(device), min(28, n - 1))
    np.testing.assert_allclose(found.similarities.cpu(), expected.similarities, atol=1e-6)
    assert (found.indices.cpu().numpy() == expected.indices).mean() > 0.999  # equal but for rounding
    k = min(20, n - 1)
    same_graph(device_graph.neighbour_graph(torch.from_numpy(x).to(device), k, 3), neighbour_graph(x, k))


def test_equal_points_are_tied_as_on_the_host(device: Any) -> None:
    x = np.repeat(points(40), 60, axis=0)  # more of each than a list is long
    same_graph(device_graph.neighbour_graph(torch.from_numpy(x).to(device), 20, 3), neighbour_graph(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [0.5, 0.8, 0.99])
def test_propagation_is_that_of_the_host(device: Any, dtype: Any, alpha: float) -> None:
    graph = neighbour_graph(points(1500).astype(dtype))
    y = np.zeros((1500, C), dtype)
    y[np.arange(60), np.arange(60) % C] = 1
    y[:, 3] = 0
    tolerance = 1e-4 if dtype == np.float32 else 1e-9
    expected = propagate(graph, y, alpha, tolerance=tolerance)
    found = propagate(graph, torch.from_numpy(y).to(device), alpha, tolerance=tolerance)
    assert found.Z.dtype == getattr(torch, np.dtype(dtype).name)
    assert (found.residual <= tolerance).all()
    np.testing.assert_allclose(found.Z.cpu(), expected.Z, atol=20 * tolerance)
    again = propagate(graph, torch.from_numpy(y).to(device), alpha, tolerance=tolerance, start=found.Z)
    assert again.iterations == 0


def test_one_new_label_counts_however_many_there_are(device: Any) -> None:
    graph = neighbour_graph(points(2000))
    y = torch.full((2000, 1), 0.5, device=device)
    start = propagate(graph, y, 0.5, tolerance=1e-4).Z
    y[7] += 0.15  # within the tolerance of the column as a whole
    assert propagate(graph, y, 0.5, tolerance=1e-2, start=start).iterations == 0
    found = propagate(graph, y, 0.5, tolerance=1e-2, start=start, largest=0.02).Z
    expected = propagate(graph, y.cpu().numpy(), 0.5, tolerance=1e-6).Z
    assert abs(float(start[7]) - expected[7, 0]) > 0.1
    assert abs(float(found[7]) - expected[7, 0]) < 0.05


def test_parts_of_a_graph(device: Any) -> None:
    rng = np.random.default_rng(0)
    n = 300
    i = rng.integers(0, n // 3, 200)
    edges = np.zeros((n, n), np.float32)
    edges[i, i + n // 3 * rng.integers(0, 3, 200) % n] = 1
    edges[np.arange(200, 299), np.arange(201, 300)] = 1  # a path
    host, graph = from_sparse(edges), from_sparse(edges)
    graph.on(device)
    for row in (0, 5, 250):
        labelled = np.arange(n) == row
        np.testing.assert_array_equal(graph.reached(labelled), host.reached(labelled))


@pytest.mark.parametrize("method", ["auto", "lp", "em", "smoothed_lr", "logistic", "knn", "a2lp"])
def test_methods_answer_as_on_the_host(device: Any, method: str) -> None:
    n = 1200
    x = points(n)
    graph, codes = neighbour_graph(x), labels(n)
    expected = solve(Task(x, graph, codes, C), np.arange(C), method)
    found = solve(Task(torch.from_numpy(x).to(device), graph, codes, C), np.arange(C), method)
    assert (found.labels == expected.labels).mean() > 0.998
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=5e-3)
    np.testing.assert_allclose(found.arrived, expected.arrived, atol=1e-3)
    np.testing.assert_array_equal(found.nearest, expected.nearest)
    np.testing.assert_array_equal(found.reached, expected.reached)


@pytest.mark.slow
def test_a_pool_answers_as_on_the_host(device: Any) -> None:
    n = 21_000  # more than the part on which labels are held out
    x = points(n)
    pool, same = (Pool(x, labels(n), device=device) for _ in range(2))
    np.testing.assert_array_equal(pool.answer.probabilities, same.answer.probabilities)
    host = Pool(pool.graph, labels(n))
    host.points = pool.points
    for turn in range(3):
        if turn:
            for one in (pool, host):
                one.label(n // 2 + turn, (n // 2 + turn) % C)
        assert (pool.answer.labels == host.answer.labels).mean() > 0.998
    assert abs(pool.assessment.accuracy - host.assessment.accuracy) < 0.003
    assert abs(pool.novelty - host.novelty).max() < 0.01


def test_points_come_and_go(device: Any) -> None:
    n = 600
    x = points(n)
    host, there = (Pool(x[:500], labels(500), device=one) for one in ("cpu", device))
    for pool in (host, there):
        pool.add(x[500:])
        pool.remove(np.arange(100, 150))
    assert (there.answer.labels == host.answer.labels).mean() > 0.99


def test_files_of_a_graph_are_shared(device: Any, tmp_path: Any) -> None:
    n = 600
    x = points(n)
    host = Pool(x, labels(n), device="cpu", folder=tmp_path)
    files = sorted(tmp_path.iterdir())
    there = Pool(x, labels(n), device=device, folder=tmp_path)
    assert sorted(tmp_path.iterdir()) == files
    np.testing.assert_array_equal(there.graph.weights.data, host.graph.weights.data)
    assert (there.answer.labels == host.answer.labels).mean() > 0.998


def test_points_that_are_not_finite_are_refused(device: Any) -> None:
    x = points(100)
    x[40, 3] = np.nan
    with pytest.raises(InputError, match="row 40 of the points holds nan"):
        module.unit_points(x, device)


def test_what_is_asked_for_is_used_or_refused(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.choose("cpu", (10**6, 512)) is None
    assert module.choose("auto", (1000, 512)) is None
    assert module.choose("mps", (1000, 512)) is None  # for image networks
    with pytest.raises(InputError, match="device='gpu' cannot be used"):
        module.choose("gpu", (1000, 512))
    if device.type == "cuda":
        assert module.choose("auto", (10**5, 512)) == device
        with pytest.raises(InputError, match=r"takes about .* GiB of cuda"):
            module.choose("cuda", (10**10, 512))
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert module.choose("auto", (10**6, 512)) is None
    with pytest.raises(InputError, match="needs torch"):
        module.choose("cuda", (10**6, 512))
