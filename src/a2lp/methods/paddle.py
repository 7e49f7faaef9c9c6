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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from a2lp.arrays import Array, namespace, one_hot
from a2lp.methods._maths import class_softmax
from a2lp.methods.base import DIRECT, Method, Outcome, Points, direct_outcome, require_number, require_whole

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
    steps: int = 100
    weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("steps", self.steps, 1, "The authors use 100.")
        require_number("weight", self.weight, "0 or more", lambda v: v >= 0, "The authors use 1.")

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        xp = namespace(points.support)
        s = points.support.shape[1]
        labels = xp.matrix_transpose(one_hot(points.codes, points.n_classes, points.support.dtype))  # (b, c, s)
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
        steps = xp.full((gram.shape[0],), self.steps, dtype=xp.int64, device=device(gram))
        scores = xp.matrix_transpose(logits[:, :, : points.n_query]) / self.tau
        return direct_outcome(scores, anchors=parts @ vectors, steps=steps), DIRECT


def _by_range(vectors: Array, n_support: int) -> Array:
    """Each dimension divided by its range over the rest, and centred there so that inner products keep their digits."""
    xp = namespace(vectors)
    rest = vectors[:, n_support:, :]
    low, high = xp.min(rest, axis=1, keepdims=True), xp.max(rest, axis=1, keepdims=True)
    width = xp.where(high > low, high - low, xp.ones_like(low))
    return (vectors - xp.mean(rest, axis=1, keepdims=True)) / width
