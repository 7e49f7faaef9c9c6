"""Nearest class means.

Prototypical classifier: Snell, Swersky and Zemel, "Prototypical networks for few-shot learning", NeurIPS 2017.
SimpleShot: Wang, Chao, Weinberger and van der Maaten, "SimpleShot: revisiting nearest-neighbor classification for
few-shot learning", 2019 (arXiv 1911.04623).

Each class is the mean of its support vectors, and a query belongs to the nearest mean. Inductive. As in the authors'
code, means are not normalised again, so with several shots the nearest mean is Euclidean, not by cosine.

SimpleShot's vectors are centred on the mean of the base classes first (CL2N). This is the public code's setting
``simpleshot_cl2n``; with ``preprocess="l2"`` it is their L2N and the same as ``prototypical``.
"""

from __future__ import annotations

from dataclasses import dataclass

from a2lp.methods._maths import squared_distances
from a2lp.methods.base import Method, Outcome, Points, scored


@dataclass(frozen=True, kw_only=True)
class Prototypical(Method):
    """Nearest class mean; scores are -|x - w|^2.

    Examples
    --------
    >>> import a2lp
    >>> birds = a2lp.load("cub")
    >>> tasks = a2lp.draw("balanced", birds.labels, seed=0, n_way=5, n_shot=5, n_query=15, n_tasks=20)
    >>> found = a2lp.create("prototypical").predict(tasks.batch(birds.features)).labels
    >>> bool((found == tasks.query_labels).mean() > 0.8)
    True
    """

    def _solve(self, points: Points) -> Outcome:
        means = points.class_means
        return scored(-squared_distances(points.query, means), anchors=means)


@dataclass(frozen=True, kw_only=True)
class SimpleShot(Prototypical):
    """Nearest class mean of vectors centred on the base classes; scores are -|x - w|^2."""

    preprocess: str = "cl2n"
