"""Embedding propagation: Rodriguez, Laradji, Drouin and Lacoste, "Embedding propagation: smoother manifold for
few-shot classification", ECCV 2020.

The vectors of a task are propagated over their dense graph, which draws clusters together, and labels are then
propagated over the graph of the new vectors. No class marginal is assumed; no base data.

The authors train the network with this propagation inside and use its vectors as they are; on vectors of another
network both steps are an ablation. There the public code does much better on unit vectors, the default here (its
setting ``ep_l2``; ``preprocess="none"`` is its setting ``ep``). As in the code, squared distances are divided by the
standard deviation of the non-zero ones of the task, and alpha is 0.5 for vectors and 0.2 for labels.
"""

from __future__ import annotations

from dataclasses import dataclass

from a2lp.arrays import Array, device, namespace
from a2lp.checks import number
from a2lp.engines.contract import NO_SOLUTION
from a2lp.graph import normalise
from a2lp.methods._maths import gram_distances, solve
from a2lp.methods.base import Method, Outcome, Points, scored

_DEGREE_OFFSET = 1e-4  # as in the authors' code
_LOG_OFFSET = 1e-6  # inside the logarithm of a class's share, as in the authors' code


@dataclass(frozen=True, kw_only=True)
class EP(Method):
    """Propagated vectors, then propagated labels; probabilities are the classes' shares in a query's labels.

    Parameters
    ----------
    alpha_vectors, alpha : float
        How far vectors and labels propagate, from 0 (nowhere) to below 1.
    """

    alpha_vectors: float = number(0.5, "at least 0 and below 1", f"{NO_SOLUTION} the authors use 0.5.")
    alpha: float = number(0.2, "at least 0 and below 1", f"{NO_SOLUTION} the authors use 0.2.")

    def _solve(self, points: Points) -> Outcome:
        xp = namespace(points.vectors)
        s, q, c = points.codes.shape[1], points.n_query, points.n_classes
        vectors = xp.linalg.inv(_system(points.vectors, self.alpha_vectors)) @ points.vectors  # (b, n, d)
        labels = points.all_labels  # (b, n, c)
        # a last column of ones gives the sums over all points, since no entry of the inverse is negative
        start = xp.concat([labels, xp.ones_like(labels[:, :, :1])], axis=2)
        found = solve(_system(vectors, self.alpha), start)[:, s : s + q, :]
        shares = xp.clip(found[:, :, :c], min=0.0) / found[:, :, c:]
        return scored(xp.log(shares + _LOG_OFFSET) / self.tau)


def _system(vectors: Array, alpha: float) -> Array:
    """I - alpha S of the points' graph (b, n, n), whose inverse propagates."""
    xp = namespace(vectors)
    eye = xp.eye(vectors.shape[1], dtype=vectors.dtype, device=device(vectors))
    centred = vectors - xp.mean(vectors, axis=1, keepdims=True)  # against cancellation in the distances
    distances = gram_distances(centred @ xp.matrix_transpose(centred))
    weights = xp.exp(-distances / _spread(distances)) * (1 - eye)
    return eye - alpha * normalise(weights, _DEGREE_OFFSET)


def _spread(distances: Array) -> Array:
    """Standard deviation of a task's non-zero squared distances (b, 1, 1); 1 where they are all equal."""
    xp = namespace(distances)
    counted = xp.astype(distances > 0, distances.dtype)
    count = xp.sum(counted, axis=(1, 2), keepdims=True)
    mean = xp.sum(distances, axis=(1, 2), keepdims=True) / xp.clip(count, min=1.0)
    unit = xp.where(mean > 0, mean, xp.ones_like(mean))  # fourth powers of distances could overflow float32
    squares = xp.sum(counted * ((distances - mean) / unit) ** 2, axis=(1, 2), keepdims=True)
    relative = xp.sqrt(squares / xp.clip(count - 1, min=1.0))
    return xp.where(relative <= 32 * xp.finfo(distances.dtype).eps, xp.ones_like(mean), relative * unit)
