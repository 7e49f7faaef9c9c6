"""What PT-MAP, EASE and protoLP share: roots of the entries, and centres in turn with a balanced transport plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from a2lp.arrays import Array, namespace
from a2lp.checks import choice, number, whole
from a2lp.methods._maths import log_scores
from a2lp.methods.base import Method, Outcome, Points, scored
from a2lp.preprocess import POWERS, rooted, unit_gram


@dataclass(frozen=True, kw_only=True)
class TransportMethod(Method):
    """A method that fills every class with equally many queries.

    Parameters
    ----------
    power : {"clamp", "sign", "none"}
        Square roots of the entries, where negative ones count as zero or keep their sign, or no roots. Taken where
        ``preprocess`` is ``"none"``, the default: this is the method's own preprocessing.
    lam : float
        How strongly transport keeps to the nearest centres.
    rate : float
        How far centres go towards the means that the labels give, in a step.
    steps : int
        Rounds of transport and update.
    """

    assumes_uniform: ClassVar[bool] = True

    preprocess: str = "none"
    power: str = choice("clamp", POWERS)
    lam: float = number(10.0, "positive", "The authors use 10.")
    rate: float = number(0.2, "above 0 and at most 1", "The authors use 0.2.")
    steps: int = whole(20, 0, "0 transports once to the support's means.")

    def _unit_gram(self, points: Points) -> Array:
        """Inner products (b, n, n) of all points made unit, the support first."""
        xp = namespace(points.support)
        x = points.vectors  # (b, n, d)
        if self.preprocess == "none":
            x = rooted(x, self.power)
        return unit_gram(x @ xp.matrix_transpose(x))

    def _outcome(self, plan: Array, points: Points) -> Outcome:
        """The answer that a plan (b, c, m) of the points that are not labelled gives."""
        xp = namespace(plan)
        scores = log_scores(xp.matrix_transpose(plan)[:, : points.n_query, :], self.tau)
        return scored(scores, steps=self.steps)
