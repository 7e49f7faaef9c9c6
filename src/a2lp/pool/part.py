"""A part of a large pool, on which labels are held out: a random sample of its points, and all that are labelled.

Folds need predictions for the labelled points alone, and those hardly depend on how many others there are. The sample
and its neighbours are found once; labelled points outside it are added to its graph when they come.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from a2lp.pool.graph import PoolGraph, from_chosen
from a2lp.pool.growth import extended
from a2lp.pool.neighbours import SPARE, Lists, NdArray, pick_method, rows_of, search

WHOLE = 20_000  # points up to which the part is the pool
_SHARE = 0.1
_MOST = 100_000


def part_size(n: int) -> int:
    """How many of n points are sampled."""
    return min(n, int(np.clip(_SHARE * n, WHOLE, _MOST)))


class Part:
    """A sample of the points of a pool (n, d), with n above ``WHOLE``."""

    def __init__(self, points: Any, k: int, gamma: float) -> None:
        self.k, self.gamma = k, gamma
        size = part_size(len(points))
        self.rows = np.sort(np.random.default_rng(0).choice(len(points), size, replace=False))
        self.lists: Lists | None = None
        if isinstance(points, np.ndarray):
            self.sample = rows_of(points, self.rows)
            self.lists = search(self.sample, k + SPARE, pick_method("auto", size))

    def around(self, points: Any, given: NdArray) -> tuple[NdArray, Any, PoolGraph]:
        """Rows of the pool (m,), their points (m, d) and the graph of these: the sample and the given points (n,)."""
        inside = np.zeros(len(points), bool)
        inside[self.rows] = True
        others = np.flatnonzero(given & ~inside)
        if self.lists is None:  # a device finds all neighbours again sooner than it adds to them
            from a2lp.pool import device_graph

            rows = np.concatenate([self.rows, others])
            vectors = points[rows]
            return rows, vectors, device_graph.neighbour_graph(vectors, self.k, self.gamma)
        vectors, lists = self.sample, self.lists
        if len(others):
            vectors = np.concatenate([vectors, rows_of(points, others)])
            lists = extended(vectors, lists)
        chosen, _ = lists.choose(self.k)
        return np.concatenate([self.rows, others]), vectors, from_chosen(lists, chosen, self.gamma)
