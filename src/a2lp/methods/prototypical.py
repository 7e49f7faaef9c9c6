"""Prototypical classifier: Snell, Swersky and Zemel, "Prototypical networks for few-shot learning", NeurIPS 2017.

Each class is the mean of its support vectors, and a query belongs to the nearest mean. Inductive. As in the authors'
code, means are not normalised again, so with several shots the nearest mean is Euclidean, not by cosine.
"""

from __future__ import annotations

from dataclasses import dataclass

from a2lp.methods._maths import squared_distances
from a2lp.methods.base import Method, Outcome, Points, scored


@dataclass(frozen=True, kw_only=True)
class Prototypical(Method):
    """Nearest class mean; scores are -|x - w|^2."""

    def _solve(self, points: Points) -> Outcome:
        means = points.class_means
        return scored(-squared_distances(points.query, means), anchors=means)
