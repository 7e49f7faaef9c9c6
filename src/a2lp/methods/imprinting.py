"""Imprinting + cross-entropy: after Qi, Brown and Lowe, "Low-shot learning with imprinted weights", CVPR 2018.

Class weights start as the means of the support vectors and are fine-tuned on the support by cross-entropy.
Inductive. This is the baseline of the A2LP paper as its code has it: weights are not normalised (Qi et al. do),
and the logits are -|x - w|^2 / 2 times tau where Qi et al. use a scaled cosine. By default the loss is evaluated
in the arithmetic of that code, since this method is here to be the paper's baseline; see ``a2lp``'s numerics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from a2lp.arrays import namespace
from a2lp.engines import imprint
from a2lp.losses import by_numerics
from a2lp.methods._maths import squared_distances
from a2lp.methods.base import Method, Outcome, Points, direct_outcome, require_adam, require_number, require_whole


@dataclass(frozen=True, kw_only=True)
class Imprinting(Method):
    """Class means, fine-tuned; scores are -|x - w|^2 / 2.

    Parameters
    ----------
    steps, lr : int, float
        Steps and learning rate of Adam.
    betas, eps : (float, float), float
        Adam's own.
    numerics : {"official", "official_cpu", "exact"}
        Arithmetic of the loss, as for ``a2lp``.
    """

    steps: int = 1000
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    numerics: str = "official"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("steps", self.steps, 0, "0 leaves the class means as they are.")
        require_number("lr", self.lr, "positive", lambda v: v > 0, "The paper uses 1e-4.")
        require_adam(self.betas, self.eps)
        by_numerics(self.numerics)

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        support, query = points.support, points.rest[:, : points.n_query, :]
        weights, losses = imprint.run(
            support,
            points.codes,
            points.n_classes,
            tau=self.tau,
            steps=self.steps,
            lr=self.lr,
            betas=self.betas,
            eps=self.eps,
            numerics=self.numerics,
        )
        outcome = direct_outcome(
            -0.5 * squared_distances(query, weights),
            steps=namespace(support).full((support.shape[0],), self.steps, device=device(support)),
            losses=losses if self.steps else None,
            anchors=weights,
        )
        return outcome, imprint.choose(support, self.steps)
