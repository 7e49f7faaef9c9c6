"""Instance credibility inference, LR+ICI: Wang, Xu, Liu, Zhang and Fu, "Instance credibility inference for few-shot
learning", CVPR 2020.

A logistic regression on the support labels the queries; the labels that a linear fit on few dimensions needs no
correction for are believed, a few of each class, and the regression is fitted again with them, until all are in.

No base data, and no marginal is assumed, though every class may bring equally many in each round. As in the authors'
code (first version): PCA to five dimensions, five of a class in a round, all rounds. Their two solvers, L-BFGS and
coordinate descent over a hundred penalties, are replaced by Newton's methods that find the exact minimum of the
same problems; where several instances enter at one penalty, those that fit best come first, not those that the
caller named first. Unlabelled points count as queries. The rounds are compiled for NumPy; other arrays come and go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from a2lp.arrays import like, namespace, one_hot, to_numpy
from a2lp.cores import map_on_cores
from a2lp.methods.base import Method, Outcome, Points, direct_outcome, require_number, require_whole

NdArray = np.ndarray[Any, Any]

_TOLERANCE = 1e-3  # of a regression that only labels; a gradient's length, where C times an error is of order C
_FINAL_TOLERANCE = 1e-9
_NO_DIRECTION = 1e-10  # a principal component with this share of the spread is rounding


@dataclass(frozen=True, kw_only=True)
class ICI(Method):
    """Logistic regression with credible pseudo-labels; scores are its log-probabilities over tau.

    Parameters
    ----------
    C : float
        Weight of the logistic regression's loss against its penalty, as in scikit-learn.
    n_components : int
        Dimensions that credibility is judged in.
    per_round : int
        Queries that a class may gain in a round.
    """

    C: float = 10.0
    n_components: int = 5
    per_round: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("C", self.C, "positive", lambda v: v > 0, "The paper uses 10.")
        require_whole("n_components", self.n_components, 1, "The paper uses 5.")
        require_whole("per_round", self.per_round, 1, "The paper uses 5.")

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        xp = namespace(points.support)
        everything = points.vectors
        gram = to_numpy(everything @ xp.matrix_transpose(everything)).astype(np.float64)  # (b, n, n)
        codes = to_numpy(points.codes).astype(np.int64)
        axes = _principal_axes(gram, int(self.n_components))
        found = map_on_cores(lambda i: self._rounds(gram[i], axes[i], codes[i], points.n_classes), range(gram.shape[0]))
        scores = np.stack(found)[:, : points.n_query, :] / self.tau
        reason = "credible labels are chosen task by task, so each task is compiled code on a core"
        return direct_outcome(like(scores, points.support, points.support.dtype)), ("fused_cpu", reason)

    def _rounds(self, gram: NdArray, axes: NdArray, codes: NdArray, n_classes: int) -> NdArray:
        """Log-probabilities (q, c) of one task's queries."""
        from a2lp.engines import _ici_kernel, _logistic_kernel

        s, n = len(codes), len(gram)
        labels = np.concatenate([codes, np.zeros(n - s, np.int64)])
        training = np.arange(s)
        coefficients = np.zeros((n_classes, s + 1))  # of the points in training, then the biases
        memory = _ici_kernel.make_path_memory(len(axes), n_classes, n)

        def fit(tolerance: float) -> None:
            inner = gram[np.ix_(training, training)]
            work = np.empty((_logistic_kernel.FIT_ARRAYS, *coefficients.shape))
            _logistic_kernel.fit(inner, labels[training], float(self.C), coefficients, tolerance, work)

        def logits() -> NdArray:
            return np.asarray(gram[s:, training] @ coefficients[:, :-1].T + coefficients[:, -1])

        fit(_TOLERANCE)
        while len(training) < n:
            labels[s:] = np.argmax(logits(), axis=1)
            place, share = np.zeros(n, np.int64), np.zeros(n)
            _ici_kernel.credibility(axes, one_hot(labels, n_classes, np.float64).T.copy(), place, share, memory)
            new = self._credible(labels, place, share, training)
            training = np.concatenate([training, new])
            grown = np.zeros((n_classes, len(new)))  # the new points start without weight
            coefficients = np.concatenate([coefficients[:, :-1], grown, coefficients[:, -1:]], axis=1)
            fit(_TOLERANCE if len(training) < n else _FINAL_TOLERANCE)
        z = logits()
        z -= z.max(axis=1, keepdims=True)
        return np.asarray(z - np.log(np.exp(z).sum(axis=1, keepdims=True)))

    def _credible(self, labels: NdArray, place: NdArray, share: NdArray, training: NdArray) -> NdArray:
        """The instances that this round adds: of each class those that need no correction at the least penalty."""
        outside = np.ones(len(labels), bool)
        outside[training] = False
        order = np.lexsort((share, place))
        order = order[outside[order]]
        same = labels[order][:, None] == labels[order]
        return np.asarray(order[np.tril(same).sum(axis=1) <= self.per_round])


def _principal_axes(gram: NdArray, n_components: int) -> NdArray:
    """Orthonormal rows (b, r, n) that span the principal components of points with these inner products."""
    rows = gram - gram.mean(axis=1, keepdims=True)
    centred = rows - rows.mean(axis=2, keepdims=True)
    values, vectors = np.linalg.eigh(centred)
    top, axes = values[:, -n_components:], vectors[:, :, -n_components:]
    floor = np.maximum(_NO_DIRECTION * values[:, -1:], np.finfo(np.float64).tiny)
    return np.ascontiguousarray(np.swapaxes(np.where((top > floor)[:, None, :], axes, 0.0), 1, 2))
