"""Predictions as the page shows them: the last full answer, and what labels since then have changed near them.

A full answer is computed from the labels up to some line of the log. Labels after that line change the propagation by
columns that are found at once (``a2lp.pool.push``); with LP the propagated distributions before and after, a point's
probabilities become p LP_after ** w / LP_before ** w, where w is the weight of propagation in the answer: the other
models of ``auto`` keep their opinion until the next answer. A class that the answer does not know wins where it has
most of the propagation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from a2lp.arrays import NDArray
from a2lp.pool.graph import PoolGraph
from a2lp.pool.push import push

NONE = 0xFFFF  # no class
_FLOOR = 1e-3  # spread over the classes, as in ``a2lp.pool.methods``
ALPHA = 0.8
_GROUPS = 20  # of points by confidence, for a first calibration of a new answer
_MOST = 0.5  # share of propagation from which a class wins that the answer does not know


class Delta(NamedTuple):
    """What one command changed in the propagation of one class."""

    seq: int
    code: int
    rows: NDArray
    values: NDArray


class Answers:
    """Class and confidence of every point.

    Attributes
    ----------
    best : array (n,)
        The predicted class by number; ``NONE`` where there is no prediction.
    confidence : array (n,)
        Its probability.
    settling : array (n,)
        Whether the prediction is from a label after the last full answer.
    seq : int
        The last line of the log that the last full answer takes into account.
    """

    def __init__(self, graph: PoolGraph) -> None:
        n = graph.n
        self.graph = graph
        self.best = np.full(n, NONE, np.uint16)
        self.confidence = np.zeros(n, np.float32)
        self.settling = np.zeros(n, bool)
        self.reached = np.ones(n, bool)
        self.nearest = np.full(n, -1, np.int32)
        self.novelty = np.zeros(n, np.float32)
        self.seq = 0
        self._p: NDArray | None = None  # (n, columns)
        self._columns = np.zeros(0, np.int64)  # classes of the columns
        self._weight = 1.0
        self._raw = np.zeros(n, np.float32)  # the largest probabilities of the last answer, before calibration
        self._largest: NDArray | None = None  # and after it, by the table; None once there is an estimate
        self._table = np.array([[0.0, 1.0], [0.0, 1.0]])  # confidences of an answer, and what estimates made of them
        self._full: NDArray | None = None  # best of the last answer
        self._before: NDArray | None = None  # propagation (n, classes) of the labels of the last answer
        self._after: NDArray | None = None  # and of all labels
        self._pending: list[Delta] = []
        self._waiting: list[tuple[int, dict[int, dict[int, float]]]] = []  # changes that were not pushed yet

    def start(self, propagated: NDArray) -> None:
        """Set the propagation (n, classes) of the labels at the last ``begin``; only then can changes be shown."""
        self._before = propagated.astype(np.float32)
        self._after = self._before.copy()
        for seq, weights in self._waiting:
            self._push(seq, weights)
        self._drop_answered()

    def begin(self) -> None:
        """From now on, labels are changes to those whose propagation ``start`` will be given."""
        self._waiting = []

    def change(self, seq: int, removed: dict[int, int], added: dict[int, int]) -> NDArray:
        """Labels, class by row, that a command has taken away and given; the rows whose prediction changed."""
        weights: dict[int, dict[int, float]] = {}
        for sign, labels in ((-1.0, removed), (1.0, added)):
            for row, code in labels.items():
                of = weights.setdefault(code, {})
                of[row] = of.get(row, 0) + sign
        if self._after is None:
            self._waiting.append((seq, weights))
            return np.zeros(0, np.int64)
        return self._push(seq, weights)

    def land(self, message: dict[str, Any]) -> None:
        """Take in a full answer; what newer labels have changed is applied again."""
        self.seq, self._weight = message["seq"], message["weight"]
        self._columns = np.array(message["columns"], np.int64)
        self._p, self._full = message["probabilities"], self._columns[message["best"]]
        self._raw = self._p.max(axis=1)
        self._largest = np.where(self._raw >= 1, 1, np.interp(self._raw, *self._table))
        self.reached, self.nearest = message["reached"], message["nearest"]
        self._show()

    def assess(self, message: dict[str, Any]) -> None:
        """Take in calibrated probabilities and novelty, if they are of the last answer."""
        if message["seq"] != self.seq or self._p is None:
            return
        free = message["probabilities"].max(axis=1) < 1  # labelled points have 1
        self._table = _table(self._raw[free], message["probabilities"].max(axis=1)[free])
        self._p, self.novelty, self._largest = message["probabilities"], message["novelty"], None
        self._show()

    def forget(self) -> None:
        """Show no predictions, since there are not two classes to choose from."""
        self._p = self._full = None
        self.best[:], self.confidence[:], self.settling[:] = NONE, 0, False

    def top(self, row: int, n: int = 3) -> list[tuple[int, float]]:
        """The most likely classes of a point, with their probabilities."""
        if self._p is None:
            return []
        p = self._probabilities(np.array([row]))[0]
        order = np.argsort(-p, kind="stable")[:n]
        return [(int(self._columns[place]), float(p[place])) for place in order]

    def of(self, rows: NDArray, codes: NDArray) -> NDArray:
        """The probability of a class for each of some points; 0 where the answer does not know it."""
        place = {code: column for column, code in enumerate(self._columns.tolist())}
        columns = np.array([place.get(code, -1) for code in codes.tolist()], np.int64)
        if self._p is None or len(rows) == 0:
            return np.zeros(len(rows), np.float32)
        return np.where(columns >= 0, self._p[rows, columns], 0).astype(np.float32)

    def _show(self) -> None:
        assert self._p is not None and self._full is not None
        places = np.searchsorted(np.sort(self._columns), self._full)
        self.best = self._full.astype(np.uint16)
        columns = np.argsort(self._columns, kind="stable")[places]
        self.confidence = self._p[np.arange(len(columns)), columns]
        if self._largest is not None:
            self.confidence = (self.confidence * self._largest / np.maximum(self._raw, 1e-12)).astype(np.float32)
        self.settling[:] = False
        self._drop_answered()
        newer = [delta.rows for delta in self._pending if delta.seq > self.seq]
        if newer:
            self._settle(np.unique(np.concatenate(newer)))

    def _drop_answered(self) -> None:
        """Drop changes that the last answer has taken into account."""
        if self._before is None:
            return
        for delta in self._pending:
            if delta.seq <= self.seq:
                self._before = self._add(self._before, delta)
        self._pending = [delta for delta in self._pending if delta.seq > self.seq]

    def _push(self, seq: int, weights: dict[int, dict[int, float]]) -> NDArray:
        """Add weights, by class and row, to the labels; the rows whose prediction changed."""
        assert self._after is not None
        touched = [np.zeros(0, np.int64)]
        for code, of in weights.items():
            rows, values = push(self.graph, list(of), list(of.values()), ALPHA)
            self._pending.append(Delta(seq, code, rows, values.astype(np.float32)))
            self._after = self._add(self._after, self._pending[-1])
            touched.append(rows)
        changed = np.unique(np.concatenate(touched))
        self._settle(changed)
        return changed

    def _settle(self, rows: NDArray) -> None:
        """Show how newer labels change some points."""
        if self._after is None or len(rows) == 0:
            return
        after = self._after[rows]
        total = np.maximum(after.sum(axis=1), 1e-12)
        if self._p is None:
            best, share = after.argmax(axis=1), after.max(axis=1) / total
        else:
            p = self._probabilities(rows)
            best, share = self._columns[p.argmax(axis=1)], p.max(axis=1)
            others = np.ones(after.shape[1], bool)
            others[self._columns[self._columns < after.shape[1]]] = False
            new = after * others / total[:, None]
            wins = new.max(axis=1, initial=0) > _MOST
            best = np.where(wins, new.argmax(axis=1), best)
            share = np.where(wins, new.max(axis=1, initial=0), share)
        self.best[rows], self.confidence[rows] = best.astype(np.uint16), share
        self.settling[rows] = True

    def _probabilities(self, rows: NDArray) -> NDArray:
        """Probabilities (m, columns) of some points, after all labels."""
        assert self._p is not None
        p = self._p[rows]
        if self._largest is not None:
            p = _with_largest(p, self._largest[rows])
        if not self._pending or self._after is None or self._before is None:
            return p
        change = _log_shares(self._after[rows], self._columns) - _log_shares(self._before[rows], self._columns)
        logits = np.log(np.maximum(p, 1e-12)) + self._weight * change
        logits -= logits.max(axis=1, keepdims=True)
        raised = np.exp(logits)
        known = p.sum(axis=1, keepdims=True)  # the rest is for classes that nobody has labelled
        return np.asarray(known * raised / raised.sum(axis=1, keepdims=True))

    def _add(self, z: NDArray, delta: Delta) -> NDArray:
        if delta.code >= z.shape[1]:
            z = np.concatenate([z, np.zeros((len(z), delta.code + 1 - z.shape[1]), np.float32)], axis=1)
        z[delta.rows, delta.code] += delta.values
        return z


def _log_shares(z: NDArray, columns: NDArray) -> NDArray:
    """Logarithms of propagated distributions over the columns' classes (m, columns)."""
    wide = np.concatenate([z, np.zeros((len(z), max(0, columns.max(initial=-1) + 1 - z.shape[1])), z.dtype)], axis=1)
    known = np.maximum(wide[:, columns], 0)
    total = known.sum(axis=1, keepdims=True)
    shares = np.where(total > 0, known / np.where(total > 0, total, 1), 1 / max(1, len(columns)))
    return np.asarray(np.log(shares + _FLOOR / max(1, len(columns))))


def _table(raw: NDArray, calibrated: NDArray) -> NDArray:
    """The calibration of confidences as a table (2, k): means of groups of equal size, in increasing order."""
    if len(raw) < _GROUPS:
        return np.array([[0.0, 1.0], [0.0, 1.0]])
    groups = np.array_split(np.argsort(raw, kind="stable"), _GROUPS)
    return np.array([[values[group].mean() for group in groups] for values in (raw, calibrated)])


def _with_largest(p: NDArray, largest: NDArray) -> NDArray:
    """Distributions (n, c) whose largest probabilities are these (n,); the others are scaled to match."""
    best, top = p.argmax(axis=1), np.maximum(p.max(axis=1), 1e-12)
    labelled = top >= 1
    goal = np.where(labelled, 1, largest)
    scale = np.minimum(goal / top, np.divide(1 - goal, 1 - top, out=np.ones_like(goal), where=~labelled))
    made = (p * scale[:, None]).astype(np.float32)
    made[np.arange(len(p)), best] = goal
    return np.asarray(made)
