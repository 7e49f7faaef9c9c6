"""Label all points of a pool from the few that are labelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from a2lp.encoding import encode_labels
from a2lp.errors import InputError, ShapeError, UnknownNameError
from a2lp.pool.graph import PoolGraph, neighbour_graph
from a2lp.pool.methods import GAMMA, METHODS, N_NEIGHBORS, Task
from a2lp.pool.neighbours import NdArray, Progress, check_points, nearest
from a2lp.pool.whiten import neighbour_whitening

_RIDGE_LOW, _RIDGE_HIGH = 0.3, 3.0
_FEW_MORE = 0.1  # share of labels that may be new before an earlier answer's weights are fitted again


@dataclass(frozen=True, eq=False)
class Prepared:
    """What depends on the points alone, and costs most.

    Attributes
    ----------
    points : array (n, d) or None
        Whitened unit vectors; None where the caller has only a graph.
    graph : PoolGraph
    """

    points: NdArray | None
    graph: PoolGraph


@dataclass(frozen=True, eq=False)
class PoolAnswer:
    """What is said about the n points of a pool.

    Attributes
    ----------
    classes : array (c,)
        The labels there are, sorted.
    probabilities : array (n, c)
        Rows sum to 1, and are 0 and 1 for points with a given label.
    labels : array (n,)
        The likeliest class of each point; given labels stay.
    given : array (n,)
        Which points the caller had labelled.
    reached : array (n,)
        False where no path of the graph leads to a labelled point: an answer rests on the vectors alone, or, where
        there are none, is the most frequent label.
    nearest : array (n,)
        The row of the closest labelled point; -1 where only a graph is known and no path leads to one.
    method : str
        The method that answered.
    reason : str
        What ``auto`` chose, and why.
    prepared : Prepared
        Points and graph, for the next answer.
    weights : array (3,), optional
        Of the opinions that ``auto`` mixed.
    """

    classes: NdArray
    probabilities: NdArray
    labels: NdArray
    given: NdArray
    reached: NdArray
    nearest: NdArray
    method: str
    reason: str
    prepared: Prepared
    weights: NdArray | None = None

    @property
    def graph(self) -> PoolGraph:
        """The graph that labels were spread on."""
        return self.prepared.graph

    @property
    def codes(self) -> NdArray:
        """Positions in ``classes`` of the given labels (n,), -1 where there was none."""
        return np.where(self.given, np.searchsorted(self.classes, self.labels), -1)


def prepare(x: Any, *, progress: Progress | None = None) -> Prepared:
    """Whiten points (n, d) and connect them; a PoolGraph is taken as it is.

    The whitening's ridge is 2 d / n, between 0.3 and 3: the fewer points there are for each dimension, the less the
    directions of small variance are known.
    """
    if isinstance(x, PoolGraph):
        return Prepared(None, x)
    x = check_points(x)
    n, d = x.shape
    if n < 2:
        raise InputError("a pool needs at least two points; there is one. Add points.")
    ridge = float(np.clip(2 * d / n, _RIDGE_LOW, _RIDGE_HIGH))
    points = neighbour_whitening(x, ridge=ridge).apply(x)
    return Prepared(points, neighbour_graph(points, min(N_NEIGHBORS, n - 1), GAMMA, progress=progress))


def solve(
    x: Any,
    labels: Any,
    *,
    method: str = "auto",
    seed: int = 0,
    start: PoolAnswer | None = None,
    progress: Progress | None = None,
) -> PoolAnswer:
    """Label the unlabelled points.

    Parameters
    ----------
    x : array (n, d), PoolGraph or Prepared
        Vectors of any length, or a graph of the caller's, or what ``prepare`` made.
    labels : array-like (n,)
        Strings or whole numbers; -1, None, NaN and "" mean unlabelled.
    method : str
        One of ``METHODS``.
    seed : int
        Of the folds in which ``auto`` hides labels from itself.
    start : PoolAnswer, optional
        An earlier answer about the same points: what does not depend on the labels is taken from it, and while at
        most a tenth of the labels are new, so are the weights of ``auto``.
    progress : callable, optional
        Called with what is done of the search for neighbours, and of how much.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from a2lp.pool.solve import solve
    >>> x, y = load_digits(return_X_y=True)
    >>> some = y.copy()
    >>> some[100:] = -1
    >>> bool((solve(x, some).labels == y).mean() > 0.85)
    True
    """
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    prepared = _prepared(x, start, progress)
    n = prepared.graph.n
    classes, codes = encode_labels(labels, range(n))
    weights = _earlier_weights(start, classes, codes)
    task = Task(prepared.points, prepared.graph, codes, len(classes), seed, weights)
    found = METHODS[method](task)
    probabilities = task.pinned(found.probabilities)
    reached = _reached(prepared.graph, task.given)
    closest = _nearest(prepared, task.given)
    best = probabilities.argmax(axis=1)
    # where a method knows nothing, the first class would win by its place
    lost = np.isclose(probabilities.max(axis=1), 1 / len(classes)) & ~task.given
    best[lost] = np.where(closest[lost] >= 0, codes[closest[lost]], np.bincount(codes[task.given]).argmax())
    return PoolAnswer(
        classes,
        probabilities,
        classes[best],
        task.given,
        reached,
        closest,
        method,
        found.reason or f"asked for: {method}",
        prepared,
        found.weights,
    )


def _prepared(x: Any, start: PoolAnswer | None, progress: Progress | None) -> Prepared:
    if start is None:
        return x if isinstance(x, Prepared) else prepare(x, progress=progress)
    n = x.graph.n if isinstance(x, Prepared) else x.n if isinstance(x, PoolGraph) else len(x)
    if n != start.graph.n:
        raise ShapeError(
            f"start answers for {start.graph.n} points and there are {n} now; it must be about the same points in the "
            "same order. Leave start out."
        )
    return start.prepared


def _earlier_weights(start: PoolAnswer | None, classes: NdArray, codes: NdArray) -> NdArray | None:
    if start is None or start.weights is None or not np.array_equal(start.classes, classes):
        return None
    changed = (start.codes != codes).sum()
    return start.weights if changed <= _FEW_MORE * start.given.sum() else None


def _reached(graph: PoolGraph, given: NdArray) -> NdArray:
    _, part = graph.components()
    return np.isin(part, part[given])


def _nearest(prepared: Prepared, given: NdArray) -> NdArray:
    rows = np.flatnonzero(given)
    if prepared.points is None:
        weights = prepared.graph.weights
        lengths = sparse.csr_array((1 / weights.data, weights.indices, weights.indptr), shape=weights.shape)
        _, _, source = dijkstra(lengths, directed=False, indices=rows, min_only=True, return_predecessors=True)
        return np.where(source >= 0, source, -1).astype(np.int64)
    places, _ = nearest(prepared.points, prepared.points[rows], 1)
    closest = np.where(places[:, 0] >= 0, rows[places[:, 0]], -1)
    closest[rows] = rows
    return closest
