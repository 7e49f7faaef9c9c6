"""What PT-MAP, EASE and protoLP share: roots of the entries, and centres in turn with a balanced transport plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import device

from a2lp.arrays import Array, namespace
from a2lp.methods._maths import POWERS, log_scores, rooted, unit_gram
from a2lp.methods.base import Method, Outcome, Points, direct_outcome, require_name, require_number, require_whole


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
    power: str = "clamp"
    lam: float = 10.0
    rate: float = 0.2
    steps: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        require_name("power", self.power, POWERS)
        require_number("lam", self.lam, "positive", lambda v: v > 0, "The authors use 10.")
        require_number("rate", self.rate, "above 0 and at most 1", lambda v: 0 < v <= 1, "The authors use 0.2.")
        require_whole("steps", self.steps, 0, "0 transports once to the support's means.")

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
        return direct_outcome(scores, steps=xp.full((plan.shape[0],), int(self.steps), device=device(plan)))
