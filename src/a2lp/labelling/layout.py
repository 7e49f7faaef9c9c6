"""A map of a pool: two coordinates for each point, so that neighbours in the graph lie together."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.linalg import eigsh

from a2lp.pool.graph import PoolGraph

NDArray = np.ndarray[Any, Any]

_ROUNDS = 150
_REPELLED = 5  # random points that each point is pushed away from in a round
_CLIP = 4.0  # the longest pull or push of a round


def layout(graph: PoolGraph, *, seed: int = 0) -> NDArray:
    """Coordinates (n, 2) in the unit square.

    They start from the eigenvectors of the normalised graph after the first. Then edges attract and random pairs repel,
    with the forces of UMAP (a = b = 1), for a fixed number of rounds.

    Parameters
    ----------
    graph : PoolGraph
    seed : int
        Of the random pairs.
    """
    rng = np.random.default_rng(seed)
    places = _spectral(graph, rng)
    edges = graph.weights.tocoo()
    one, other = edges.coords
    strength = (edges.data / edges.data.max(initial=1e-12))[:, None]
    for done in range(_ROUNDS):
        step = 1 - done / _ROUNDS
        apart = places[one] - places[other]
        square = np.square(apart).sum(axis=1, keepdims=True)
        move = _summed(one, np.clip(-2 / (1 + square) * apart, -_CLIP, _CLIP) * strength, graph.n)
        mine = np.repeat(np.arange(graph.n), _REPELLED)
        apart = places[mine] - places[rng.integers(graph.n, size=len(mine))]
        square = np.square(apart).sum(axis=1, keepdims=True)
        move += _summed(mine, np.clip(2 / ((0.01 + square) * (1 + square)) * apart, -_CLIP, _CLIP), graph.n)
        places = places + step * np.clip(move, -_CLIP, _CLIP) / 4
    return _unit_square(places)


def _spectral(graph: PoolGraph, rng: np.random.Generator) -> NDArray:
    places = rng.normal(size=(graph.n, 2))
    if graph.n > 5 and graph.weights.nnz:  # ARPACK fails on a matrix of zeros
        _, vectors = eigsh(graph.normalised.astype(np.float64), k=3, which="LA", v0=np.ones(graph.n))
        places = 0.1 * places + 10 * (_unit_square(vectors[:, 1::-1]) - 0.5)
    return places


def _summed(rows: NDArray, moves: NDArray, n: int) -> NDArray:
    sums = [np.bincount(rows, weights=moves[:, axis], minlength=n) for axis in (0, 1)]
    return np.stack(sums, axis=1).astype(np.float64)  # without rows, bincount returns integers


def _unit_square(places: NDArray) -> NDArray:
    """Both axes from 0 to 1, a few far points at the border."""
    low, high = np.percentile(places, [0.5, 99.5], axis=0)
    scaled: NDArray = np.clip((places - low) / np.maximum(high - low, 1e-12), 0, 1)
    return scaled
