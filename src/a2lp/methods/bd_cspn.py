"""BD-CSPN: Liu, Song and Qin, "Prototype rectification for few-shot learning", ECCV 2020.

The queries are moved so that their mean is the support's, which takes out the bias between the two; then each class
mean is taken again over the support and the queries that look most like it, weighted by how much they do. Nothing is
assumed about how many queries a class has, although the move presumes that support and queries mix the classes alike,
so it harms where they do not. Base data enter through the centring of CL2N alone.

The authors published no code, and public versions differ. This one is that of Veilleux et al. (``bdcspn_oveilleux``):
weights are the softmax over classes of 10 cosines; support vectors vote by their looks, too, not by their label;
votes are averaged over their number, so a class with doubtful members gets a shorter mean; and the queries are
compared, as they were before the move, by Euclidean distance. Where a class gets no vote the public code loses it and
shifts the others; here it keeps its support mean. A single query is not moved.
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
        What cosines are multiplied by before the softmax that weights the votes.
    """

    preprocess: str = "cl2n"
    scale: float = number(10.0, "positive", "The paper uses 10.")

    def _solve(self, points: Points) -> Outcome:
        means, _ = rectified_means(points, self.scale)
        return scored(-squared_distances(points.query, means), anchors=means)
