"""Conjugate gradients against dense solutions, and what is promised about their residual."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import a2lp
from a2lp.errors import InputError
from a2lp.pool import conjugate
from a2lp.pool import graph as module_graph
from a2lp.pool import propagate as module
from a2lp.pool.graph import PoolGraph, from_sparse, neighbour_graph
from a2lp.pool.propagate import propagate

N, C = 2000, 10


def pool(n: int = N, seed: int = 0) -> tuple[Any, Any, Any]:
    """Points, their classes, and Y of the first rows."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(C), rng.integers(0, C, n - C)])
    x = rng.normal(size=(C, 24))[codes] + 1.5 * rng.normal(size=(n, 24))
    y = np.zeros((n, C))
    y[np.arange(50), codes[:50]] = 1
    return x, codes, y


def true_residual(graph: PoolGraph, y: Any, z: Any, alpha: float) -> Any:
    system = sparse.eye_array(graph.n) - alpha * graph.normalised.astype(np.float64)
    return np.linalg.norm(y - system @ z.astype(np.float64), axis=0) / np.linalg.norm(y, axis=0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equals_the_dense_engine(dtype: Any) -> None:
    x, codes, y = pool()
    batch = a2lp.TaskBatch(x[None, :50], codes[None, :50], x[None, 50:])
    expected = a2lp.create("lp").predict(batch).scores[0]
    found = propagate(neighbour_graph(x.astype(dtype)), y.astype(dtype))
    assert found.Z.dtype == dtype
    np.testing.assert_allclose(found.Z[50:], expected, atol=1e-5)


@pytest.mark.parametrize("alpha", [0, 0.5, 0.8, 0.99, 0.9999])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-12])
def test_the_residual_is_kept_and_told(alpha: float, tolerance: float) -> None:
    x, _, y = pool(400)
    graph = neighbour_graph(x)
    found = propagate(graph, y, alpha, tolerance=tolerance)
    assert (found.residual <= tolerance).all()
    np.testing.assert_allclose(found.residual, true_residual(graph, y, found.Z, alpha), rtol=1e-2, atol=1e-13)


def test_a_residual_that_float32_cannot_hold_is_refused() -> None:
    x, _, y = pool(400)
    with pytest.raises(InputError, match=r"float32 numbers reach a relative residual of .* Pass Y in float64"):
        propagate(neighbour_graph(x), y.astype(np.float32), 0.9999, tolerance=1e-9)


