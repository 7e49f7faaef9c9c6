"""Whitening by neighbours: what it does to covariances, and what it is good for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from a2lp.errors import InputError
from a2lp.pool.graph import neighbour_graph
from a2lp.pool.propagate import propagate
from a2lp.pool.whiten import neighbour_whitening
from a2lp.preprocess import l2


def test_equals_the_definition() -> None:
    x = np.random.default_rng(0).normal(size=(300, 7)) * [9, 4, 1, 1, 1, 1, 0.1]
    unit = l2(x)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -2)
    near = np.argsort(-cosines, axis=1)[:, :4]
    differences = (unit[:, None] - unit[near]).reshape(-1, 7)
    within = differences.T @ differences / len(differences) / 2
    found = neighbour_whitening(x, 4, ridge=0.2)
    np.testing.assert_allclose(found.mean, unit.mean(axis=0), atol=1e-12)
    inverse = np.linalg.inv(within + 0.2 * np.trace(within) / 7 * np.eye(7))
    np.testing.assert_allclose(found.matrix @ found.matrix, inverse, rtol=1e-8)
    np.testing.assert_allclose(found.apply(x), l2((unit - found.mean) @ found.matrix), atol=1e-12)


def test_fewer_points_than_dimensions_are_whitened_in_the_space_they_span() -> None:
    x = 1 + np.random.default_rng(0).normal(size=(12, 5000)) * np.r_[10, np.ones(4999)]
    unit = l2(x)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -2)
    near = np.argsort(-cosines, axis=1)[:, :5]
    differences = (unit[:, None] - unit[near]).reshape(-1, 5000)
    scale = np.sqrt(len(differences) * 2)
    found = neighbour_whitening(x, ridge=0.2)
    white = found.apply(x)
    assert white.shape == (12, 12)
    # (W + rI)^-1 for W = D'D by Woodbury's identity, without a matrix of 5000 x 5000
    d, r = differences / scale, 0.2 * np.square(differences / scale).sum() / 5000
    centred = unit - unit.mean(axis=0)
    inner = d @ centred.T
    expected = (centred @ centred.T - inner.T @ np.linalg.solve(r * np.eye(len(d)) + d @ d.T, inner)) / r
    length = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(white @ white.T, expected / length / length[:, None], atol=1e-9)


def test_half_precision_and_points_that_are_all_equal() -> None:
    x = np.random.default_rng(0).normal(size=(100, 5))
    half = neighbour_whitening(x.astype(np.float16)).apply(x.astype(np.float16))
    assert half.dtype == np.float32
    np.testing.assert_allclose(half, neighbour_whitening(x).apply(x), atol=0.02)
    for alike in (np.ones((20, 3)), np.ones((1, 3)), np.zeros((4, 2))):
        assert np.isfinite(neighbour_whitening(alike).apply(alike)).all()


@pytest.mark.shared
def test_it_helps_propagation_on_real_features(shared_data: Path) -> None:
    with np.load(shared_data / "features" / "cub_resnet12_val.npz") as file:
        x, codes = file["features"], np.unique(file["labels"], return_inverse=True)[1]
    first = np.unique(codes, return_index=True)[1]
    y = np.zeros((len(x), codes.max() + 1))
    y[first, codes[first]] = 1
    plain, white = (
        (propagate(neighbour_graph(points), y).Z.argmax(axis=1) == codes).mean()
        for points in (x, neighbour_whitening(x).apply(x))
    )
    assert white > plain + 0.03


def test_bad_input_is_named() -> None:
    x = np.random.default_rng(0).normal(size=(10, 3))
    with pytest.raises(InputError, match="ridge=0 must be positive"):
        neighbour_whitening(x, ridge=0)
    with pytest.raises(InputError, match="n_neighbors=0 must be a whole number"):
        neighbour_whitening(x, 0)
    with pytest.raises(InputError, match="x has 2 dimensions, and the whitening was estimated on 3"):
        neighbour_whitening(x).apply(x[:, :2])
