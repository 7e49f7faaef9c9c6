"""The graph against plain loops over points."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from a2lp.arrays import kth_largest, namespace, to_numpy
from a2lp.graph import affinity, neighbours, normalise, similarities

LIBRARIES = {"numpy": np.asarray, "torch": torch.asarray, "array_api_strict": array_api_strict.asarray}

SIZES = st.fixed_dictionaries(
    {
        "b": st.integers(1, 3),
        "n": st.integers(2, 9),
        "d": st.integers(1, 4),
        "near": st.floats(0, 1),
        "gamma": st.sampled_from([1, 3, 2.5]),
        "seed": st.integers(0, 2**32 - 1),
    }
)


def plain_affinity(points: list[list[float]], k: int, gamma: float) -> np.ndarray:
    """Eq. 1 for one task: each point keeps its k most similar others, the earlier one where two are equal."""
    n = len(points)
    A = np.zeros((n, n))
    for i in range(n):
        similarity = {j: sum(x * y for x, y in zip(points[i], points[j], strict=True)) for j in range(n) if j != i}
        for j in sorted(similarity, key=lambda j: (-max(similarity[j], 0.0), j))[:k]:
            A[i, j] = max(similarity[j], 0.0) ** gamma
    return (A + A.T) / 2


def grid_points(size: dict[str, Any]) -> tuple[np.ndarray, int]:
    """Small whole numbers: inner products are exact, so there are ties and every library sees the same ones."""
    rng = np.random.default_rng(size["seed"])
    points = rng.integers(-2, 3, (size["b"], size["n"], size["d"])).astype(np.float64)
    return points, 1 + round(size["near"] * (size["n"] - 2))


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=50, deadline=None)
@given(size=SIZES)
def test_affinity_is_the_plain_loop_ties_included(library: str, size: dict[str, Any]) -> None:
    points, k = grid_points(size)
    found = affinity(LIBRARIES[library](points), k, size["gamma"])
    assert namespace(found) is namespace(LIBRARIES[library](points))
    expected = [plain_affinity(task, k, size["gamma"]) for task in points.tolist()]
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=50, deadline=None)
@given(size=SIZES)
def test_every_point_keeps_exactly_k_others(library: str, size: dict[str, Any]) -> None:
    points, k = grid_points(size)
    sim = similarities(LIBRARIES[library](points))
    chosen = neighbours(sim, k)
    given_threshold = neighbours(sim, k, kth_largest(sim, k))
    np.testing.assert_array_equal(to_numpy(chosen), to_numpy(given_threshold))
    chosen = to_numpy(chosen)
    assert (chosen.sum(axis=-1) == k).all()
    assert not np.einsum("bii->bi", chosen).any(), "a point is no neighbour of its own"
    np.testing.assert_array_equal(np.einsum("bii->bi", to_numpy(sim)), -1)


@pytest.mark.parametrize("library", LIBRARIES)
def test_ties_go_to_the_lower_index(library: str) -> None:
    # point 0 is as similar to 1, 2 and 3; the others' own nearest is each other, or 0 where nothing else is left
    points = np.array([[[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]])
    chosen = to_numpy(neighbours(similarities(LIBRARIES[library](points)), 2))[0]
    np.testing.assert_array_equal(chosen[0], [False, True, True, False])
    np.testing.assert_array_equal(chosen[3], [True, True, False, False])


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=50, deadline=None)
@given(size=SIZES)
def test_normalise_is_the_plain_loop(library: str, size: dict[str, Any]) -> None:
    points, k = grid_points(size)
    weights = np.stack([plain_affinity(task, k, size["gamma"]) for task in points.tolist()])
    found = to_numpy(normalise(LIBRARIES[library](weights)))
    for S, W in zip(found, weights, strict=True):
        for i, j in np.ndindex(W.shape):
            expected = W[i, j] / np.sqrt(W[i].sum() * W[j].sum()) if W[i, j] > 0 else 0.0
            assert S[i, j] == pytest.approx(expected, rel=1e-10)
    assert np.linalg.eigvalsh(found).max() <= 1 + 1e-12, "else I - alpha S is not positive definite"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_isolated_points_have_zero_rows(library: str, dtype: Any) -> None:
    points = np.array([[[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0], [0.0, 0.0]]], dtype)
    weights = affinity(LIBRARIES[library](points), 3, 3)
    found = to_numpy(normalise(weights))
    assert found.dtype == dtype
    assert (found[0, 2:] == 0).all() and (found[0, :, 2:] == 0).all()
    np.testing.assert_allclose(found[0, :2, :2], [[0, 1], [1, 0]], rtol=0, atol=1e-6)
