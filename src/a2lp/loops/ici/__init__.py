"""Credible pseudo-labels and logistic regression in turn (LR+ICI), task by task on inner products, for NumPy arrays.

Arrays of other libraries are converted, and the result is converted back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from a2lp.arrays import Array, NDArray, like, log_softmax, namespace, one_hot, to_numpy
from a2lp.checks import number, whole
from a2lp.cores import map_on_cores
from a2lp.engines.contract import Engine, Loop, Points

_TOLERANCE, _FINAL_TOLERANCE = 1e-3, 1e-9  # of the gradient's length, which is of order C: in the rounds, and last
_NO_DIRECTION = 1e-10  # share of the variance up to which a principal component is only rounding


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``methods.ici.ICI`` documents them."""

    C: float = number(10.0, "positive", "The paper uses 10.")
    n_components: int = whole(5, 1, "The paper uses 5.")
    per_round: int = whole(5, 1, "The paper uses 5.")


def _compiled(points: Points, settings: Settings) -> Array:
    vectors = points.vectors
    xp = namespace(vectors)
    gram = to_numpy(vectors @ xp.matrix_transpose(vectors)).astype(np.float64)  # (b, n, n)
    codes = to_numpy(points.codes).astype(np.int64)
    found = map_on_cores(lambda i: _rounds(gram[i], codes[i], points.n_classes, settings), range(len(gram)))
    return like(np.stack(found), vectors, vectors.dtype)


# the result is the log-probabilities of points without a label (b, n - s, c)
LOOP = Loop(
    "ici",
    (Engine("fused_cpu", _compiled, "credible labels are chosen task by task: each task is compiled code on a core"),),
)


def _rounds(gram: NDArray, codes: NDArray, n_classes: int, settings: Settings) -> NDArray:
    """Log-probabilities (n - s, c) of one task."""
    from a2lp.kernels import logistic
    from a2lp.loops.ici import kernel

    s, n, axes = len(codes), len(gram), _principal_axes(gram, settings.n_components)
    labels = np.concatenate([codes, np.zeros(n - s, np.int64)])
    training = np.arange(s)
    coefficients = np.zeros((n_classes, s + 1))  # of the training points, then the biases
    memory = kernel.make_path_memory(len(axes), n_classes, n)

    def fit(tolerance: float) -> None:
        inner = gram[np.ix_(training, training)]
        work = np.empty((logistic.FIT_ARRAYS, *coefficients.shape))
        logistic.fit(inner, labels[training], float(settings.C), coefficients, tolerance, work)

    def logits() -> NDArray:
        return np.asarray(gram[s:, training] @ coefficients[:, :-1].T + coefficients[:, -1])

    fit(_TOLERANCE)
    while len(training) < n:
        labels[s:] = np.argmax(logits(), axis=1)
        place, share = np.zeros(n, np.int64), np.zeros(n)
        kernel.credibility(axes, one_hot(labels, n_classes, np.float64).T.copy(), place, share, memory)
        new = _credible(labels, place, share, training, settings.per_round)
        training = np.concatenate([training, new])
        grown = np.zeros((n_classes, len(new)))
        coefficients = np.concatenate([coefficients[:, :-1], grown, coefficients[:, -1:]], axis=1)
        fit(_TOLERANCE if len(training) < n else _FINAL_TOLERANCE)
    return np.asarray(log_softmax(logits()))


def _credible(labels: NDArray, place: NDArray, share: NDArray, training: NDArray, per_round: int) -> NDArray:
    """The new training points of a round: of each class those that need no correction at the smallest penalties."""
    outside = np.ones(len(labels), bool)
    outside[training] = False
    order = np.lexsort((share, place))
    order = order[outside[order]]
    same = labels[order][:, None] == labels[order]
    return np.asarray(order[np.tril(same).sum(axis=1) <= per_round])


def _principal_axes(gram: NDArray, n_components: int) -> NDArray:
    """Orthonormal rows (r, n) that span the principal components of points with these inner products (n, n)."""
    rows = gram - gram.mean(axis=0)
    centred = rows - rows.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(centred)
    top, axes = values[-n_components:], vectors[:, -n_components:]
    floor = max(_NO_DIRECTION * values[-1], np.finfo(np.float64).tiny)
    return np.ascontiguousarray(np.where(top > floor, axes, 0.0).T)
