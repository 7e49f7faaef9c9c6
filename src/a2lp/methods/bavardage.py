"""BAVARDAGE: Hu, Pateux and Gripon, "Adaptive dimension reduction and variational inference for transductive few-shot
classification" (WACV 2023).

Classes are Gaussians of one round covariance after the base classes' covariance has been divided out, with priors on
their means and shares; variational Bayes updates responsibilities and parameters in turn, from a start by soft
k-means. Base statistics: the mean, and the scatter within classes on the unit sphere. No uniform marginal is assumed
by default (a Dirichlet prior on the shares); ``marginal="uniform"`` is the authors' ``--balanced``: equal shares, held.

The authors rotate the task's vectors into the eigenvectors of the base covariance restricted to the task's span, scale
them (by at most 5), and project them on the differences of the class means in every round. A projection on these
adds the same number to a point's squared distances to all means, so that it changes nothing and we leave it out; the
rest is a matter of inner products, and we iterate on them (n, n) in the place of vectors. Shots that are unequal are
taken off the counts class by class.
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
        Whether the classes' shares among the queries are learned or held equal.
    engine : str
        ``"auto"``, or an engine by name.
    """

    needs_base: ClassVar[bool] = True
    loop: ClassVar[Loop] = variational.LOOP

    preprocess: str = "cl2n"
    marginal: str = choice("estimated", ("estimated", "uniform"))

    @property
    def _multiplies_once(self) -> bool:
        return True

    def _solve(self, points: Points, callback: Callback | None = None) -> Outcome:
        base = require_base("bavardage", self.base, points.vectors.shape[-1])
        settings = variational.Settings(base.sphere_factor, uniform=self.marginal == "uniform")
        ran = self._run(points, settings, callback)
        logs = namespace(points.vectors).matrix_transpose(ran.result.logs)
        return scored(logs[:, : points.n_query, :] / self.tau, ran=ran, anchors=ran.result.means)
