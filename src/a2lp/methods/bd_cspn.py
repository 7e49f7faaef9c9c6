"""BD-CSPN: Liu, Song and Qin, "Prototype rectification for few-shot learning", ECCV 2020.

The queries are shifted onto the support's mean, which removes the bias between the two; then each class mean is
computed again from the support and the queries nearest to it, weighted by similarity. No class marginal is assumed, but
the shift harms where support and queries have different class proportions. Base data are used for CL2N only.

The authors published no code, and public versions differ. This is that of Veilleux et al. (``bdcspn_oveilleux``):
weights are the softmax over classes of 10 cosines; support vectors vote by similarity too, not by label; votes are
averaged over their number, so a class with doubtful members has a shorter mean; and the unshifted queries are compared
by Euclidean distance. But a class without votes, dropped there, keeps its support mean; a single query is not shifted.
"""

from __future__ import annotations

from dataclasses import dataclass

from a2lp.checks import number
from a2lp.methods._maths import rectified_means, squared_distances
from a2lp.methods.base import Method, Outcome, Points, scored


@dataclass(frozen=True, kw_only=True)
class BDCSPN(Method):
    """Nearest rectified class mean; scores are -|x - w|^2.

    Parameters
    ----------
    scale : float
        Factor of the cosines in the softmax that weights the votes.
    """

    preprocess: str = "cl2n"
    scale: float = number(10.0, "positive", "The paper uses 10.")

    def _solve(self, points: Points) -> Outcome:
        means, _ = rectified_means(points, self.scale)
        return scored(-squared_distances(points.query, means), anchors=means)
