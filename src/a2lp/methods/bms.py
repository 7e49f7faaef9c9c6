"""BMS: Hu, Pateux and Gripon, "Squeezing backbone feature distributions to the max for efficient few-shot learning",
Algorithms 15 (5), 2022 (arXiv 2110.09446).

Features are rooted, normalised and centred as in PT-MAP. Unit class means and soft labels are then computed in turn,
and the soft labels are scaled so that no class is smaller than a least size: the shots of a class at first, later the
size of the smallest class of the last round. The paper does not count this as knowing the classes' sizes. But the
smallest size counts the support, and what it bounds are the queries alone, so that it grows by a class's shots in
every round until all classes are equal, whatever they are: here it is listed with the methods that assume a uniform
marginal. No base data.

As in the authors' code with its defaults, class means are not trained further. The shots of the class that has fewest
are the first least size, where theirs are equal. Support and queries are centred together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from a2lp.arrays import Array, namespace, one_hot, softmax
from a2lp.checks import choice, number, whole
from a2lp.methods._maths import centred_unit_gram, filled, log_scores
from a2lp.methods.base import Method, Outcome, Points, scored
from a2lp.preprocess import POWERS, rooted, unit_gram

_LEAST = 1e-20  # mass that is never divided by, as in the scaling


@dataclass(frozen=True, kw_only=True)
class BMS(Method):
    """Unit class means with a least class size; probabilities are the soft labels.

    Parameters
    ----------
    power : {"clamp", "sign", "none"}
        As for ``pt_map``; only used with ``preprocess="none"``, the default.
    lam : float
        Factor of the cosines in the softmax.
    steps : int
        Rounds of soft labels and means.
    """

    assumes_uniform: ClassVar[bool] = True

    preprocess: str = "none"
    power: str = choice("clamp", POWERS)
    lam: float = number(8.5, "positive", "The authors use 8.5.")
    steps: int = whole(20, 1, "The authors use 20.")

    def _solve(self, points: Points) -> Outcome:
        xp, n, s = namespace(points.vectors), points.vectors.shape[1], points.codes.shape[1]
        x = rooted(points.vectors, self.power) if self.preprocess == "none" else points.vectors
        gram = centred_unit_gram(unit_gram(x @ xp.matrix_transpose(x)), (n,))  # (b, n, n)
        given = points.memberships[:, :, :s]  # (b, c, s)
        least = xp.min(xp.sum(given, axis=2), axis=1)[:, None, None]  # (b, 1, 1)
        shares = points.memberships  # (b, c, n)  zero where there is no label
        for _ in range(self.steps):
            likely = softmax(self.lam * _cosines(shares, gram)[:, :, s:], axis=1)
            shares = xp.concat([given, filled(likely, least)], axis=2)
            labels = one_hot(xp.argmax(shares, axis=1), points.n_classes, shares.dtype)  # (b, n, c)
            least = xp.min(xp.sum(labels, axis=1), axis=1)[:, None, None]
        found = xp.matrix_transpose(shares[:, :, s : s + points.n_query])
        found = found / xp.clip(xp.sum(found, axis=2, keepdims=True), min=_LEAST)
        return scored(log_scores(found, self.tau), steps=self.steps)


def _cosines(weights: Array, gram: Array) -> Array:
    """Cosines (b, c, n) of points with their sums under weights (b, c, n)."""
    xp = namespace(gram)
    cross = weights @ gram
    squares = xp.sum(weights * cross, axis=2, keepdims=True)
    some = squares > 32 * float(xp.finfo(gram.dtype).eps)
    return cross / xp.where(some, xp.sqrt(xp.where(some, squares, xp.ones_like(squares))), xp.ones_like(squares))
