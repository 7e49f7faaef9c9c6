"""Adaptive manifold: Lazarou, Avrithis and Stathaki, "Adaptive manifold for imbalanced transductive few-shot
learning", WACV 2024.

Labels spread over a nearest-neighbour graph from one centroid for each class. The centroids, a scale for every
distance and a weight for every edge are then moved by Adam so that the mutual information of queries and labels
grows while the support stays right: TIM's losses on a graph.

AM assumes a uniform marginal softly, by a marginal entropy of weight ten; alpha-AM, made for unequal classes, has
weight one and entropies of order alpha, and is not counted as assuming it. No base data. As in the authors' code
centroids choose no neighbours but are chosen, W is not made symmetric again after its edges are weighed, and of all
updates the last comes too late to count. Where the code has log(p + 1e-12) we have log p from the logits; a query that
no label reaches takes the nearest centroid's. Alpha and neighbours for fewer than five shots are those for one.
Unlabelled points count as queries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from array_api_compat import device

from a2lp.arrays import namespace
from a2lp.engines import am
from a2lp.engines.tim import Objective
from a2lp.errors import InputError
from a2lp.methods._maths import class_means, squared_distances
from a2lp.methods.base import Method, Outcome, Points, require_adam, require_number, require_whole
from a2lp.optimizers import Adam


@dataclass(frozen=True, kw_only=True)
class AM(Method):
    """Adaptive manifold; scores are the last Z.

    Parameters
    ----------
    n_neighbors : int, optional
        Neighbours in the graph, at most all other nodes; by default 20, from five shots on 10, where shots are
        counted on the average of the classes.
    alpha : float, optional
        How far labels spread; by default 0.8, from five shots on 0.9.
    support_weight, marginal_weight, conditional_weight : float
        Weights of the support's cross-entropy and of the queries' marginal and conditional entropies.
    steps : int
        Rounds; 0 spreads labels on the graph as it is.
    lr, betas, eps
        Adam's.
    """

    assumes_uniform: ClassVar[bool] = True

    preprocess: str = "plc"
    n_neighbors: int | None = None
    alpha: float | None = None
    support_weight: float = 1.0
    marginal_weight: float = 10.0
    conditional_weight: float = 1.0
    steps: int = 1000
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_neighbors is not None:
            require_whole("n_neighbors", self.n_neighbors, 1, "The paper uses 20 and 10.")
        if self.alpha is not None:
            remedy = "At 1 the propagation has no unique solution; the paper uses 0.8 and 0.9."
            require_number("alpha", self.alpha, "at least 0 and below 1", lambda v: 0 <= v < 1, remedy)
        for name in ("support_weight", "marginal_weight", "conditional_weight"):
            require_number(name, getattr(self, name), "0 or more", lambda v: v >= 0, "The paper uses 1 or 10.")
        require_whole("steps", self.steps, 0, "0 spreads labels on the graph as it is.")
        require_number("lr", self.lr, "positive", lambda v: v > 0, "The paper uses 1e-4.")
        require_adam(self.betas, self.eps)

    def _order(self, shots: float) -> float:
        """The order of the entropies; 1 is Shannon's."""
        return 1.0

    def _settings(self, shots: float, n_nodes: int) -> am.Settings:
        alpha, k = (0.8, 20) if shots < 5 else (0.9, 10)
        objective = Objective(self.support_weight, self.marginal_weight, self.conditional_weight, self._order(shots))
        return am.Settings(
            n_neighbors=min(int(self.n_neighbors or k), n_nodes - 1),
            alpha=alpha if self.alpha is None else float(self.alpha),
            tau=float(self.tau),
            objective=objective,
        )

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        everything, codes, n_classes, n_query = points
        support, rest = points.support, points.rest
        xp = namespace(support)
        b, s, _ = support.shape
        settings = self._settings(s / n_classes, everything.shape[1] + n_classes)
        means = class_means(support, codes, n_classes)
        z, centroids = am.run(everything, codes, means, settings, self.steps, Adam(self.lr, self.betas, self.eps))
        if not bool(xp.all(xp.isfinite(z))):
            raise InputError(
                f"lr={self.lr} takes the weights of edges below zero, where labels cannot spread. Take a smaller lr, "
                f"or fewer than {self.steps} steps."
            )
        scores = z[:, s : s + n_query, :]
        reached = xp.max(scores, axis=-1) > 0
        nearest = xp.argmin(squared_distances(rest[:, :n_query, :], centroids), axis=-1)
        outcome = Outcome(
            scores=scores,
            codes=xp.where(reached, xp.argmax(scores, axis=-1), nearest),
            reached=reached,
            steps=xp.full((b,), self.steps, device=device(support)),
            converged=xp.zeros((b,), dtype=xp.bool, device=device(support)),
            anchors=centroids,
        )
        return outcome, am.choose(support, self.steps)


@dataclass(frozen=True, kw_only=True)
class AlphaAM(AM):
    """Adaptive manifold with entropies of order alpha; scores are the last Z.

    Parameters
    ----------
    order : float, optional
        Order of the entropies; by default 2 for one shot, else 5.
    n_neighbors, alpha, support_weight, marginal_weight, conditional_weight, steps, lr, betas, eps
        As for ``am``.
    """

    assumes_uniform: ClassVar[bool] = False

    order: float | None = None
    marginal_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order is not None:
            require_number("order", self.order, "1 or more", lambda v: v >= 1, "1 is Shannon's entropy.")

    def _order(self, shots: float) -> float:
        if self.order is not None:
            return float(self.order)
        return 2.0 if shots < 2 else 5.0
