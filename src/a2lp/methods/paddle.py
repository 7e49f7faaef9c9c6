"""PADDLE: Martin, Boudiaf, Chouzenoux, Pesquet and Ben Ayed, "Towards practical few-shot query sets: transductive
minimum description length inference", NeurIPS 2022.

Soft k-means whose assignments are also drawn to classes that already have many queries, which is the price in bits of
using a class; made for many classes of which few occur among the queries. No uniform marginal is assumed (rather the
opposite), and no base data are used.

As in the authors' code (``paddle``): every dimension is divided by its range over the queries of the task, there is no
temperature, and the labels are the assignments of the last step. Their weight of the prior, lambda = 75, is the number
of queries in every published setting and is divided by it; here ``weight`` is that quotient, so it stays 1
whatever the number of queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from a2lp.arrays import Array, largest_safe, namespace
from a2lp.checks import number, whole
from a2lp.methods._maths import class_softmax
from a2lp.methods.base import Method, Outcome, Points, scored

_OFFSET = 1e-6  # inside the logarithm of a class' share, as in the authors' code


@dataclass(frozen=True, kw_only=True)
class PADDLE(Method):
    """Soft k-means with a price on the number of classes in use; probabilities are the last assignments.

    Parameters
    ----------
    steps : int
        Rounds of assignments and means.
    weight : float
        Of the logarithm of a class' share; 0 is soft k-means.
    """

    preprocess: str = "none"
    steps: int = whole(100, 1, "The authors use 100.")
    weight: float = number(1.0, "0 or more", "The authors use 1.")

    def _solve(self, points: Points) -> Outcome:
        xp = namespace(points.support)
        s = points.support.shape[1]
        labels = xp.matrix_transpose(points.labels)  # (b, c, s)
        vectors = points.vectors  # (b, n, d)
        scaled = _by_range(vectors, s)
        gram = scaled @ xp.matrix_transpose(scaled)  # (b, n, n)
        # means are weighted sums of points, so their distances follow from the points' inner products
        members = xp.concat([labels, xp.zeros_like(gram[:, : points.n_classes, s:])], axis=2)  # (b, c, n)
        prior = 0.0
        for _ in range(self.steps):
            parts = members / xp.sum(members, axis=2, keepdims=True)
            cross = parts @ gram  # (b, c, n)  <w_c, x_j>
            squares = xp.sum(parts * cross, axis=2, keepdims=True)  # |w_c|^2
            logits = (cross - 0.5 * squares)[:, :, s:] + prior  # |x|^2 is the same for every class
            shares = class_softmax(logits)  # (b, c, r)
            prior = self.weight * xp.log(xp.mean(shares, axis=2, keepdims=True) + _OFFSET)
            members = xp.concat([labels, shares], axis=2)
        scores = xp.matrix_transpose(logits[:, :, : points.n_query]) / self.tau
        return scored(scores, anchors=parts @ vectors, steps=self.steps)


def _by_range(vectors: Array, n_support: int) -> Array:
    """Each dimension divided by its range over the rest, and centred there so that inner products keep their digits.

    A range that is rounding beside the values of its dimension is none. What is still very far is brought within the
    range in which squares do not overflow.
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
