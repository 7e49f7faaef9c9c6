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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from a2lp.arrays import Array, namespace, one_hot
from a2lp.methods._maths import gram_distances
from a2lp.methods.base import DIRECT, Method, Outcome, Points, direct_outcome, require_number

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

    alpha_vectors: float = 0.5
    alpha: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, usual in (("alpha_vectors", 0.5), ("alpha", 0.2)):
            remedy = f"At 1 the propagation has no unique solution; the authors use {usual}."
            require_number(name, getattr(self, name), "at least 0 and below 1", lambda v: 0 <= v < 1, remedy)

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        xp = namespace(points.support)
        s, q, c = points.support.shape[1], points.n_query, points.n_classes
        vectors = points.vectors  # (b, n, d)
        vectors = xp.linalg.inv(_resisting(vectors, self.alpha_vectors)) @ vectors
        labels = one_hot(points.codes, c, vectors.dtype)  # (b, s, c)
        none = xp.zeros((labels.shape[0], points.rest.shape[1], c), dtype=labels.dtype, device=device(labels))
        start = xp.concat([labels, none], axis=1)  # (b, n, c)
        # a last column of ones gives the sums over all points, since no entry of the inverse is negative
        start = xp.concat([start, xp.ones_like(start[:, :, :1])], axis=2)
        found = xp.linalg.solve(_resisting(vectors, self.alpha), start)[:, s : s + q, :]
        parts = xp.clip(found[:, :, :c], min=0.0) / found[:, :, c:]
        return direct_outcome(xp.log(parts + _LOG_OFFSET) / self.tau), DIRECT


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
    squares = xp.sum(counted * (distances - mean) ** 2, axis=(1, 2), keepdims=True)
    spread = xp.sqrt(squares / xp.clip(count - 1, min=1.0))
    alike = spread <= 32 * xp.finfo(distances.dtype).eps * mean
    return xp.where(alike, xp.ones_like(spread), spread)
