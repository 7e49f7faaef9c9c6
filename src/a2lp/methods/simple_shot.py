"""SimpleShot: Wang, Chao, Weinberger and van der Maaten, "SimpleShot: revisiting nearest-neighbor classification for
few-shot learning", 2019 (arXiv 1911.04623).

Vectors are centred on the mean of the base classes and brought to unit length (CL2N); a query then belongs to the
nearest class mean. Inductive: queries do not help each other. As in the authors' code, class means are not
normalised again. This is the public code's setting ``simpleshot_cl2n``; with ``preprocess="l2"`` it is their L2N
and the same as ``prototypical``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from a2lp.methods._maths import class_means, squared_distances
from a2lp.methods.base import DIRECT, Method, Outcome, Points, direct_outcome


@dataclass(frozen=True, kw_only=True)
class SimpleShot(Method):
    """Nearest class mean of vectors centred on the base classes; scores are -|x - w|^2."""

    preprocess: str = "cl2n"

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        means = class_means(points.support, points.codes, points.n_classes)
        return direct_outcome(-squared_distances(points.rest[:, : points.n_query, :], means), anchors=means), DIRECT