def test_a_warm_start_leaves_little_to_do_and_touches_nothing_of_the_callers() -> None:
    x, codes, y = pool()
    graph = neighbour_graph(x)
    before = propagate(graph, y)
    kept = before.Z.copy()
    assert propagate(graph, y, start=before.Z).iterations == 0
    more = y.copy()
    more[60, codes[60]] = 1
    warm, cold = propagate(graph, more, start=before.Z), propagate(graph, more)
    others = np.arange(C) != codes[60]
    np.testing.assert_array_equal(warm.Z[:, others], before.Z[:, others])
    np.testing.assert_allclose(warm.Z, cold.Z, atol=1e-5)
    assert warm.iterations <= cold.iterations
    np.testing.assert_array_equal(before.Z, kept)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-3), (np.float64, 1e-6)])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_class_does_not_depend_on_the_others_or_on_cores(
    dtype: Any, tolerance: float, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many blocks of rows and more than one of columns, most of which are done before others."""
    if ordered:
        monkeypatch.setattr(module_graph, "_ORDERED", 0)
    monkeypatch.setattr(conjugate, "_SHORT", 0)
    monkeypatch.setattr(module, "_WHOLE", 0 if ordered else 50_000)
    x, _, y = pool(6000)
    graph = neighbour_graph(x.astype(dtype), 6)
    y = np.concatenate([y, y + np.random.default_rng(0).random((6000, C)), np.eye(6000)[:, :25]], axis=1).astype(dtype)
    answers = []
    for n_cores in (1, 2, 8):
        monkeypatch.setenv("A2LP_CORES", str(n_cores))
        answers.append(propagate(graph, y, tolerance=tolerance).Z)
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])
    for column in (0, C, -1):
        one = y[:, [column]]
        np.testing.assert_array_equal(propagate(graph, one, tolerance=tolerance).Z[:, 0], answers[0][:, column])


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_float32_keeps_the_residual_that_it_tells(tolerance: float) -> None:
    x, _, y = pool(5000)
    graph = neighbour_graph(x.astype(np.float32))
    for start in (None, np.full_like(y, 0.3)):
        found = propagate(graph, y.astype(np.float32), 0.8, tolerance=tolerance, start=start)
        assert found.Z.dtype == np.float32
        true = true_residual(graph, y, found.Z, 0.8)
        assert (true <= tolerance).all()
        np.testing.assert_allclose(found.residual, true, rtol=1e-2)


@pytest.mark.parametrize("ordered", [False, True])
def test_one_point_among_many_counts(ordered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its change is within the tolerance of all points together."""
    if ordered:
        monkeypatch.setattr(module_graph, "_ORDERED", 0)
    x, codes, _ = pool(5000)
    graph = neighbour_graph(x.astype(np.float32))
    y = np.full((5000, C), 0.6, np.float32)
    start = propagate(graph, y, 0.5, tolerance=1e-4).Z
    y[70, codes[70]] += 1
    exact = propagate(graph, y, 0.5, tolerance=1e-4).Z
    lost = propagate(graph, y, 0.5, tolerance=3e-2, start=start)
    found = propagate(graph, y, 0.5, tolerance=3e-2, start=start, largest=0.01)
    assert lost.iterations == found.iterations == 0
    np.testing.assert_array_equal(lost.Z, start)
    assert np.abs(found.Z - exact).max() < 0.02 and np.abs(start - exact).max() > 0.5


def test_the_order_of_rows_is_a_matter_of_speed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _, y = pool(3000)
    expected = propagate(neighbour_graph(x), y, tolerance=1e-10).Z
    monkeypatch.setattr(module_graph, "_ORDERED", 0)
    graph = neighbour_graph(x)
    assert sorted(graph.system.order) == list(range(3000))
    np.testing.assert_allclose(propagate(graph, y, tolerance=1e-10).Z, expected, atol=1e-9)


def test_groups_of_a_graph_are_together_in_memory() -> None:
    n, groups = 60_000, 6
    rng = np.random.default_rng(0)
    group = rng.permutation(n) % groups
    members = [np.flatnonzero(group == g) for g in range(groups)]
    ends = np.stack([members[g][rng.integers(0, len(members[g]), 10)] for g in group])
    ends[:, 0] = rng.integers(0, n, n)  # of any group
    ends[-5:] = np.arange(n)[-5:, None]  # and some points with hardly an edge
    graph = from_sparse(sparse.csr_array((np.ones(10 * n), ends.ravel(), np.arange(0, 10 * n + 1, 10)), shape=(n, n)))
    along = group[graph.system.order]
    assert (np.diff(along) != 0).sum() < 0.05 * n  # 0.83 n in the order of the points


def test_classes_without_labels_and_isolated_points() -> None:
    graph = from_sparse(np.array([[0, 1.0, 0], [1, 0, 0], [0, 0, 0]]))
    found = propagate(graph, np.array([[1.0, 0], [0, 0], [0, 0]]), start=np.ones((3, 2)))
    np.testing.assert_allclose(found.Z[:, 0], [1 / 0.36, 0.8 / 0.36, 0], atol=1e-5)
    np.testing.assert_array_equal(found.Z[:, 1], 0)
    np.testing.assert_array_equal(found.residual[1], 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Y": np.ones((3, 2))}, r"Y has shape \(3, 2\); the graph has 4 points"),
        ({"Y": np.full((4, 2), np.nan)}, "Y must hold finite numbers"),
        ({"alpha": 1}, "alpha=1 must be at least 0 and below 1"),
        ({"tolerance": 0}, "tolerance=0 must be between 0 and 1"),
        ({"start": np.ones((4, 3))}, r"start has shape \(4, 3\) and Y \(4, 2\)"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"Y": np.ones((4, 2))} | change
    with pytest.raises(InputError, match=message):
        propagate(from_sparse(np.ones((4, 4))), **arguments)
