"""Lists of neighbours that grow and shrink with the pool, against those of a new search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from a2lp import Pool
from a2lp.errors import InputError
from a2lp.pool.graph import neighbour_graph
from a2lp.pool.growth import extended, without
from a2lp.pool.neighbours import Lists, search


def points(n: int, seed: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(n, 6)).astype(dtype)


def assert_equal(found: Lists, expected: Lists) -> None:
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.similarities, expected.similarities, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(20, 300), st.integers(1, 60), st.sampled_from([np.float32, np.float64]))
def test_new_points_are_neighbours_as_if_they_had_always_been_there(seed: int, n: int, more: int, dtype: Any) -> None:
    x = points(n + more, seed, dtype)
    assert_equal(extended(x, search(x[:n], 9)), search(x, 9))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 0.6))
def test_lists_without_some_points(seed: int, share: float) -> None:
    x = points(200, seed)
    kept = np.random.default_rng(seed).random(200) >= share
    found, shorter = without(search(x, 12), kept)
    expected = search(x[kept], 12)
    full = ~shorter
    np.testing.assert_array_equal(found.indices[full], expected.indices[full])
    # the others are right as far as they go
    for row in np.flatnonzero(shorter):
        count = int((found.indices[row] < kept.sum()).sum())
        np.testing.assert_array_equal(found.indices[row, :count], expected.indices[row, :count])


def test_grown_by_cells_keeps_the_recall() -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(20, 16))[rng.integers(0, 20, 6000)] + rng.normal(size=(6000, 16))).astype(np.float32)
    grown, exact = extended(x, search(x[:5000], 20, "cells")), search(x, 20)
    recall = np.mean([len(np.intersect1d(a, b)) / 20 for a, b in zip(grown.indices, exact.indices, strict=True)])
    assert recall > 0.98
    np.testing.assert_array_equal(grown.indices[5000:], exact.indices[5000:])  # new points are compared with all


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    found = load_digits(return_X_y=True)
    return found[0][:900].astype(np.float32), found[1][:900]


def test_points_that_arrive_later_are_as_if_they_had_been_there(digits: Any) -> None:
    x, truth = digits
    pool = Pool(x[:600], [*truth[:50], *[-1] * 550])
    first = pool.answer.labels
    pool.add(x[600:890], [*truth[600:605], *[-1] * 285])
    pool.add(x[890:])
    assert len(pool) == 900 and pool.given.sum() == 55
    expected = neighbour_graph(pool.points)
    assert abs(pool.graph.weights - expected.weights).max() < 1e-6
    labels = pool.answer.labels
    assert (labels[:600] == first).mean() > 0.95
    # the whitening alone is another one
    fresh = Pool(x, pool.labels).answer.labels
    assert (labels == truth).mean() == pytest.approx((fresh == truth).mean(), abs=0.03)
    assert pool.suggest(5).rows.max() < 900 and pool.assessment.high <= 1
    with pytest.raises(InputError, match="no change of labels to undo"):
        pool.undo()


def test_points_that_leave(digits: Any) -> None:
    x, truth = digits
    pool = Pool(x, np.where(np.arange(900) < 60, truth, -1))
    _ = pool.answer
    gone = np.random.default_rng(0).choice(900, 300, replace=False)
    pool.remove(gone)
    kept = np.delete(np.arange(900), gone)
    assert len(pool) == 600
    assert abs(pool.graph.weights - neighbour_graph(pool.points).weights).max() < 1e-6
    expected = np.where(kept < 60, truth[kept], -1)
    assert [-1 if one is None else one for one in pool.labels] == expected.tolist()
    fresh = Pool(x[kept], expected).answer.labels
    assert (pool.answer.labels == truth[kept]).mean() == pytest.approx((fresh == truth[kept]).mean(), abs=0.04)


def test_what_cannot_change(digits: Any) -> None:
    x, truth = digits
    pool = Pool(x[:60], truth[:60])
    with pytest.raises(InputError, match="5 points would remain"):
        pool.remove(slice(5, None))
    with pytest.raises(InputError, match="rows=60 must be positions"):
        pool.remove(60)
    with pytest.raises(InputError, match="9 dimensions, and the whitening was estimated on 64"):
        pool.add(np.ones((2, 9)))
    with pytest.raises(InputError, match="or was made from a graph"):
        Pool(pool.graph).add(x[60:])
    assert len(pool) == 60 and pool.given.all()
