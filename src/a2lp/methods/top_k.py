"""CAN's transductive step: Hou, Chang, Ma, Shan and Chen, "Cross attention network for few-shot classification",
NeurIPS 2019.

The most confident queries, of whatever class, join the support with their predicted label, the class means are computed
again and all queries scored again, with more queries in the second round. No class marginal is assumed; no base data.

This is the step alone, on vectors: the cross attention between the spatial maps of a class and of a query, from which
the method has its name, needs maps and a trained module. The score is 7 times the cosine of a vector to the mean of a
class's vectors, which are not normalised first, as in the authors' code. Of 75 queries, 35 join in the first round and
70 in the second; other numbers in proportion. Equally confident queries join together.
"""

from __future__ import annotations

from dataclasses import dataclass

from a2lp.arrays import kth_largest, namespace, one_hot
from a2lp.checks import number
from a2lp.methods.base import Method, Outcome, Points, scored
from a2lp.preprocess import l2


@dataclass(frozen=True, kw_only=True)
class TopK(Method):
    """Class means of the support and the most confident queries; probabilities are softmax(scale cos(x, w)).

    Parameters
    ----------
    share : float
        Share of the queries that joins in each round; there are as many rounds as it goes into 1.
    scale : float
        Factor of the cosines.
    """

    preprocess: str = "none"
    share: float = number(35 / 75, "above 0 and at most 1", "The authors use 35/75.")
    scale: float = number(7.0, "positive", "The authors use 7.")

    def _solve(self, points: Points) -> Outcome:
        rest, (support_sums, support_counts) = points.rest, points.class_sums
        xp, r = namespace(rest), rest.shape[1]
        unit, means = l2(rest), support_sums / support_counts
        cosines = unit @ xp.matrix_transpose(l2(means))  # (b, r, c)
        each = max(1, round(self.share * r - 0.5 + 1e-6))  # rounded down: 35/75 of 75 is 35
        rounds = r // each
        for i in range(rounds):
            best = xp.max(cosines, axis=-1)  # (b, r)
            sure = xp.astype(best >= kth_largest(best, each * (i + 1)), rest.dtype)
            joined = one_hot(xp.argmax(cosines, axis=-1), points.n_classes, rest.dtype) * sure[:, :, None]
            counts = support_counts + xp.sum(joined, axis=1)[:, :, None]
            means = (support_sums + xp.matrix_transpose(joined) @ rest) / counts
            cosines = unit @ xp.matrix_transpose(l2(means))
        scores = (self.scale / self.tau) * cosines[:, : points.n_query, :]
        return scored(scores, anchors=means, steps=rounds)
