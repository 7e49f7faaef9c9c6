"""Instance credibility inference, LR+ICI: Wang, Xu, Liu, Zhang and Fu, "Instance credibility inference for few-shot
learning", CVPR 2020.

A logistic regression on the support labels the queries. The most credible labels, those for which a linear fit in few
dimensions needs the least correction, join the training set, a few of each class, and the regression is fitted again
until all queries have joined. No class marginal is assumed; no base data.

As in the authors' code (first version): PCA to five dimensions, five of a class in a round, all rounds. Their two
solvers, L-BFGS and coordinate descent over a hundred penalties, are replaced by Newton's methods that find the exact
minimum of the same problems; where several instances enter at one penalty, those that fit best come first, not the
first rows. Unlabelled points count as queries. The rounds are compiled for NumPy; other arrays are converted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from a2lp.engines.contract import Callback, Loop
from a2lp.loops import ici
from a2lp.methods.base import LoopMethod, Outcome, Points, scored


@dataclass(frozen=True, kw_only=True)
class ICI(ici.Settings, LoopMethod):
    """Logistic regression with credible pseudo-labels; scores are its log-probabilities over tau.

    Parameters
    ----------
    C : float
        Weight of the logistic regression's loss against its penalty, as in scikit-learn.
    n_components : int
        Dimensions of the linear fit.
    per_round : int
        Most queries of a class that join in a round.
    engine : str
        ``"auto"``, or an engine by name.
    """

    loop: ClassVar[Loop] = ici.LOOP

    def _solve(self, points: Points, callback: Callback | None = None) -> Outcome:
        ran = self._run(points, self, callback)
        return scored(ran.result[:, : points.n_query, :] / self.tau, ran=ran)
