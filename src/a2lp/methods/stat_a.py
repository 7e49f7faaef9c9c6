"""StatA: Zanella, Fuchs, De Vleeschouwer and Ben Ayed, "Realistic test-time adaptation of vision-language models",
CVPR 2025.

TransCLIP's mixture with a covariance for each class, and with means and covariances anchored to the names: a class with
n_c points keeps 1 / (1 + n_c) of its anchor. Named classes that do not occur stay at their names and attract nothing,
so any number of the classes may occur. No class shares, no base data.

The anchor's covariance is the spread of all points around the names; the authors' code divides it by the number of
points once for every 2500 of them, we divide once. Their code takes no shots; here shots are points whose label is
known. Another version of it leaves out the determinant of the covariance, and is far worse where few classes occur.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from a2lp.arrays import namespace, one_hot
from a2lp.checks import number, whole
from a2lp.methods._maths import log_scores
from a2lp.methods._names import at_least, gaussian_logits, smoothed, smoothing_graph, text_logits, weighted_variances
from a2lp.methods.base import Method, Outcome, Points, scored
from a2lp.preprocess import l2


@dataclass(frozen=True, kw_only=True)
class StatA(Method):
    """A mixture of Gaussians anchored to class names; probabilities are the final soft labels.

    Parameters
    ----------
    anchor_weight : float
        Points that an anchor counts for, the authors' alpha.
    n_neighbors : int
        Neighbours of each point in the graph.
    rounds : int
        Rounds of new means, covariances and soft labels.
    """

    uses_names: ClassVar[str] = "required"

    anchor_weight: float = number(1.0, "positive", "The authors use 1.")
    n_neighbors: int = whole(3, 1, "The authors use 3.")
    rounds: int = whole(10, 0, "The authors use 10.")

    def _solve(self, points: Points) -> Outcome:
        vectors, names, s = points.vectors, points.prototypes, points.codes.shape[1]
        assert names is not None
        xp = namespace(vectors)
        graph = smoothing_graph(vectors, self.n_neighbors)
        text = text_logits(points)[:, s:, :]
        shares = xp.concat([points.labels, xp.exp(text)], axis=1)  # (b, n, c)
        members = xp.matrix_transpose(shares)  # (b, c, n)
        sizes = xp.sum(members, axis=2, keepdims=True) / vectors.shape[1]  # sum to one
        spread = at_least(xp.sum(sizes * weighted_variances(vectors, names, members), axis=1, keepdims=True))
        means, variances = names, spread + xp.zeros_like(names)
        for step in range(self.rounds + 1):
            volume = 0.5 * xp.sum(xp.log(variances), axis=-1)[:, None, :]
            shares = smoothed(gaussian_logits(vectors, means, variances) - volume, text, graph, shares, s)
            if step < self.rounds:
                members = xp.matrix_transpose(shares)
                counts = xp.sum(one_hot(xp.argmax(shares, axis=-1), points.n_classes, vectors.dtype), axis=1)
                trust = (counts / (self.anchor_weight + counts))[:, :, None]  # (b, c, 1)
                means = l2(trust * l2(members @ vectors) + (1 - trust) * names)
                own = weighted_variances(vectors, means, members)
                variances = trust * own + (1 - trust) * (spread + (names - means) ** 2)
        return scored(log_scores(shares[:, s : s + points.n_query, :], self.tau), steps=self.rounds, anchors=means)
