"""The sparse graph against the dense one, and the graphs that callers bring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from a2lp.errors import A2LPWarning, InputError
from a2lp.graph import affinity, normalise
from a2lp.pool import neighbours
from a2lp.pool.cells import search_cells
from a2lp.pool.graph import from_distances, from_sparse, neighbour_graph
from a2lp.preprocess import l2


def clusters(n: int, d: int = 24, c: int = 10, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(c, d))[rng.integers(0, c, n)] + 1.5 * rng.normal(size=(n, d))


def dense(x: np.ndarray[Any, Any], k: int = 20, gamma: float = 3) -> np.ndarray[Any, Any]:
    """The graph as the engines make it."""
    return np.asarray(affinity(l2(x)[None], k, gamma)[0])


@pytest.mark.parametrize("gamma", [3, 1.5])
@pytest.mark.parametrize("n", [30, 700, 2500])
def test_equals_the_dense_graph(n: int, gamma: float) -> None:
    x = clusters(n)
    found = neighbour_graph(x, 20, gamma)
    expected = dense(x, 20, gamma)
    np.testing.assert_allclose(found.weights.toarray(), expected, atol=1e-13)
    np.testing.assert_allclose(found.normalised.toarray(), np.asarray(normalise(expected)), atol=1e-10)
    np.testing.assert_allclose(found.degree, expected.sum(axis=1), atol=1e-12)
    assert found.n == n
    assert found.weights.has_canonical_format
    assert abs(found.weights - found.weights.T).max() == 0


def test_half_precision_from_a_memory_map_in_several_tiles(tmp_path: Path) -> None:
    x = clusters(3000).astype(np.float16)
    np.save(tmp_path / "x.npy", x)
    told: list[tuple[int, int]] = []
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = neighbour_graph(mapped, progress=lambda done, of: told.append((done, of)))
    expected = dense(x.astype(np.float64))
    assert found.weights.dtype == np.float32
    # float32 may swap two neighbours at the k-th place
    assert (abs(found.weights.toarray() - expected) > 1e-5).sum() <= 8
    assert told[-1] == (told[-1][1], told[-1][1]) and told == sorted(told)


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 60), st.sampled_from([np.float32, np.float64]))
@settings(max_examples=60, deadline=None)
def test_ties_go_to_the_lower_row_as_in_the_dense_graph(seed: int, k: int, n: int, dtype: Any) -> None:
    """Few directions, many points of each, whose cosines differ by rounding: more ties than a list can hold."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(1, 3, (3, 6))[rng.integers(0, 3, n)] * rng.uniform(0.5, 2, (n, 1))
    x = x.astype(dtype)
    k = min(k, n - 1)
    np.testing.assert_allclose(neighbour_graph(x, k).weights.toarray(), dense(x, k), atol=1e-6)


def test_nothing_depends_on_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    x = clusters(900).astype(np.float32)
    before = neighbour_graph(x).weights
    monkeypatch.setattr(neighbours, "map_on_cores", lambda function, items: [function(item) for item in items])
    after = neighbour_graph(x).weights
    assert (before.data == after.data).all() and (before.indices == after.indices).all()


def test_isolated_points_and_paths() -> None:
    x = np.array([[1.0, 0, 0], [1, 0.1, 0], [0, -1, 1], [0, -1, 1.1], [0, 0, 0]])
    graph = neighbour_graph(x, 2)
    assert graph.reached(np.arange(5) == 0).tolist() == [True, True, False, False, False]
    assert graph.reached(np.arange(5) > 2).tolist() == [False, False, True, True, True]
    assert np.isfinite(graph.normalised.toarray()).all() and graph.degree[4] == 0


def test_nearest_among_other_points() -> None:
    x, queries = clusters(500), clusters(40, seed=1)
    index, cosine = neighbours.nearest(queries, x, 3)
    all_cosines = l2(queries) @ l2(x).T
    np.testing.assert_array_equal(index, np.argsort(-all_cosines, axis=1)[:, :3])
    np.testing.assert_allclose(cosine, np.take_along_axis(all_cosines, index, axis=1), atol=1e-12)
    away, opposite = neighbours.nearest(-x[:1], x[:1], 3)
    assert away.tolist() == [[0]] and opposite == pytest.approx(-1)  # negative cosines count


def test_neighbours_that_the_caller_found_give_the_same_graph() -> None:
    x = clusters(300)
    cosines = l2(x) @ l2(x).T
    with_itself = np.argsort(-cosines, axis=1)[:, :21]
    found = from_distances(with_itself, np.take_along_axis(cosines, with_itself, axis=1))
    np.testing.assert_allclose(found.weights.toarray(), dense(x), atol=1e-13)
    padded = from_distances([[1, -1], [0, 2], [1, -1]], np.array([[0.5, 9.0], [0.5, -0.1], [0.2, 9.0]]), gamma=1)
    np.testing.assert_allclose(padded.weights.toarray(), [[0, 0.5, 0], [0.5, 0, 0.1], [0, 0.1, 0]])


