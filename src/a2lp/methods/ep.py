"""Embedding propagation: Rodriguez, Laradji, Drouin and Lacoste, "Embedding propagation: smoother manifold for
few-shot classification", ECCV 2020.

The vectors of a task are averaged over their dense graph, which draws clusters together, and labels are then
propagated over the graph of the averaged vectors. Nothing is assumed about how many queries a class has, and no base
data are used.

The authors train the network with the averaging inside and use its vectors as they are; on vectors of another network
both steps are an ablation, and the public code does much better on unit vectors, which are the default here (its
setting ``ep_l2``; ``preprocess="none"`` is its setting ``ep``). As in the code, squared distances are divided by the
standard deviation of those of the task that are not zero, and alpha is 0.5 for vectors and 0.2 for labels.
"""

from __future__ import annotations

from dataclasses import dataclass

from array_api_compat import device

from a2lp.arrays import Array, namespace
from a2lp.checks import number
from a2lp.engines.contract import NO_SOLUTION
from a2lp.methods._maths import gram_distances
from a2lp.methods.base import Method, Outcome, Points, scored

_DEGREE_OFFSET = 1e-4  # inside the root, as in the authors' code
_LOG_OFFSET = 1e-6  # inside the logarithm of a class' part, as in the authors' code


@dataclass(frozen=True, kw_only=True)
class EP(Method):
    """Propagated vectors, then propagated labels; probabilities are a query's parts of labels from each class.

    Parameters
    ----------
    alpha_vectors : float
        How far vectors travel, from 0 (nowhere) to below 1.
    alpha : float
        How far labels travel.
    """

    alpha_vectors: float = number(0.5, "at least 0 and below 1", f"{NO_SOLUTION} the authors use 0.5.")
    alpha: float = number(0.2, "at least 0 and below 1", f"{NO_SOLUTION} the authors use 0.2.")

    def _solve(self, points: Points) -> Outcome:
        xp = namespace(points.support)
        s, q, c = points.support.shape[1], points.n_query, points.n_classes
        vectors = points.vectors  # (b, n, d)
        vectors = xp.linalg.inv(_resisting(vectors, self.alpha_vectors)) @ vectors
        none = xp.zeros((*points.rest.shape[:2], c), dtype=vectors.dtype, device=device(vectors))
        start = xp.concat([points.labels, none], axis=1)  # (b, n, c)
        # a last column of ones gives the sums over all points, since no entry of the inverse is negative
        start = xp.concat([start, xp.ones_like(start[:, :, :1])], axis=2)
        found = xp.linalg.solve(_resisting(vectors, self.alpha), start)[:, s : s + q, :]
        parts = xp.clip(found[:, :, :c], min=0.0) / found[:, :, c:]
        return scored(xp.log(parts + _LOG_OFFSET) / self.tau)


def _resisting(vectors: Array, alpha: float) -> Array:
    """I - alpha S of the points' graph, whose inverse propagates (b, n, n)."""
    xp = namespace(vectors)
    eye = xp.eye(vectors.shape[1], dtype=vectors.dtype, device=device(vectors))
    centred = vectors - xp.mean(vectors, axis=1, keepdims=True)  # small vectors keep the digits of their differences
    distances = gram_distances(centred @ xp.matrix_transpose(centred))
    weights = xp.exp(-distances / _spread(distances)) * (1 - eye)
    scale = 1 / xp.sqrt(xp.sum(weights, axis=-1) + _DEGREE_OFFSET)
    return eye - alpha * (scale[:, :, None] * weights * scale[:, None, :])


def _spread(distances: Array) -> Array:
    """Standard deviation of a task's squared distances that are not zero (b, 1, 1); 1 where they are all alike."""
    xp = namespace(distances)
    counted = xp.astype(distances > 0, distances.dtype)
    count = xp.sum(counted, axis=(1, 2), keepdims=True)
    mean = xp.sum(distances, axis=(1, 2), keepdims=True) / xp.clip(count, min=1.0)
    unit = xp.where(mean > 0, mean, xp.ones_like(mean))  # squares of squared distances could leave the range of float32
    squares = xp.sum(counted * ((distances - mean) / unit) ** 2, axis=(1, 2), keepdims=True)
    relative = xp.sqrt(squares / xp.clip(count - 1, min=1.0))
    return xp.where(relative <= 32 * xp.finfo(distances.dtype).eps, xp.ones_like(mean), relative * unit)
