"""PADDLE: Martin, Boudiaf, Chouzenoux, Pesquet and Ben Ayed, "Towards practical few-shot query sets: transductive
minimum description length inference", NeurIPS 2022.

Soft k-means with a penalty on the number of classes in use, its description length: assignments also favour classes
with many queries. Made for tasks where few of many classes occur among the queries: no uniform marginal; no base data.

As in the authors' code (``paddle``): every dimension is divided by its range over the queries of the task, there is no
temperature, and the labels are the assignments of the last step. Their weight of the prior, lambda = 75, is the number
of queries in every published setting; here ``weight`` is lambda divided by that number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from a2lp.arrays import Array, largest_safe, namespace, softmax
from a2lp.checks import number, whole
from a2lp.methods.base import Method, Outcome, Points, scored

_OFFSET = 1e-6  # inside the logarithm of a class's share, as in the authors' code


@dataclass(frozen=True, kw_only=True)
class PADDLE(Method):
    """Soft k-means with a penalty on the number of classes in use; probabilities are the last assignments.

    Parameters
    ----------
    steps : int
        Rounds of assignments and means.
    weight : float
        Of the logarithm of a class's share; 0 is soft k-means.
    """

    preprocess: str = "none"
    steps: int = whole(100, 1, "The authors use 100.")
    weight: float = number(1.0, "0 or more", "The authors use 1.")

    def _solve(self, points: Points) -> Outcome:
        xp = namespace(points.vectors)
        s = points.codes.shape[1]
        scaled = _by_range(points.vectors, s)
        gram = scaled @ xp.matrix_transpose(scaled)  # (b, n, n)
        # means are weighted sums of points, so their distances follow from the points' inner products
        members = points.memberships  # (b, c, n)
        labels, prior = members[:, :, :s], 0.0
        for _ in range(self.steps):
            parts = members / xp.sum(members, axis=2, keepdims=True)
            cross = parts @ gram  # (b, c, n)  <w_c, x_j>
            squares = xp.sum(parts * cross, axis=2, keepdims=True)  # |w_c|^2
            logits = (cross - 0.5 * squares)[:, :, s:] + prior  # |x|^2 is the same for every class
            shares = softmax(logits, axis=1)  # (b, c, r)
            prior = self.weight * xp.log(xp.mean(shares, axis=2, keepdims=True) + _OFFSET)
            members = xp.concat([labels, shares], axis=2)
        scores = xp.matrix_transpose(logits[:, :, : points.n_query]) / self.tau
        return scored(scores, anchors=parts @ points.vectors, steps=self.steps)


def _by_range(vectors: Array, n_support: int) -> Array:
    """Each dimension divided by its range over the rest, and centred there against cancellation in inner products.

    A range that is only rounding counts as 1. Entries are clipped to the range in which squares do not overflow.
    """
    xp = namespace(vectors)
    eps, limit = xp.finfo(vectors.dtype).eps, largest_safe(vectors.dtype)
    rest = vectors[:, n_support:, :]
    low, high = xp.min(rest, axis=1, keepdims=True), xp.max(rest, axis=1, keepdims=True)
    noise = eps * xp.max(xp.abs(vectors), axis=1, keepdims=True)
    width = xp.where(high - low > noise, high - low, xp.ones_like(low))
    with np.errstate(over="ignore"):
        scaled = (vectors - xp.mean(rest, axis=1, keepdims=True)) / width
    return xp.clip(scaled, min=-limit, max=limit)
