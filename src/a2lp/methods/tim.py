"""Transductive information maximisation.

TIM-GD, TIM-ADM: Boudiaf, Masud, Rony, Dolz, Piantanida and Ben Ayed, "Transductive information maximization for
few-shot learning", NeurIPS 2020. alpha-TIM: Veilleux, Boudiaf, Piantanida and Ben Ayed, "Realistic evaluation of
transductive few-shot learning", NeurIPS 2021.

Class weights start as the support's means and are moved so that the mutual information of queries and labels grows:
each query sure of its class, all classes used, the support still right. GD does it by Adam, ADM by closed-form
updates with a label matrix between; alpha-TIM takes entropies of order alpha, which mind unequal classes less.

TIM assumes a uniform marginal softly: the marginal entropy is largest when every class has equally many queries.
alpha-TIM was made for unequal classes; its marginal entropy pulls weakly, and it is not counted among those. No
base data. The logits are -tau |x - w|^2 / 2 and the weights of the losses those of the authors' code, which for ADM
counts sums over points where GD takes means. Where the code has log(p + 1e-12) we have log p from the logits, which
cannot vanish. Unlabelled points count as queries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from array_api_compat import device

from a2lp.arrays import Array, namespace, one_hot, softmax
from a2lp.engines import tim
from a2lp.methods._maths import class_means, squared_distances
from a2lp.methods.base import (
    DIRECT,
    Method,
    Outcome,
    Points,
    direct_outcome,
    require_adam,
    require_number,
    require_whole,
)
from a2lp.optimizers import Adam


@dataclass(frozen=True, kw_only=True)
class _TIM(Method):
    """What the three share: their losses' weights, and scores -|x - w|^2 / 2."""

    assumes_uniform: ClassVar[bool] = True

    support_weight: float = 0.1
    marginal_weight: float = 1.0
    conditional_weight: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("support_weight", "marginal_weight", "conditional_weight"):
            require_number(name, getattr(self, name), "0 or more", lambda v: v >= 0, "The papers use 0.1, 1 or 10.")

    def _outcome(self, points: Points, weights: Array, steps: int) -> Outcome:
        scores = -0.5 * squared_distances(points.rest[:, : points.n_query, :], weights)
        taken = namespace(scores).full((scores.shape[0],), steps, device=device(scores))
        return direct_outcome(scores, anchors=weights, steps=taken)


@dataclass(frozen=True, kw_only=True)
class TIMGD(_TIM):
    """Mutual information by Adam on the class weights; scores are -|x - w|^2 / 2.

    Parameters
    ----------
    support_weight, marginal_weight, conditional_weight : float
        Weights of the support's cross-entropy and of the queries' marginal and conditional entropies.
    steps, lr, betas, eps
        Adam's.
    """

    steps: int = 1000
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("steps", self.steps, 0, "0 leaves the class means as they are.")
        require_number("lr", self.lr, "positive", lambda v: v > 0, "The paper uses 1e-4.")
        require_adam(self.betas, self.eps)

    def _order(self, shots: float) -> float:
        """The order of the entropies; 1 is Shannon's."""
        return 1.0

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        support, rest = points.support, points.rest
        codes, n_classes = points.codes, points.n_classes
        order = self._order(support.shape[1] / n_classes)
        weights = tim.run(
            support,
            rest,
            codes,
            class_means(support, codes, n_classes),
            objective=tim.Objective(self.support_weight, self.marginal_weight, self.conditional_weight, order),
            tau=self.tau,
            steps=self.steps,
            adam=Adam(self.lr, self.betas, self.eps),
        )
        return self._outcome(points, weights, self.steps), tim.choose(support, self.steps)


@dataclass(frozen=True, kw_only=True)
class AlphaTIM(TIMGD):
    """TIM-GD with entropies of order alpha; scores are -|x - w|^2 / 2.

    Parameters
    ----------
    alpha : float, optional
        Order of the entropies; by default as the authors tuned it: 2 for one shot, 7 for five and more, else 5,
        where shots are counted on the average of the classes.
    support_weight, marginal_weight, conditional_weight : float
        Weights of the support's cross-entropy and of the queries' marginal and conditional entropies.
    steps, lr, betas, eps
        Adam's.
    """

    assumes_uniform: ClassVar[bool] = False

    alpha: float | None = None
    support_weight: float = 1.0
    conditional_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha is not None:
            require_number("alpha", self.alpha, "1 or more", lambda v: v >= 1, "1 is Shannon's entropy.")

    def _order(self, shots: float) -> float:
        if self.alpha is not None:
            return self.alpha
        return 2.0 if shots < 2 else 5.0 if shots < 5 else 7.0


@dataclass(frozen=True, kw_only=True)
class TIMADM(_TIM):
    """Mutual information by alternating directions; scores are -|x - w|^2 / 2.

    Parameters
    ----------
    support_weight, marginal_weight, conditional_weight : float
        Weights of the support's cross-entropy and of the queries' marginal and conditional entropies.
    steps : int
        Rounds of labels and weights.
    """

    steps: int = 150

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("steps", self.steps, 0, "0 leaves the class means as they are.")
        rule = "positive, or a class may lose all of its points"
        require_number("support_weight", self.support_weight, rule, lambda v: v > 0, "The paper uses 0.1.")

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        everything, codes, n_classes, _ = points
        support, rest = points.support, points.rest
        xp = namespace(support)
        s, m = support.shape[1], rest.shape[1]
        gram = everything @ xp.matrix_transpose(everything)  # (b, n, n)
        labels = one_hot(codes, n_classes, support.dtype)
        counts = xp.sum(labels, axis=1, keepdims=True)
        on_support = self.support_weight / (1 + self.conditional_weight)
        on_query = s / m
        sharpen = 1 + self.conditional_weight
        balance = self.marginal_weight / (1 + self.marginal_weight)
        # All weights are combinations of the points, w = sum_i a_i x_i: the rounds go over a (b, n, c) alone.
        none = xp.zeros((*rest.shape[:2], n_classes), dtype=support.dtype, device=device(support))
        a = xp.concat([labels / counts, none], axis=1)
        for _ in range(self.steps):
            cross = gram @ a  # x . w
            log_p = _log_softmax(self.tau * (cross - 0.5 * xp.sum(a * cross, axis=1, keepdims=True)))
            p = xp.exp(log_p)
            p_s, p_q = p[:, :s, :], p[:, s:, :]
            z = sharpen * log_p[:, s:, :]
            found = softmax(z - balance * _log_sum(z))  # the label matrix between
            pull = on_support * xp.sum(p_s, axis=1, keepdims=True) + on_query * xp.sum(p_q, axis=1, keepdims=True)
            mass = on_support * counts + on_query * xp.sum(found, axis=1, keepdims=True)
            a = (xp.concat([on_support * (labels - p_s), on_query * (found - p_q)], axis=1) + a * pull) / mass
        weights = xp.matrix_transpose(a) @ everything
        return self._outcome(points, weights, self.steps), DIRECT


def _log_softmax(z: Array) -> Array:
    xp = namespace(z)
    z = z - xp.max(z, axis=-1, keepdims=True)
    return z - xp.log(xp.sum(xp.exp(z), axis=-1, keepdims=True))


def _log_sum(z: Array) -> Array:
    """log(sum_i exp(z_i)) over the points."""
    xp = namespace(z)
    top = xp.max(z, axis=1, keepdims=True)
    return top + xp.log(xp.sum(xp.exp(z - top), axis=1, keepdims=True))
