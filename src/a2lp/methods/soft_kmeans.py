"""Soft k-means: Ren, Triantafillou, Ravi, Snell, Swersky, Tenenbaum, Larochelle and Zemel, "Meta-learning for
semi-supervised few-shot classification", ICLR 2018.

Class means start as those of the support; all other points are assigned softly to classes by a softmax of negative
squared distances, and the means are computed again from all points. No class marginal is assumed; no base data.

The authors' code takes one step, as here. It has no factor before the distances, since its network learns the scale of
its vectors. On unit vectors that softmax would be almost uniform, so distances are multiplied by 10.
"""

from __future__ import annotations

from dataclasses import dataclass

from a2lp.arrays import namespace, softmax
from a2lp.checks import number, whole
from a2lp.methods._maths import squared_distances
from a2lp.methods.base import Method, Outcome, Points, scored


@dataclass(frozen=True, kw_only=True)
class SoftKMeans(Method):
    """Class means refined by soft assignments; probabilities are softmax(-scale |x - w|^2).

    Parameters
    ----------
    steps : int
        Updates of the means; 0 keeps those of the support.
    scale : float
        Factor of the squared distances in the softmax.
    """

    steps: int = whole(1, 0, "The authors take 1.")
    scale: float = number(10.0, "positive", "10 suits unit vectors.")

    def _solve(self, points: Points) -> Outcome:
        rest, (support_sums, support_counts) = points.rest, points.class_sums
        xp = namespace(rest)
        means = support_sums / support_counts
        for _ in range(self.steps):
            shares = softmax(-self.scale * squared_distances(rest, means))  # (b, r, c)
            counts = support_counts + xp.sum(shares, axis=1)[:, :, None]
            means = (support_sums + xp.matrix_transpose(shares) @ rest) / counts
        distances = squared_distances(points.query, means)
        return scored(-(self.scale / self.tau) * distances, anchors=means, steps=self.steps)
