"""Lists of neighbours that grow and shrink with the pool, against those of a new search."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

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
