"""OSLO: Boudiaf, Bennequin, Tami, Toubhans, Piantanida, Hudelot and Ben Ayed, "Open-set likelihood maximization for
few-shot learning", CVPR 2023.

Queries may belong to none of the classes. Each has a probability of being an inlier, xi, and soft labels z; both follow
in closed form from its cosines l_c with the class means: xi = sigmoid(sum_c z_c l_c / 0.05), z = softmax(xi l / 0.1).
Means are those of all points, weighted by xi z; the support has xi = 1. No class marginal is assumed; no base data.

Settings are those of the authors' code. There vectors are centred on the base classes; here that is ``preprocess``,
which centres each task on itself by default, so that cosines of unlike points are about zero, where xi is one half.
"""

from __future__ import annotations

from dataclasses import dataclass

from a2lp.arrays import Array, namespace, softmax
from a2lp.checks import number, whole
from a2lp.methods.base import Method, Outcome, Points, scored
from a2lp.preprocess import l2
from a2lp.tasks.batch import TaskBatch


@dataclass(frozen=True, kw_only=True)
class OSLO(Method):
    """Class means of likely inliers; probabilities are the softmax of tau times the cosines with them.

    ``outliers`` ranks the queries by how little they belong to any class.

    Parameters
    ----------
    lambda_s, lambda_z : float
        Widths of the sigmoid of the inlier scores and of the softmax of the labels.
    steps : int
        Rounds of scores, labels and means.
    """

    preprocess: str = "plc"
    lambda_s: float = number(0.05, "positive", "The authors use 0.05.")
    lambda_z: float = number(0.1, "positive", "The authors use 0.1.")
    steps: int = whole(2, 1, "The authors use 2.")

    def outliers(self, batch: TaskBatch) -> Array:
        """One minus the probability that each query belongs to one of the classes (b, q).

        Parameters
        ----------
        batch : TaskBatch
        """
        self._check(batch)
        inlier, _ = self._rounds(self._points(batch))
        return 1.0 - inlier[:, : batch.n_query, 0]

    def _solve(self, points: Points) -> Outcome:
        _, means = self._rounds(points)
        xp = namespace(means)
        cosines = l2(points.query) @ xp.matrix_transpose(l2(means))
        return scored(cosines, anchors=means, steps=self.steps)

    def _rounds(self, points: Points) -> tuple[Array, Array]:
        """Probabilities of the unlabelled points to be inliers (b, m, 1), and class means (b, c, d)."""
        xp, rest = namespace(points.vectors), points.rest
        unit, labels, means = l2(rest), points.labels, points.class_means
        shares = xp.ones_like(unit @ xp.matrix_transpose(means)) / points.n_classes  # (b, m, c)
        inlier = shares[:, :, :1]
        for _ in range(self.steps):
            cosines = unit @ xp.matrix_transpose(l2(means))
            inlier = _sigmoid(xp.sum(shares * cosines, axis=2, keepdims=True) / self.lambda_s)
            shares = softmax(inlier * cosines / self.lambda_z)
            weights = xp.matrix_transpose(xp.concat([labels, inlier * shares], axis=1))  # (b, c, n)
            means = weights @ points.vectors / xp.sum(weights, axis=2, keepdims=True)
        return inlier, means


def _sigmoid(x: Array) -> Array:
    xp = namespace(x)
    small = xp.exp(-xp.abs(x))  # never overflows
    return xp.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))