def test_a_matrix_of_the_caller_is_made_symmetric_and_not_changed() -> None:
    given_graph = sparse.csr_array(np.array([[5.0, 2, 0], [0, 1, 0], [4, 0, 0]]))
    before = given_graph.toarray()
    np.testing.assert_allclose(from_sparse(given_graph).weights.toarray(), [[0, 1, 2], [1, 0, 0], [2, 0, 0]])
    np.testing.assert_array_equal(given_graph.toarray(), before)
    # of any scale: an offset on the degrees would cut all edges here
    np.testing.assert_allclose(
        from_sparse(1e-20 * given_graph).normalised.toarray(), from_sparse(given_graph).normalised.toarray()
    )


@pytest.fixture(scope="module")
def many() -> np.ndarray[Any, Any]:
    return clusters(9000, 16).astype(np.float32)


def test_cells_find_nearly_all_neighbours(many: Any) -> None:
    found, expected = neighbour_graph(many, method="cells").weights, neighbour_graph(many).weights
    assert (found > 0).multiply(expected > 0).sum() > 0.98 * expected.nnz
    common = found.multiply(expected > 0) - expected.multiply(found > 0)
    assert abs(common).max() < 0.51 * expected.max()  # half of it where one of two points lacks the other


def test_neighbours_of_neighbours_are_worth_their_time(many: Any) -> None:
    expected = neighbours.search(many, 20).indices

    def recall(joins: int) -> float:
        found = search_cells(many, 28, lambda done, of: None, joins).indices[:, :20]
        return float(np.mean([len(np.intersect1d(a, b)) / 20 for a, b in zip(found, expected, strict=True)]))

    assert recall(0) < 0.9 and recall(3) > 0.99


def test_cells_do_not_depend_on_the_number_of_cores(many: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    for n_cores in (1, 4):
        monkeypatch.setenv("A2LP_CORES", str(n_cores))
        told: list[tuple[int, int]] = []
        answers.append(search_cells(many, 12, lambda done, of, told=told: told.append((done, of))))
        assert told[-1][0] == told[-1][1] and told == sorted(told)
    np.testing.assert_array_equal(answers[0].indices, answers[1].indices)
    np.testing.assert_array_equal(answers[0].similarities, answers[1].similarities)


def test_cells_of_few_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """More equal points than a cell should hold, and cells that hold none."""
    x = np.repeat(np.eye(5) + 0.1, 80, axis=0)
    found = neighbour_graph(x, 10, method="cells")
    parts = np.repeat(np.arange(5), 80)
    rows, columns = found.weights.nonzero()
    assert found.weights.nnz and (parts[rows] == parts[columns]).all()


def test_too_many_neighbours_are_cut_with_a_warning() -> None:
    with pytest.warns(A2LPWarning, match="using 4"):
        assert neighbour_graph(clusters(5), 20).weights.shape == (5, 5)


NAN = np.where(np.arange(12).reshape(6, 2) == 7, np.nan, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: neighbour_graph(np.ones(3)), r"shape \(3,\).*must be \(n, d\)"),
        (lambda: neighbour_graph(NAN, 2), "row 3 of the points holds nan"),
        (lambda: neighbour_graph(np.array([["a"]])), "must hold float16"),
        (lambda: neighbour_graph(np.ones((1, 2))), "at least two points"),
        (lambda: neighbour_graph(np.ones((3, 2)), 0), "n_neighbors=0 must be a whole number"),
        (lambda: neighbour_graph(np.ones((3, 2)), 1, gamma=0), "gamma=0 must be positive"),
        (lambda: neighbour_graph(np.ones((3, 2)), 1, method="flas"), "unknown method 'flas'"),
        (lambda: from_distances([[1], [0]], np.ones((2, 2))), r"both must be \(n, k\)"),
        (lambda: from_distances([[1], [2]], np.ones((2, 1))), "from 1 to 2"),
        (lambda: from_distances([[1], [0]], np.full((2, 1), np.nan)), "finite"),
        (lambda: from_distances([[1, -1], [0, 0]], np.ones((2, 2))), "row 1 of indices names a neighbour twice"),
        (lambda: from_sparse(np.ones((2, 3))), r"shape \(2, 3\)"),
        (lambda: from_sparse(-np.eye(2)), "from -1 to -1"),
        (lambda: from_sparse(np.full((2, 2), np.inf)), "must be finite"),
    ],
)
def test_bad_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
