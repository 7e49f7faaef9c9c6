"""BAVARDAGE: Hu, Pateux and Gripon, "Adaptive dimension reduction and variational inference for transductive few-shot
classification" (WACV 2023).

After whitening by the base classes' covariance, classes are Gaussians of one spherical covariance with priors on their
means and shares; variational Bayes updates responsibilities and parameters in turn, starting from soft k-means. Base
statistics: the mean, and the scatter within classes on the unit sphere. No uniform marginal is assumed by default (a
Dirichlet prior on the shares); ``marginal="uniform"`` is the authors' ``--balanced``: fixed equal shares.

The authors rotate the task's vectors into the eigenvectors of the base covariance restricted to the task's span, scale
them (by at most 5), and project them on the differences of the class means in every round. The projection adds the
same number to a point's squared distances to all means, so we leave it out. The rest is computed from (n, n) inner
products instead of vectors. Unequal shots are subtracted from the counts class by class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from a2lp.arrays import namespace
from a2lp.checks import choice
from a2lp.engines.contract import Callback, Loop
from a2lp.loops import variational
from a2lp.methods.base import LoopMethod, Outcome, Points, scored
from a2lp.preprocess import require_base


@dataclass(frozen=True, kw_only=True)
class BAVARDAGE(LoopMethod):
    """Variational Bayes with the base classes' covariance; probabilities are the responsibilities.

    Parameters
    ----------
    marginal : {"estimated", "uniform"}
        Whether the classes' shares among the queries are estimated or equal.
    engine : str
        ``"auto"``, or an engine by name.
    """

    needs_base: ClassVar[bool] = True
    loop: ClassVar[Loop] = variational.LOOP

    preprocess: str = "cl2n"
    marginal: str = choice("estimated", ("estimated", "uniform"))

    def _solve(self, points: Points, callback: Callback | None = None) -> Outcome:
        base = require_base("bavardage", self.base, points.vectors.shape[-1])
        settings = variational.Settings(base.sphere_factor, uniform=self.marginal == "uniform")
        ran = self._run(points, settings, callback)
        logs, means = ran.result
        scores = namespace(logs).matrix_transpose(logs)[:, : points.n_query, :] / self.tau
        return scored(scores, ran=ran, anchors=means)
