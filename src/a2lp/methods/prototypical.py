"""Prototypical classifier: Snell, Swersky and Zemel, "Prototypical networks for few-shot learning", NeurIPS 2017.

Each class is the mean of its support vectors, and a query belongs to the nearest mean. Inductive: queries do not
help each other. As in the authors' code, means are not normalised again, so with several shots this is the
nearest mean in the Euclidean sense and not by cosine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from a2lp.methods._maths import class_means, squared_distances
from a2lp.methods.base import DIRECT, Method, Outcome, Points, direct_outcome


@dataclass(frozen=True, kw_only=True)
class Prototypical(Method):
    """Nearest class mean; scores are -|x - w|^2."""

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        means = class_means(points.support, points.codes, points.n_classes)
        return direct_outcome(-squared_distances(points.rest[:, : points.n_query, :], means), anchors=means), DIRECT
