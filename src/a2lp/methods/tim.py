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

from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import device

from a2lp.arrays import Array, namespace, softmax
from a2lp.checks import number, whole
from a2lp.engines.contract import AdamSettings, Callback, Loop
from a2lp.loops import tim
from a2lp.methods._maths import squared_distances
from a2lp.methods.base import LoopMethod, Method, Outcome, Points, scored


@dataclass(frozen=True, kw_only=True)
class _TIM(Method):
    """What the three share: their losses' weights, and scores -|x - w|^2 / 2."""

    assumes_uniform: ClassVar[bool] = True

    support_weight: float = number(0.1, "0 or more", "TIM uses 0.1, alpha-TIM 1.")
    marginal_weight: float = number(1.0, "0 or more", "The papers use 1.")
    conditional_weight: float = number(0.1, "0 or more", "TIM uses 0.1, alpha-TIM 1.")


@dataclass(frozen=True, kw_only=True)
class TIMGD(AdamSettings, _TIM, LoopMethod):
    """Mutual information by Adam on the class weights; scores are -|x - w|^2 / 2.

    Parameters
    ----------
    support_weight, marginal_weight, conditional_weight : float
        Weights of the support's cross-entropy and of the queries' marginal and conditional entropies.
    steps, lr, betas, eps
        Adam's.
    engine : str
        ``"auto"``, or an engine by name.
    """

    loop: ClassVar[Loop] = tim.LOOP

    steps: int = whole(1000, 0, "0 leaves the class means as they are.")

    def _order(self, shots: float) -> float:
        """The order of the entropies; 1 is Shannon's."""
        return 1.0

    def _solve(self, points: Points, callback: Callback | None = None) -> Outcome:
        order = self._order(points.codes.shape[1] / points.n_classes)
        objective = tim.Objective(self.support_weight, self.marginal_weight, self.conditional_weight, order)
        settings = tim.Settings(objective, self.tau, self.steps, self.adam)
        ran = self._run(points, settings, callback)
        scores = -0.5 * squared_distances(points.query, ran.result)
        return scored(scores, anchors=ran.result, steps=self.steps, ran=ran)


@dataclass(frozen=True, kw_only=True)
class AlphaTIM(TIMGD):
    """TIM-GD with entropies of order alpha; scores are -|x - w|^2 / 2.

    Parameters
    ----------
    order : float, optional
        Order of the entropies, the paper's alpha; by default as the authors tuned it: 2 for one shot, 7 for five and
        more, else 5, where shots are counted on the average of the classes.
    support_weight, marginal_weight, conditional_weight : float
        Weights of the support's cross-entropy and of the queries' marginal and conditional entropies.
    steps, lr, betas, eps
        Adam's.
    """

    assumes_uniform: ClassVar[bool] = False

    order: float | None = number(None, "1 or more", "1 is Shannon's entropy.")
    support_weight: float = 1.0
    conditional_weight: float = 1.0

    def _order(self, shots: float) -> float:
        if self.order is not None:
            return self.order
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

    support_weight: float = number(0.1, "positive", "At 0 a class may lose all of its points; the paper uses 0.1.")
    steps: int = whole(150, 0, "0 leaves the class means as they are.")

    def _solve(self, points: Points) -> Outcome:
        vectors, labels = points.vectors, points.labels
        xp = namespace(vectors)
        (b, n, _), s = vectors.shape, points.codes.shape[1]
        gram = vectors @ xp.matrix_transpose(vectors)  # (b, n, n)
        counts = xp.sum(labels, axis=1, keepdims=True)
        on_support = self.support_weight / (1 + self.conditional_weight)
        on_query = s / (n - s)
        sharpen = 1 + self.conditional_weight
        balance = self.marginal_weight / (1 + self.marginal_weight)
        # All weights are combinations of the points, w = sum_i a_i x_i: the rounds go over a (b, n, c) alone.
        none = xp.zeros((b, n - s, points.n_classes), dtype=vectors.dtype, device=device(vectors))
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
        weights = xp.matrix_transpose(a) @ vectors
        return scored(-0.5 * squared_distances(points.query, weights), anchors=weights, steps=self.steps)


def _log_softmax(z: Array) -> Array:
    xp = namespace(z)
    z = z - xp.max(z, axis=-1, keepdims=True)
    return z - xp.log(xp.sum(xp.exp(z), axis=-1, keepdims=True))


def _log_sum(z: Array) -> Array:
    """log(sum_i exp(z_i)) over the points."""
    xp = namespace(z)
    top = xp.max(z, axis=1, keepdims=True)
    return top + xp.log(xp.sum(xp.exp(z - top), axis=1, keepdims=True))
