"""A map of a pool: two coordinates for each point, so that neighbours in the graph lie together.

Edges attract their ends, and points repel random others, with the forces of UMAP (McInnes, Healy and Melville 2018,
a = b = 1) and steps that shrink to zero. What is our own is the strength of an edge: how alike the neighbourhoods of
its ends are, relative to the best edge of each end. In high dimensions half of the edges lead to another class; those
hardly share neighbours, so they pull little, and groups come apart. The map knows no labels: where it mixes classes,
the graph does.

``benchmarks/layout.py`` measures it.
"""

from __future__ import annotations

import numpy as np

from a2lp.cores import one_blas_thread
from a2lp.pool.graph import PoolGraph
from a2lp.pool.neighbours import NdArray, Progress

_ROUNDS = 200
_RANDOM = 5  # points that a point is pushed away from, each time that an edge pulls
_LOOP = 0.1  # a point's weight among its own neighbours; above 0, so that an edge without common neighbours pulls, too
_SHARPNESS = 2  # power of the likeness of neighbourhoods
_WEAKEST = 1e-3  # edges of less than this strength never pull
_VECTORS = 8  # that the starting places are found with, of which two are used
_POWERS = 60
_WIDTH = 10.0  # of the starting places
_EVEN = 0.35  # share of ranks in the final coordinates: groups take more room, and the gaps between them less


def layout(graph: PoolGraph, *, seed: int = 0, progress: Progress | None = None) -> NdArray:
    """Coordinates (n, 2) in the unit square.

    Points without edges lie on the circle around the others. The result depends on the graph and the seed alone.

    Parameters
    ----------
    graph : PoolGraph
    seed : int
        Of the random pairs, and of the start.
    progress : callable, optional
        Called with the rounds done and their total.
    """
    from a2lp.pool import _kernels as kernels

    rng = np.random.default_rng(seed)
    connected = np.diff(graph.weights.indptr) > 0
    if not connected.any():
        return _in_square(_circle(graph.n))
    places = _start(graph, rng)
    strength = edge_strengths(graph)
    kept = strength > _WEAKEST
    starts = np.concatenate([[0], np.cumsum(kept)])[graph.weights.indptr].astype(np.int64)
    ends, every = graph.weights.indices[kept].astype(np.int64), 1 / strength[kept]
    due = every * rng.random(len(every))
    state = np.uint64(rng.integers(2**63))
    for done in range(_ROUNDS):
        step = 1 - done / _ROUNDS
        state = np.uint64(kernels.move_points(starts, ends, every, due, places, step, done, _RANDOM, state))
        if progress is not None:
            progress(done + 1, _ROUNDS)
    if not connected.all():
        middle = np.median(places[connected], axis=0)
        reach = float(np.linalg.norm(places[connected] - middle, axis=1).max())
        places[~connected] = middle + (1.2 * reach + 1) * _circle(int((~connected).sum()))
    return _in_square(places)


def edge_strengths(graph: PoolGraph) -> NdArray:
    """The pull of each edge, in the order of ``graph.weights.data``: from 0 to 1, the same in both directions."""
    from a2lp.pool import _kernels as kernels

    s = graph.normalised
    alike = np.empty(s.nnz)
    kernels.common_neighbours(s.indptr, s.indices, s.data.astype(np.float64), _LOOP, alike)
    rows = np.repeat(np.arange(graph.n), np.diff(s.indptr))
    best = np.zeros(graph.n)
    np.maximum.at(best, rows, alike)
    share = (alike / best[rows]) ** _SHARPNESS
    back = (alike / best[s.indices]) ** _SHARPNESS
    return np.asarray(share + back - share * back)  # one of the two ends is enough


def _start(graph: PoolGraph, rng: np.random.Generator) -> NdArray:
    """Places (n, 2) from the eigenvectors of S with the largest eigenvalues after the first.

    They come from powers of S + I on a few vectors: inexact, but as fast and safe with many components as with one.
    Ranks in place of values spread the points, since such vectors often set a few points far apart from all others.
    """
    s = graph.normalised.astype(np.float64)
    basis = rng.normal(size=(graph.n, min(_VECTORS, graph.n)))
    basis[:, 0] = np.sqrt(graph.degree)  # the first eigenvector
    with one_blas_thread():
        for _ in range(_POWERS):
            basis, _ = np.linalg.qr(basis + s @ basis)
        _, vectors = np.linalg.eigh(basis.T @ (s @ basis))
        found = basis @ vectors[:, ::-1]
    places = np.zeros((graph.n, 2))
    for axis in range(min(2, found.shape[1] - 1)):
        order = np.argsort(found[:, axis + 1], kind="stable")
        places[order, axis] = np.arange(graph.n) / graph.n
    return _WIDTH * (places - 0.5) + rng.normal(scale=0.01, size=places.shape)


def _circle(n: int) -> NdArray:
    angles = 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _in_square(places: NdArray) -> NdArray:
    """Turned so that the longer side is horizontal, and scaled to the unit square; the few farthest are at its border.

    Forces leave much of a map empty, so each coordinate is mixed with its rank, which keeps the order along the axis.
    """
    centred = places - np.median(places, axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    turned = centred @ axes[:, ::-1]
    low, high = np.percentile(turned, [0.5, 99.5], axis=0)
    scaled = np.clip(0.5 + (turned - (low + high) / 2) / np.maximum(1.06 * (high - low), 1e-12), 0, 1)
    ranks = np.argsort(np.argsort(turned, axis=0, kind="stable"), axis=0) / max(len(places) - 1, 1)
    return np.asarray((1 - _EVEN) * scaled + _EVEN * ranks)
