"""CAN's transductive step: Hou, Chang, Ma, Shan and Chen, "Cross attention network for few-shot classification",
NeurIPS 2019.

The queries that are surest of their class, whatever the class, join the support with that label, the class means are
taken again and all queries are scored anew; with more queries in the second round. Nothing is assumed about
how many queries a class has, and no base data are used.

This is the step alone, on vectors: the cross attention between the spatial maps of a class and of a query, which gives
the method its name, needs maps and a trained module. What is left of the score is 7 times the cosine of a vector to
the mean of a class' vectors, which are not normalised first, as in the authors' code. Of 75 queries, 35 join
in the first round and 70 in the second; with another number, the same shares do. Equally sure queries join together.
"""

from __future__ import annotations

from dataclasses import dataclass

from a2lp.arrays import kth_largest, namespace, one_hot
from a2lp.checks import number
from a2lp.methods.base import Method, Outcome, Points, scored
from a2lp.preprocess import l2


@dataclass(frozen=True, kw_only=True)
class TopK(Method):
    """Class means of the support and the surest queries; probabilities are softmax(scale cos(x, w)).

    Parameters
    ----------
    share : float
        Of the queries, how many join in each round; there are as many rounds as this share goes into 1.
    scale : float
        What cosines are multiplied by.
    """

    preprocess: str = "none"
    share: float = number(35 / 75, "above 0 and at most 1", "The authors use 35/75.")
    scale: float = number(7.0, "positive", "The authors use 7.")

    def _solve(self, points: Points) -> Outcome:
        support, rest = points.support, points.rest
        xp = namespace(support)
        r = rest.shape[1]
        unit = l2(rest)
        labels = points.labels  # (b, s, c)
        support_sums = xp.matrix_transpose(labels) @ support  # (b, c, d)
        support_counts = xp.sum(labels, axis=1)[:, :, None]  # (b, c, 1)
        means = points.class_means
        cosines = unit @ xp.matrix_transpose(l2(means))  # (b, r, c)
        each = max(1, round(self.share * r - 0.5 + 1e-6))  # rounded down: 35/75 of 75 is 35
        rounds = r // each
        for i in range(rounds):
            best = xp.max(cosines, axis=-1)  # (b, r)
            sure = xp.astype(best >= kth_largest(best, each * (i + 1)), support.dtype)
            joined = one_hot(xp.argmax(cosines, axis=-1), points.n_classes, support.dtype) * sure[:, :, None]
            counts = support_counts + xp.sum(joined, axis=1)[:, :, None]
            means = (support_sums + xp.matrix_transpose(joined) @ rest) / counts
            cosines = unit @ xp.matrix_transpose(l2(means))
        scores = (self.scale / self.tau) * cosines[:, : points.n_query, :]
        return scored(scores, anchors=means, steps=rounds)
