"""Which points to label next: those that speak for most of what is still in doubt.

Each unlabelled point i has a need: 1 while hardly more than one label per class is there, then (1 - margin) ** p, where
the margin is that of the answer's two likeliest classes and p grows with the labels per class b as 0.15 (b - 1), up to
1. How near two points are is K = I + 0.8 S + 0.64 S², scaled to a diagonal of 1: paths of up to two edges on the graph
of the pool. A set of labelled points covers i by the largest K between them and i. Suggestions are chosen one after
the other, each time the point that adds most to the sum of need times cover (facility location). So need brings
uncertainty in, the sum over neighbours density, and the cover diversity: a point near a label or near an earlier
suggestion adds little. Without labels all needs are 1, and the typical points of clusters come first.

Chosen on CUB ResNet-12 val and CLIP DTD val, following suggestions ten at a time with the method ``auto``: accuracies
at 30 / 100 / 400 labels of 46.9 / 65.9 / 75.9 and 40.6 / 57.8 / 75.4 %, where 100 / 250 / 500 random labels have 49.9 /
63.9 / 70.7 and 44.5 / 54.9 / 62.4. At 30 labels that is about as far as it goes: 30 labels name at most 30 of the 50
classes, and the class medoids of the 30 easiest classes, chosen by the truth, have 49.0 and 44.9. What did no better:
margins from the first label on (33 at 30 labels on DTD: the classes that nobody named yet look certain), clusters by
k-means (40 and 39 at 30), K from paths of any length, cosines in the place of K (53 and 48 at 50 labels, where K has 60
and 51).

**What it should bring.** Two things raise the accuracy on unlabelled points: classes that were not known, and smaller
errors between those that are. If f of the L labels are the only ones of their class, about 0.6 (f / L)² of the points
belong to classes that nobody named, and the next m labels find 0.75 (f / L)² m of these; each brings 0.6 times what the
known ones brought on average. Errors among the known classes fall with the power -0.25 of the labels, and the
suggested points, which are more often wrong than others, are no longer counted. How far off that is on pools that were
not used for it is in ``docs/suggest.md``. Without any label there is nothing to judge by.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from a2lp.checks import require_whole
from a2lp.encoding import read_labels
from a2lp.errors import InputError
from a2lp.pool.graph import PoolGraph, Sparse
from a2lp.pool.neighbours import NdArray, Progress
from a2lp.pool.solve import PoolAnswer, Prepared, prepare, solve

_TRAVEL = 0.8  # an edge's share in K
_DOUBT_GROWS = 0.15  # power of the doubt for each label per class after the first
_TIED = 0.01  # gains that differ by less than this share are tied, and the seed decides
_UNNAMED, _FOUND = 0.6, 0.75  # share of points of classes not known, and of suggestions that find one, per (f / L)²
_NEW_CLASS = 0.6  # what a class brings that is found later, against those that were found first
_LEARNING = 0.25  # errors fall with this power of the labels
_CLOSE = 0.5  # margin below which a suggestion is said to lie between two classes


@dataclass(frozen=True, eq=False)
class Suggestion:
    """Points to label next.

    Attributes
    ----------
    rows : array (m,)
        The points, the most worth first.
    why : tuple of str
        What each of them stands for.
    gains : array (m,)
        What each adds to the covered need, after those before it.
    expected : float or None
        By how much the accuracy on unlabelled points should rise when all of them are labelled, as a share; None
        where no label is there to judge by.
    answer : PoolAnswer or None
        The answer that they were chosen by, for ``start``; None without labels.
    """

    rows: NdArray
    why: tuple[str, ...]
    gains: NdArray
    expected: float | None
    answer: PoolAnswer | None


def suggest(
    x: Any,
    labels: Any = None,
    n: int = 20,
    *,
    seed: int = 0,
    start: PoolAnswer | None = None,
    progress: Progress | None = None,
) -> Suggestion:
    """Say which points to label next.

    Parameters
    ----------
    x : array (n, d), PoolGraph or Prepared
        As in ``solve``.
    labels : array-like (n,), optional
        Strings or whole numbers; -1, None, NaN and "" mean unlabelled. All may be.
    n : int
        How many points; fewer where there are not so many without a label.
    seed : int
        Decides between points that are worth the same.
    start : PoolAnswer, optional
        An earlier answer about the same points, as in ``solve``.
    progress : callable, optional
        Called with what is done of the search for neighbours, and of how much.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from a2lp.pool.suggest import suggest
    >>> x, y = load_digits(return_X_y=True)
    >>> first = suggest(x, n=12)
    >>> len(set(y[first.rows].tolist()))  # kinds of digits among the first twelve
    10
    """
    require_whole("n", n, 1, "Ask for 20, say.")
    if start is not None:
        prepared = start.prepared
    else:
        prepared = x if isinstance(x, Prepared) else prepare(x, progress=progress)
    size = prepared.graph.n
    given = np.zeros(size, dtype=bool) if labels is None else ~read_labels(labels, range(size))[1]
    if given.all():
        raise InputError(f"all {size} points are labelled, so there is nothing to suggest. Add points.")
    answer = solve(prepared, labels, seed=seed, start=start) if given.any() else None
    near = kinship(prepared.graph)
    need = _needs(answer) if answer is not None else np.ones(size)
    rows, gains = _choose(near, need, given, n, np.random.default_rng(seed))
    why = _reasons(near, rows, given, answer)
    return Suggestion(rows, why, gains, None if answer is None else expected_gain(answer, rows), answer)


def kinship(graph: PoolGraph) -> Sparse:
    """How near points are on the graph (n, n): K = I + 0.8 S + 0.64 S², scaled to a diagonal of 1."""
    s = graph.normalised()
    near = sparse.csr_array(sparse.eye_array(graph.n, dtype=s.dtype) + _TRAVEL * s + _TRAVEL**2 * (s @ s))
    scale = 1 / np.sqrt(near.diagonal())
    near.data *= np.repeat(scale, np.diff(near.indptr)) * scale[near.indices]
    return near


def expected_gain(answer: PoolAnswer, rows: NdArray) -> float:
    """The share by which the accuracy on unlabelled points should rise when ``rows`` are labelled."""
    new = ~answer.given
    n_labels, m = int(answer.given.sum()), len(rows)
    top = answer.probabilities.max(axis=1)
    confidence = float(top[new].mean())
    single = float((np.bincount(answer.codes[answer.given]) == 1).sum() / n_labels)
    named = 1 - _UNNAMED * single**2
    found = _FOUND * single**2 * m * _NEW_CLASS * confidence * named / len(answer.classes)
    fewer_errors = named * (1 - confidence) * (1 - (n_labels / (n_labels + m)) ** _LEARNING)
    left_out = m * (confidence - float(top[rows].mean())) / int(new.sum())
    return float(np.clip(found + fewer_errors + left_out, 0, 1 - confidence * named))


def _needs(answer: PoolAnswer) -> NdArray:
    """How much each point needs a label (n,)."""
    p = answer.probabilities
    power = float(np.clip(_DOUBT_GROWS * (answer.given.sum() / p.shape[1] - 1), 0, 1))
    return np.where(answer.given, 0, (1 - _margins(p)) ** power)


def _margins(p: NdArray) -> NdArray:
    if p.shape[1] == 1:  # one class is known, so that nothing can be said of the others
        return np.zeros(len(p))
    top = np.partition(p, -2, axis=1).astype(np.float64)
    return np.clip(top[:, -1] - top[:, -2], 0, 1)


def _choose(near: Sparse, need: NdArray, given: NdArray, n: int, rng: np.random.Generator) -> tuple[NdArray, NdArray]:
    """The points (m,) that one after the other add most, and what they add (m,)."""
    covered = np.zeros(len(need))
    for row in np.flatnonzero(given).tolist():
        who, how = _row(near, row)
        covered[who] = np.maximum(covered[who], how)
    tied = 1 + _TIED * rng.random(len(need))
    added = np.maximum(near.data - covered[near.indices], 0) * need[near.indices]
    bounds = np.add.reduceat(added, near.indptr[:-1]) * tied  # no row is empty: the diagonal is there
    heap = [(-float(bounds[row]), row) for row in np.flatnonzero(~given).tolist()]
    heapq.heapify(heap)
    rows: list[int] = []
    gains: list[float] = []
    while heap and len(rows) < n:
        _, row = heap[0]
        who, how = _row(near, row)
        gain = float(need[who] @ np.maximum(how - covered[who], 0))
        # gains only shrink, so one that stays on top of the others' old ones is the largest
        heapq.heapreplace(heap, (-gain * tied[row], row))
        if heap[0][1] == row:
            heapq.heappop(heap)
            rows.append(row)
            gains.append(gain)
            covered[who] = np.maximum(covered[who], how)
    return np.array(rows, dtype=np.int64), np.array(gains)


def _row(near: Sparse, row: int) -> tuple[NdArray, NdArray]:
    part = slice(near.indptr[row], near.indptr[row + 1])
    return near.indices[part], near.data[part]


def _reasons(near: Sparse, rows: NdArray, given: NdArray, answer: PoolAnswer | None) -> tuple[str, ...]:
    """What each suggestion stands for: how many unlabelled points are nearest to it, and what they are taken for."""
    covered = np.zeros(len(given))
    closest = np.full(len(given), -1)
    for row in [*np.flatnonzero(given).tolist(), *rows.tolist()]:
        who, how = _row(near, row)
        closer = how > covered[who]
        covered[who[closer]] = how[closer]
        closest[who[closer]] = row
    counts = np.bincount(closest[~given & (closest >= 0)], minlength=len(given))
    margins = None if answer is None else _margins(answer.probabilities)
    return tuple(_reason(row, int(counts[row]) - 1, answer, margins) for row in rows.tolist())


def _reason(row: int, others: int, answer: PoolAnswer | None, margins: NdArray | None) -> str:
    near = f"typical of {others} points near it" if others > 0 else "apart from all others"
    if answer is None or margins is None:
        return near
    first = answer.labels[row]
    if len(answer.classes) > 1 and margins[row] < _CLOSE:
        p = answer.probabilities[row].copy()
        p[np.searchsorted(answer.classes, first)] = -1
        return f"{near}, between {first} and {answer.classes[p.argmax()]}"
    return f"{near}, far from the labels; perhaps {first}"
