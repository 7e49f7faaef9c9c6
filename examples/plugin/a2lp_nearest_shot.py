"""Nearest shots: k-nearest-neighbour voting after Cover and Hart, "Nearest neighbor pattern classification", 1967.

A query is assigned to the class whose ``k`` nearest support vectors have the smallest mean squared distance to it. The
method is inductive: queries are classified independently. It assumes nothing about the number of queries per class, and
uses no base data. If a class has fewer than ``k`` shots, all of them are used, so classes with many shots have no
advantage.
"""

from __future__ import annotations

from dataclasses import dataclass

from a2lp import Method
from a2lp.arrays import namespace
from a2lp.checks import whole
from a2lp.methods.base import Outcome, Points, scored


@dataclass(frozen=True, kw_only=True)
class NearestShot(Method):
    """Nearest shots of each class; scores are minus the mean squared distance to them.

    Parameters
    ----------
    k : int
        Number of nearest shots of each class.
    """

    k: int = whole(3, 1, "1 is the nearest neighbour; from the number of shots on, all shots count.")

    def _solve(self, points: Points) -> Outcome:
        xp = namespace(points.vectors)
        query, shots = points.query, points.support
        sizes = xp.sum(query * query, axis=-1)[:, :, None] + xp.sum(shots * shots, axis=-1)[:, None, :]
        apart = sizes - 2 * (query @ xp.matrix_transpose(shots))  # (b, q, s)
        own = points.labels  # (b, s, c)
        counts = xp.sum(own, axis=1)  # (b, c)
        # shots of other classes are sorted last: their distance is set above the largest one
        far = 1 + xp.max(apart, axis=(1, 2), keepdims=True)[..., None]  # (b, 1, 1, 1)
        mine = xp.matrix_transpose(own)[:, None, :, :] > 0  # (b, 1, c, s)
        ordered = xp.sort(xp.where(mine, apart[:, :, None, :], far), axis=-1)[..., : self.k]  # (b, q, c, k)
        ranks = xp.arange(ordered.shape[-1], dtype=xp.int64, device=getattr(apart, "device", None))
        votes = xp.astype(ranks < xp.astype(counts, xp.int64)[..., None], apart.dtype)[:, None, :, :]  # (b, 1, c, k)
        scores = -xp.sum(ordered * votes, axis=-1) / xp.sum(votes, axis=-1)  # (b, q, c)
        return scored(scores)
