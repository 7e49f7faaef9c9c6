"""Imprinting + cross-entropy: after Qi, Brown and Lowe, "Low-shot learning with imprinted weights", CVPR 2018.

Class weights start as the means of the support vectors and are fine-tuned on the support by cross-entropy. Inductive.
This is the baseline of the A2LP paper, as in its code: weights are not normalised, and the logits are -|x - w|^2 / 2
times tau, while Qi et al. normalise and use a scaled cosine. By default the loss is evaluated in the arithmetic of that
code; see the parameter ``numerics`` of ``a2lp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from a2lp.engines.contract import Callback, Loop
from a2lp.loops import imprint
from a2lp.methods._maths import squared_distances
from a2lp.methods.base import LoopMethod, Outcome, Points, scored


@dataclass(frozen=True, kw_only=True)
class Imprinting(imprint.Settings, LoopMethod):
    """Class means, fine-tuned; scores are -|x - w|^2 / 2.

    Parameters
    ----------
    steps, lr, betas, eps, engine
        Adam's, and the engine by name or ``"auto"``.
    numerics : {"official", "official_cpu", "exact"}
        Arithmetic of the loss, as for ``a2lp``.

    Examples
    --------
    >>> import a2lp
    >>> batch = a2lp.TaskBatch([[[1.0, 0.1], [0.1, 1.0]]], [[7, 3]], [[[0.9, 0.3], [0.2, 0.8]]])
    >>> a2lp.create("imprinting", steps=20).predict(batch).labels.tolist()
    [[7, 3]]
    """

    loop: ClassVar[Loop] = imprint.LOOP

    def _solve(self, points: Points, callback: Callback | None = None) -> Outcome:
        ran = self._run(points, self, callback)
        weights, losses = ran.result
        scores = -0.5 * squared_distances(points.query, weights)
        return scored(scores, steps=self.steps, ran=ran, losses=losses if self.steps else None, anchors=weights)
