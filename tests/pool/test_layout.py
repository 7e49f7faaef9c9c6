"""The map: near in the graph is near on it, for any graph, and always the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors

from a2lp.features import load
from a2lp.pool.graph import PoolGraph, from_sparse, neighbour_graph
from a2lp.pool.layout import edge_strengths, layout
from a2lp.pool.prepare import whitened_graph


def purity(places: np.ndarray, classes: np.ndarray) -> float:
    """The share of each point's ten nearest that are of its class."""
    near = NearestNeighbors(n_neighbors=10).fit(places).kneighbors(return_distance=False)
    return float((classes[near] == classes[:, None]).mean())


@pytest.fixture(scope="module")
def digits() -> tuple[PoolGraph, np.ndarray]:
    found = load("digits")
    assert found.labels is not None
    return whitened_graph(found.features)[2], found.labels


def test_digits_lie_apart(digits: tuple[PoolGraph, np.ndarray]) -> None:
    graph, classes = digits
    rounds: list[tuple[int, int]] = []
    places = layout(graph, seed=3, progress=lambda *what: rounds.append(what))
    assert places.shape == (1797, 2)
    assert places.min() >= 0 and places.max() <= 1
    assert purity(places, classes) > 0.96
    assert silhouette_score(places, classes) > 0.5
    scattered = np.random.default_rng(0).permutation(places)
    assert purity(scattered, classes) < 0.2 and silhouette_score(scattered, classes) < 0.1  # the scores can fail
    assert rounds[-1][0] == rounds[-1][1] == len(rounds)
    np.testing.assert_array_equal(places, layout(graph, seed=3))
    assert not np.array_equal(places, layout(graph, seed=4))


def test_strengths_are_those_of_dense_matrices() -> None:
    x = np.random.default_rng(1).normal(size=(30, 5))
    graph = neighbour_graph(x, 6)
    m = graph.normalised.toarray() + 0.1 * np.eye(30)
    two = m @ m
    alike = two / np.sqrt(np.outer(np.diag(two), np.diag(two)))
    alike[graph.weights.toarray() == 0] = 0
    share = (alike / alike.max(axis=1, keepdims=True)) ** 2
    expected = 1 - (1 - share) * (1 - share.T)
    rows = np.repeat(np.arange(30), np.diff(graph.weights.indptr))
    np.testing.assert_allclose(edge_strengths(graph), expected[rows, graph.weights.indices], rtol=1e-6)


@given(st.integers(1, 12), st.data())
def test_any_graph(n: int, data: st.DataObject) -> None:
    edges = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20))
    weights = np.zeros((n, n))
    for one, other in edges:
        weights[one, other] = data.draw(st.sampled_from([1e-30, 1.0, 1e30]))
    places = layout(from_sparse(weights))
    assert places.shape == (n, 2)
    assert np.isfinite(places).all() and places.min() >= 0 and places.max() <= 1


def test_points_without_edges_are_around_the_others() -> None:
    weights = np.zeros((40, 40))
    weights[:30, :30] = 1
    places = layout(from_sparse(weights))
    middle = places[:30].mean(axis=0)
    distance = np.linalg.norm(places - middle, axis=1)
    assert distance[30:].min() > distance[:30].max()
