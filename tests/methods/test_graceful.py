"""Tasks at the edge: every engine gives a defined answer, and the same one."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import a2lp
from a2lp.arrays import to_numpy

ENGINES = {
    "reference": ("reference", np.asarray),
    "batched": ("batched", np.asarray),
    "batched-torch": ("batched", torch.asarray),
    "fused_cpu": ("fused_cpu", np.asarray),
}
METHODS: dict[str, dict[str, Any]] = {"lp": {}, "a2lp": {"steps": 12, "lr": 0.01, "tau": 5.0}}

every_engine = pytest.mark.parametrize("engine", ENGINES)
every_method = pytest.mark.parametrize("method", METHODS)


class Task(NamedTuple):
    """One task; vectors of whole numbers whose lengths are powers of two are exact after l2 in any arithmetic."""

    support: Any
    labels: list[Any]
    query: Any
    n_neighbors: int = 3
    preprocess: str = "l2"


def solve(engine: str, method: str, task: Task, dtype: Any = np.float64, **params: Any) -> a2lp.Prediction:
    name, convert = ENGINES[engine]
    arrays = [convert(np.asarray(x, dtype)[None]) for x in (task.support, task.query)]
    batch = a2lp.TaskBatch(arrays[0], [task.labels], arrays[1])
    params = METHODS[method] | {"n_neighbors": task.n_neighbors, "preprocess": task.preprocess} | params
    return a2lp.create(method, engine=name, **params).predict(batch)


def vectors(task: Task) -> np.ndarray:
    """The points as the graph sees them."""
    points = np.concatenate([task.support, task.query]).astype(np.float64)
    if task.preprocess == "plc":
        points = np.where(points < 0, -1, 1) * np.sqrt(np.abs(points) + 1e-6)
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
        points = points - points.mean(axis=0)
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.where(lengths > 0, lengths, 1)


def plain_lp(task: Task, alpha: float = 0.8, later_first: bool = False) -> np.ndarray:
    """Z of the queries by the definition; of equal neighbours the earlier is kept, or the later."""
    V = vectors(task)
    n, s = len(V), len(task.support)
    k = min(task.n_neighbors, n - 1)
    A = np.zeros((n, n))
    for i in range(n):
        similarity = {j: max(float(np.sum(V[i] * V[j])), 0.0) for j in range(n) if j != i}
        for j in sorted(similarity, key=lambda j: (-similarity[j], -j if later_first else j))[:k]:
            A[i, j] = similarity[j] ** 3
    W = (A + A.T) / 2
    D = W.sum(axis=1) + 1e-12
    S = W / np.sqrt(np.outer(D, D))
    classes = sorted(set(task.labels))
    Y = np.zeros((n, len(classes)))
    Y[np.arange(s), [classes.index(label) for label in task.labels]] = 1
    return np.linalg.solve(np.eye(n) - alpha * S, Y)[s:]


def nearest_labels(task: Task) -> list[Any]:
    """The label of each query's nearest support vector, the first of equals."""
    V, s = vectors(task), len(task.support)
    return [task.labels[int(np.argmax([np.sum(v * w) for w in V[:s]]))] for v in V[s:]]


