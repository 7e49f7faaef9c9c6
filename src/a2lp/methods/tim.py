"""Transductive information maximisation.

TIM-GD, TIM-ADM: Boudiaf, Masud, Rony, Dolz, Piantanida and Ben Ayed, "Transductive information maximization for
few-shot learning", NeurIPS 2020. alpha-TIM: Veilleux, Boudiaf, Piantanida and Ben Ayed, "Realistic evaluation of
transductive few-shot learning", NeurIPS 2021.

Class weights start as the support's means and maximise the mutual information of queries and labels, with the
support's cross-entropy: confident queries, balanced classes, correct support. GD uses Adam, ADM closed-form updates
with an auxiliary label matrix; alpha-TIM has entropies of order alpha, which tolerate unequal classes better.

TIM assumes a uniform marginal softly: the marginal entropy is largest when every class has equally many queries.
alpha-TIM was made for unequal classes; its marginal entropy is weak, and it does not count as assuming one. No base
data. The logits are -tau |x - w|^2 / 2, and the weights of the losses are those of the authors' code, which takes sums
over points for ADM and means for GD. Instead of the code's log(p + 1e-12), log p is computed from the logits, where it
is finite. Unlabelled points count as queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from a2lp.arrays import device, log_softmax, namespace, softmax
from a2lp.checks import number, whole
from a2lp.engines.contract import AdamSettings, Callback, Loop
from a2lp.loops import tim
from a2lp.methods._maths import squared_distances
from a2lp.methods.base import LoopMethod, Method, Outcome, Points, scored


@dataclass(frozen=True, kw_only=True)
class _TIM(Method):
    """The weights of the losses, which all three share."""

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
    steps, lr, betas, eps, engine
        Adam's, and the engine by name or ``"auto"``.
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
        Order of the entropies, the paper's alpha; by default as tuned by the authors: 2 for one shot, 7 for five and
        more, else 5, where shots are the average over the classes.
    support_weight, marginal_weight, conditional_weight, steps, lr, betas, eps, engine
        As for ``tim_gd``.
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
        As for ``tim_gd``.
    steps : int
        Rounds of labels and weights.
    """

    support_weight: float = number(0.1, "positive", "At 0 a class may lose all of its points; the paper uses 0.1.")
    steps: int = whole(150, 0, "0 leaves the class means as they are.")

    def _solve(self, points: Points) -> Outcome:
        vectors, labels = points.vectors, points.labels
        xp = namespace(vectors)
        s, n = points.codes.shape[1], vectors.shape[1]
        gram = self.tau * (vectors @ xp.matrix_transpose(vectors))  # (b, n, n)
        on_support = self.support_weight / (1 + self.conditional_weight)
        on_query = s / (n - s)
        given = on_support * labels
        like = {"dtype": vectors.dtype, "device": device(vectors)}
        # how much each point counts
        counted = xp.concat([xp.full((1, s, 1), on_support, **like), xp.full((1, n - s, 1), on_query, **like)], axis=1)
        sharpen = 1 + self.conditional_weight
        balance = self.marginal_weight / (1 + self.marginal_weight)
        # all weights are combinations of the points, w = sum_i a_i x_i, so that the rounds only update a (b, n, c)
        a = points.all_labels / xp.sum(labels, axis=1, keepdims=True)
        for _ in range(self.steps):
            cross = gram @ a  # tau x . w
            log_p = log_softmax(cross - 0.5 * xp.sum(a * cross, axis=1, keepdims=True))
            z = sharpen * log_p[:, s:, :]
            top = xp.max(z, axis=1, keepdims=True)
            log_sum = top + xp.log(xp.sum(xp.exp(z - top), axis=1, keepdims=True))  # over the points
            found = softmax(z - balance * log_sum)  # the label matrix
            p = counted * xp.exp(log_p)
            target = xp.concat([given, on_query * found], axis=1)
            pull = xp.sum(p, axis=1, keepdims=True)
            a = (target - p + a * pull) / xp.sum(target, axis=1, keepdims=True)
        weights = xp.matrix_transpose(a) @ vectors
        return scored(-0.5 * squared_distances(points.query, weights), anchors=weights, steps=self.steps)
