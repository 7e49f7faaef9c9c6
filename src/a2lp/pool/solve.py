"""Label all points of a pool from the few that are labelled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from a2lp.arrays import device, namespace, to_numpy
from a2lp.checks import listed, require_name
from a2lp.cores import crew
from a2lp.errors import InputError
from a2lp.pool.methods import METHODS, WITHOUT_LABELS, Task, choose_weights
from a2lp.pool.neighbours import NdArray
from a2lp.pool.rows import as_distributions, by_rows


@dataclass(frozen=True, eq=False, repr=False)
class PoolAnswer:
    """Predictions for the n points of a pool.

    Attributes
    ----------
    task : Task
        The points, the graph and the given labels.
    classes : array (c,)
        The classes, sorted.
    probabilities : array (n, c)
        Rows sum to 1, and are 0 and 1 for points with a given label.
    labels : array (n,)
        The most likely class of each point; given labels stay.
    reached : array (n,)
        False where no path of the graph leads to a labelled point: the prediction rests on the vectors alone, or, where
        there are none, is the most frequent label. With names, all points are reached.
    nearest : array (n,)
        The row of the closest labelled point; -1 where there is none, or only a graph is known and no path leads to
        one.
    arrived : array (n,)
        How much of the labels propagation brings to each point, in its best class.
    propagated_confidence : array (n,)
        The largest probability of label propagation for each point.
    method : str
    reason : str
        How ``auto`` chose its weights.
    """

    task: Task
    classes: NdArray
    probabilities: NdArray
    labels: NdArray
    reached: NdArray
    nearest: NdArray
    arrived: NdArray
    propagated_confidence: NdArray
    method: str
    reason: str

    def __repr__(self) -> str:
        given = int(self.given.sum())
        return (
            f"PoolAnswer({len(self.labels)} points, {given} of them given: {len(self.classes)} classes; {self.reason})"
        )

    @property
    def given(self) -> NdArray:
        """Which points had a label (n,)."""
        return self.task.given


@crew()
def solve(task: Task, classes: NdArray, method: str = "auto") -> PoolAnswer:
    """Label the unlabelled points of a task.

    Parameters
    ----------
    task : Task
        If it has no weights, ``auto`` chooses them.
    classes : array (c,)
        The names of the codes.
    method : str
        One of ``METHODS``.
    """
    require_name("method", method, METHODS)
    if not task.given.any() and method not in WITHOUT_LABELS:
        raise InputError(
            f"method={method!r} learns from labels, and no point is labelled. Label points of each class, or use "
            f"{listed(WITHOUT_LABELS)}, for which names are enough."
        )
    reason = f"requested: {method}"
    if method == "auto":
        reason = "label propagation, since only a graph is known"
        if task.points is not None:
            how = "those of the answer before"
            if task.weights is None:
                weights, how = choose_weights(task)
                task = replace(task, weights=weights)
            assert task.weights is not None
            parts = zip(("lp", "em", "smoothed_lr", "names"), task.weights, strict=False)  # names are optional
            reason = f"weights {', '.join(f'{name} {weight:.2g}' for name, weight in parts)}: {how}"
            if not task.given.any():
                reason = f"the names of {task.n_classes} classes, and no label"
    new = ~task.given
    probabilities = task.pinned(METHODS[method](task))
    closest = _nearest(task)
    xp = namespace(probabilities)
    where = xp.empty(len(new), dtype=xp.int64, device=device(probabilities))
    best = to_numpy(by_rows(lambda part: xp.argmax(probabilities[part], axis=1), where))
    top = _largest(probabilities)
    # where a method knows nothing, the first class would win by its place
    lost = np.isclose(top, 1 / len(classes)) & new
    if task.given.any():
        most_frequent = np.bincount(task.codes[task.given]).argmax()
        best[lost] = np.where(closest[lost] >= 0, task.codes[closest[lost]], most_frequent)
    confidence, arrived = _largest(task.propagated, as_distributions), _largest(task.propagated)
    vars(task).pop("propagated")  # as large as the probabilities, and needed no more
    # the name of its class reaches every point
    reached = task.graph.reached(task.given) if task.names is None else np.ones(len(new), dtype=bool)
    return PoolAnswer(
        task, classes, to_numpy(probabilities), classes[best], reached, closest, arrived, confidence, method, reason
    )


def _largest(values: Any, made: Callable[[Any], Any] = lambda rows: rows) -> NdArray:
    """The largest value of each row (n,), or of what is made of it."""
    xp = namespace(values)
    out = xp.empty(len(values), dtype=values.dtype, device=device(values))
    return to_numpy(by_rows(lambda part: xp.max(made(values[part]), axis=1), out))


def _nearest(task: Task) -> NdArray:
    rows = np.flatnonzero(task.given)
    if not len(rows):
        return np.full(len(task.codes), -1)
    if task.points is None:
        weights = task.graph.weights
        lengths = sparse.csr_array((1 / weights.data, weights.indices, weights.indptr), shape=weights.shape)
        _, _, source = dijkstra(lengths, directed=False, indices=rows, min_only=True, return_predecessors=True)
        return np.where(source >= 0, source, -1).astype(np.int64)
    closest = task.memory.nearest(task.points, rows)
    closest[rows] = rows
    return closest
