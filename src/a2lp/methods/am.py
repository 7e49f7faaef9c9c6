"""Adaptive manifold: Lazarou, Avrithis and Stathaki, "Adaptive manifold for imbalanced transductive few-shot
learning", WACV 2024.

Labels are propagated over a nearest-neighbour graph from one centroid per class. The centroids, a scale for every
distance and a weight for every edge are optimised by Adam for TIM's losses, computed on the graph.

AM assumes a uniform marginal softly, by a marginal entropy of weight ten; alpha-AM, made for unequal classes, has
weight one and entropies of order alpha, and does not count as assuming one. No base data. As in the authors' code,
centroids choose no neighbours but are chosen, W is not symmetrised again after its edges are weighted, and the last
update has no effect. Instead of the code's log(p + 1e-12), log p is computed from the logits; a query that no label
reaches gets the label of the nearest centroid. Unlabelled points count as queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from a2lp.arrays import namespace
from a2lp.checks import number, whole
from a2lp.engines.contract import NO_SOLUTION, AdamSettings, Callback, Loop
from a2lp.errors import InputError
from a2lp.loops import am
from a2lp.loops.tim import Objective
from a2lp.methods._maths import squared_distances
from a2lp.methods.base import LoopMethod, Outcome, Points, scored


@dataclass(frozen=True, kw_only=True)
class AM(AdamSettings, LoopMethod):
    """Adaptive manifold; scores are the last Z.

    Parameters
    ----------
    n_neighbors : int, optional
        Neighbours of each node, at most all others; by default 20, and 10 from five shots per class on average.
    alpha : float, optional
        How far labels propagate; by default 0.8, and 0.9 from five shots on.
    support_weight, marginal_weight, conditional_weight : float
        Weights of the support's cross-entropy and of the queries' marginal and conditional entropies.
    steps : int
        Rounds; 0 propagates labels on the initial graph.
    lr, betas, eps, engine
        Adam's, and the engine by name or ``"auto"``.
    """

    assumes_uniform: ClassVar[bool] = True
    loop: ClassVar[Loop] = am.LOOP

    preprocess: str = "plc"
    n_neighbors: int | None = whole(None, 1, "The paper uses 20 and 10.")
    alpha: float | None = number(None, "at least 0 and below 1", f"{NO_SOLUTION} the paper uses 0.8 and 0.9.")
    support_weight: float = number(1.0, "0 or more", "The paper uses 1.")
    marginal_weight: float = number(10.0, "0 or more", "The paper uses 10; alpha-AM 1.")
    conditional_weight: float = number(1.0, "0 or more", "The paper uses 1.")
    steps: int = whole(1000, 0, "0 propagates labels on the graph as it is.")

    def _order(self, shots: float) -> float:
        """The order of the entropies; 1 is Shannon's."""
        return 1.0

    def _settings(self, points: Points) -> am.Settings:
        shots, n_nodes = points.codes.shape[1] / points.n_classes, points.vectors.shape[1] + points.n_classes
        alpha, k = (0.8, 20) if shots < 5 else (0.9, 10)
        alpha = alpha if self.alpha is None else self.alpha
        objective = Objective(self.support_weight, self.marginal_weight, self.conditional_weight, self._order(shots))
        k = min(self.n_neighbors or k, n_nodes - 1)
        return am.Settings(k, alpha, self.tau, objective, self.steps, self.adam)

    def _solve(self, points: Points, callback: Callback | None = None) -> Outcome:
        ran = self._run(points, self._settings(points), callback)
        z, centroids = ran.result
        xp, s = namespace(z), points.codes.shape[1]
        if not bool(xp.all(xp.isfinite(z))):
            raise InputError(
                f"lr={self.lr} makes weights of edges negative, where labels cannot propagate. Take a smaller lr, "
                f"or fewer than {self.steps} steps."
            )
        scores = z[:, s : s + points.n_query, :]
        reached = xp.max(scores, axis=-1) > 0
        nearest = xp.argmin(squared_distances(points.query, centroids), axis=-1)
        codes = xp.where(reached, xp.argmax(scores, axis=-1), nearest)
        return scored(scores, steps=self.steps, ran=ran, anchors=centroids, codes=codes, reached=reached)


@dataclass(frozen=True, kw_only=True)
class AlphaAM(AM):
    """Adaptive manifold with entropies of order alpha; scores are the last Z.

    Parameters
    ----------
    order : float, optional
        Order of the entropies; by default 2 for one shot, else 5.
    n_neighbors, alpha, support_weight, marginal_weight, conditional_weight, steps, lr, betas, eps, engine
        As for ``am``.
    """

    assumes_uniform: ClassVar[bool] = False

    order: float | None = number(None, "1 or more", "1 is Shannon's entropy.")
    marginal_weight: float = 1.0

    def _order(self, shots: float) -> float:
        if self.order is not None:
            return self.order
        return 2.0 if shots < 2 else 5.0