rng = np.random.default_rng(0)
FAR = [[0, 0, 1, 0], [0, 0, 0, 1]]  # at right angles to the first two axes
TASKS: dict[str, Task] = {
    "a query alone": Task([[1, 0, 0], [0, 1, 0]], ["b", "a"], [[3, 1, 0], [0, 0, 2], [1, 3, 0]]),
    "an opposite query": Task([[1, 0], [0, 1]], [7, 3], [[-1, -2], [-2, -1], [2, 1]]),
    "queries that see only each other": Task(
        [[1, 0, 0, 0], [0, 1, 0, 0]], [1, 0], [[0, 0, 1, 2], [0, 0, 2, 1], [2, 1, 0, 0], [0, -1, 3, 1]]
    ),
    "a support vector alone": Task([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [2, 0, 1], [[2, 1, 0], [1, 2, 0]]),
    "all support vectors alone": Task([[-1, 0, 0], [0, -1, 0]], [1, 0], [[3, 1, 1], [1, 5, 1]]),
    "a query barely in sight": Task([[1, 0, 0], [0, 0, 1]], [1, 0], [[1, 300, 0], [8, 0, 1]]),
    "cosines all negative": Task([[2, 0], [-1, 2]], [5, 4], [[-1, -2]], 2),
    "cosines all negative, centred": Task([[9, 1, 1], [1, 9, 1]], [5, 4], [[1, 1, 9]], 2, "plc"),
    "centred": Task(rng.random((5, 6)), [1, 0, 2, 2, 1], rng.random((9, 6)), 4, "plc"),
    "support among the queries": Task([[2, 0, 0], [0, 2, 0]], [1, 0], [[2, 0, 0], [0, 2, 0], [0, 2, 0]], 2),
    "a support vector twice, under two labels": Task([[1, 0], [1, 0], [0, 1]], [1, 0, 1], [[1, 0], [3, 4]], 2),
    "all points equal": Task([[2, 0], [2, 0], [2, 0]], [1, 0, 0], [[2, 0], [2, 0]], 2),
    "zero support": Task([[0, 0], [0, 1], [1, 0]], [0, 2, 1], [[3, 4], [4, 3]]),
    "zero query": Task([[1, 0], [0, 1]], [1, 0], [[0, 0], [3, 4]]),
    "all zero": Task(np.zeros((2, 3)), [1, 0], np.zeros((3, 3))),
    "only the support is not zero": Task([[3, 4], [4, 3]], [1, 0], np.zeros((2, 2))),
    "one class": Task(rng.random((3, 4)), ["x", "x", "x"], rng.random((6, 4))),
    "one class, out of sight": Task([[1, 0]], ["x"], [[-1, 0]], 1),
    "one query": Task(rng.random((4, 5)), [0, 1, 1, 2], rng.random((1, 5))),
    "one support vector, one query": Task([[1, 2]], [4], [[2, 1]], 1),
    "one dimension": Task([[2], [-3], [1]], [1, 0, 0], [[5], [-1], [0], [4]], 2),
    "one neighbour": Task(rng.random((3, 4)), [2, 1, 0], rng.random((7, 4)), 1),
    "every neighbour": Task(rng.random((3, 4)), [2, 1, 0], rng.random((7, 4)), 9),
    "two ways": Task(rng.random((7, 9)), [1, 1, 0, 1, 1, 1, 1], rng.random((11, 9))),
    "twenty ways, unequal shots": Task(
        rng.random((27, 9)), [*range(19, -1, -1), 3, 3, 3, 19, 0, 7, 3], rng.random((20, 9)), 8
    ),
}
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


@every_engine
@every_method
@every_task
def test_answers_are_defined(task: Task, method: str, engine: str) -> None:
    found = solve(engine, method, task)
    scores, probabilities = to_numpy(found.scores)[0], to_numpy(found.probabilities)[0]
    assert np.isfinite(scores).all() and np.isfinite(probabilities).all()
    assert np.isfinite(to_numpy(found.anchors)).all() and np.isfinite(to_numpy(found.losses)).all()
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1, rtol=1e-12)
    if method == "lp":
        np.testing.assert_allclose(scores, plain_lp(task), rtol=0, atol=1e-9)
    reached = to_numpy(found.reached)[0]
    np.testing.assert_array_equal(reached, scores.max(axis=-1) > 0)
    for row, (query_reached, label) in enumerate(zip(reached, found.labels[0], strict=True)):
        if query_reached:
            assert label == sorted(set(task.labels))[int(scores[row].argmax())]
        else:
            np.testing.assert_array_equal(scores[row], 0)
            np.testing.assert_array_equal(probabilities[row], 1 / len(set(task.labels)))
            assert label == nearest_labels(task)[row]


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "reference"])
@every_task
def test_adapted_answers_are_the_references(task: Task, engine: str) -> None:
    expected, found = solve("reference", "a2lp", task), solve(engine, "a2lp", task)
    np.testing.assert_allclose(to_numpy(found.scores), expected.scores, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(to_numpy(found.labels), expected.labels)
    np.testing.assert_array_equal(to_numpy(found.reached), expected.reached)


@every_engine
@every_method
def test_which_queries_are_reached(method: str, engine: str) -> None:
    """By hand: reached are those with a path of positive similarities to a label, whatever their own neighbours."""
    reached = {
        "a query alone": [True, False, True],
        "an opposite query": [False, False, True],
        "queries that see only each other": [False, False, True, False],
        "all support vectors alone": [False, False],
        "a query barely in sight": [True, True],
        "cosines all negative": [False],
        "zero query": [False, True],
        "all zero": [False] * 3,
        "one class, out of sight": [False],
        "all points equal": [True, True],
        "one dimension": [True, True, False, True],
    }
    for name, expected in reached.items():
        assert to_numpy(solve(engine, method, TASKS[name]).reached)[0].tolist() == expected, name
    opposite = solve(engine, method, TASKS["an opposite query"])
    assert to_numpy(opposite.labels)[0].tolist() == [7, 3, 7]  # (-1, -2) is nearer to (1, 0), the first support vector
    assert to_numpy(solve(engine, method, TASKS["one class, out of sight"]).labels).tolist() == [["x"]]


@every_engine
@every_method
@pytest.mark.parametrize("k", [9, 1000])
def test_too_many_neighbours_are_all_neighbours_with_one_warning(
    k: int, method: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from a2lp.methods import base

    monkeypatch.setattr(base, "_block_size", lambda batch: 1)  # a block for each task: the warning is still one
    name, convert = ENGINES[engine]
    generator = np.random.default_rng(1)
    batch = a2lp.TaskBatch(convert(generator.random((3, 3, 4))), [[1, 0, 2]] * 3, convert(generator.random((3, 6, 4))))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = a2lp.create(method, engine=name, n_neighbors=k, **METHODS[method]).predict(batch)
    assert [w.category for w in caught] == [a2lp.A2LPWarning]
    for words in (f"n_neighbors={k}", "9 points", "using 8"):
        assert words in str(caught[0].message)
    assert caught[0].filename == __file__, "the warning should point at the caller's line"
    expected = a2lp.create(method, engine=name, n_neighbors=8, **METHODS[method]).predict(batch)
    np.testing.assert_array_equal(to_numpy(found.scores), to_numpy(expected.scores))


def tied_task(seed: int) -> Task:
    """Four ones among 16 entries: unit vectors of halves, inner products in quarters, so many exact ties.

    Support labels are in no order, since an engine may keep its points in another order than the caller's.
    """
    generator = np.random.default_rng(seed)
    points = np.zeros((24, 16))
    for row in points:
        row[generator.choice(16, 4, replace=False)] = 1
    return Task(points[:9], [2, 0, 1, 2, 1, 1, 0, 2, 0], points[9:], int(generator.integers(1, 12)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@every_engine
@pytest.mark.parametrize("seed", range(6))
def test_ties_go_to_the_lower_index(seed: int, engine: str, dtype: Any) -> None:
    task = tied_task(seed)
    expected = plain_lp(task)
    assert np.abs(expected - plain_lp(task, later_first=True)).max() > 0.01, "the rule should matter here"
    found = solve(engine, "lp", task, dtype)
    np.testing.assert_allclose(to_numpy(found.scores)[0], expected, rtol=0, atol=1e-9 if dtype == np.float64 else 1e-5)


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "reference"])
@pytest.mark.parametrize("seed", range(6))
def test_ties_stay_the_same_while_anchors_move(seed: int, engine: str) -> None:
    task = tied_task(seed)
    expected = solve("reference", "a2lp", task, optimizer="gd", lr=0.5)
    found = solve(engine, "a2lp", task, optimizer="gd", lr=0.5)
    assert np.abs(expected.anchors - vectors(task)[:9]).max() > 1e-3
    np.testing.assert_allclose(to_numpy(found.scores), expected.scores, rtol=0, atol=1e-9)


@every_engine
@pytest.mark.parametrize("seed", range(6))
def test_equal_points_are_ties_whatever_their_numbers(seed: int, engine: str) -> None:
    """Copies of a point are equally similar to a third; rounding in a matrix product must not choose between them."""
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(30, 64)) + 1
    points[generator.integers(0, 30, 12)] = points[generator.integers(0, 30, 12)]
    task = Task(points[:8], [1, 0, 2, 2, 0, 1, 1, 0], points[8:], 5)
    found = solve(engine, "lp", task)
    np.testing.assert_allclose(to_numpy(found.scores)[0], plain_lp(task), rtol=0, atol=1e-9)


@every_engine
@every_method
def test_float16_is_its_numbers_in_float32(method: str, engine: str) -> None:
    generator = np.random.default_rng(2)
    support, query = (generator.random(shape).astype(np.float16) for shape in ((5, 8), (12, 8)))
    half = Task(support, [0, 1, 2, 1, 0], query, 4)
    found = solve(engine, method, half, np.float16)
    np.testing.assert_array_equal(to_numpy(found.scores), to_numpy(solve(engine, method, half, np.float32).scores))
    exact = solve("reference", method, half)
    np.testing.assert_allclose(to_numpy(found.scores), exact.scores, rtol=0, atol=1e-4)


@every_engine
@every_method
@pytest.mark.parametrize("preprocess", ["l2", "none"])
@pytest.mark.parametrize("size", [1e20, 1e-20, 1e-25])
def test_only_directions_count_whatever_the_size_in_float32(
    size: float, preprocess: str, method: str, engine: str
) -> None:
    generator = np.random.default_rng(3)
    plain = Task(generator.random((4, 6)), [0, 1, 1, 0], generator.random((9, 6)), 4, preprocess)
    scaled = plain._replace(support=plain.support * size, query=plain.query * size)
    expected, found = solve(engine, method, plain), solve(engine, method, scaled, np.float32)
    np.testing.assert_allclose(to_numpy(found.scores), to_numpy(expected.scores), rtol=0, atol=1e-4)


HARD_FOR_FLOAT32: dict[str, dict[str, Any]] = {
    "alpha next to one": {"alpha": 1 - 1e-9},
    "steps out of all proportion": {"lr": 1e6},
    "descent out of all proportion": {"optimizer": "gd", "lr": 1e30},
}


@every_engine
@pytest.mark.parametrize("params", HARD_FOR_FLOAT32.values(), ids=HARD_FOR_FLOAT32)
@pytest.mark.filterwarnings("ignore:overflow|invalid value:RuntimeWarning")
def test_what_float32_cannot_hold_is_an_error_and_never_nan(engine: str, params: dict[str, Any]) -> None:
    generator = np.random.default_rng(4)
    task = Task(generator.normal(size=(4, 6)), [1, 0, 0, 1], generator.normal(size=(9, 6)), 4)
    try:
        found = solve(engine, "a2lp", task, np.float32, **params)
    except a2lp.A2LPError as error:
        assert any(name in str(error) for name in params)
    else:
        assert np.isfinite(to_numpy(found.scores)).all() and np.isfinite(to_numpy(found.probabilities)).all()
