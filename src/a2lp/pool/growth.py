"""Points that come to a pool after its graph was built, and points that leave it.

New points are compared with all points, exactly; old lists of neighbours take in the new ones. So a graph that was
exact remains so, and of one that was made by cells the recall does not fall. A point that loses more neighbours than
its list has to spare is compared with all points again.
"""

from __future__ import annotations

import numpy as np

from a2lp.arrays import chunks
from a2lp.cores import map_on_cores
from a2lp.pool.graph import PoolGraph, from_chosen
from a2lp.pool.neighbours import Lists, NdArray, nearest, unit_rows

_COLUMNS = 2048  # old points that the new ones are compared with at a time


def extended(x: NdArray, lists: Lists) -> Lists:
    """The lists of all points ``x`` (n, d) from those of the first ones: new and old points are compared, exactly."""
    from a2lp.pool import _kernels as kernels

    n, old = len(x), len(lists.indices)
    length = lists.indices.shape[1]
    found = Lists.empty(n, length, lists.similarities.dtype)
    found.similarities[:old], found.indices[:old] = lists
    fresh = unit_rows(x, slice(old, n)).astype(found.similarities.dtype, copy=False)

    def offer(part: slice) -> None:
        block = unit_rows(x, part).astype(fresh.dtype, copy=False) @ fresh.T
        kernels.merge_rows(block, old, found.similarities[part], found.indices[part])

    map_on_cores(offer, chunks(old, _COLUMNS))
    _search_again(x, found, np.arange(old, n))
    return found


def _search_again(x: NdArray, lists: Lists, rows: NdArray) -> None:
    """Make the lists of some points anew, from all points."""
    from a2lp.pool import _kernels as kernels

    length = lists.indices.shape[1]
    places, cosines = nearest(unit_rows(x, rows), x, length + 1)  # one more than needed: a point is its own nearest
    usable = (places != rows[:, None]) & (cosines > 0)
    order = np.argsort(~usable, axis=1, kind="stable")[:, :length]  # best first, the unusable last
    usable, places, cosines = (np.take_along_axis(array, order, axis=1) for array in (usable, places, cosines))
    width = order.shape[1]
    lists.similarities[rows, :width] = np.where(usable, cosines, kernels.TINY)
    lists.indices[rows, :width] = np.where(usable, places, kernels.NOBODY)


def without(lists: Lists, kept: NdArray) -> tuple[Lists, NdArray]:
    """The lists of the points that are kept (n,), and which of these lists lost an entry (m,).

    A list that lost entries is shorter; as long as it holds more than k, the k nearest are still right.
    """
    from a2lp.pool import _kernels as kernels

    place = np.full(len(kept) + 1, kernels.NOBODY, np.int32)
    place[:-1][kept] = np.arange(int(kept.sum()), dtype=np.int32)
    indices = lists.indices[kept]
    known = indices != kernels.NOBODY
    named = place[np.where(known, indices, len(kept))]
    gone = known & (named == kernels.NOBODY)
    order = np.argsort(named == kernels.NOBODY, axis=1, kind="stable")  # best first, the unused last
    sims = np.where(named == kernels.NOBODY, kernels.TINY, lists.similarities[kept])
    return Lists(np.take_along_axis(sims, order, 1), np.take_along_axis(named, order, 1)), gone.any(axis=1)


def grown(graph: PoolGraph, x: NdArray, k: int, gamma: float) -> PoolGraph:
    """The graph of points ``x`` (n, d) from that of the first ones."""
    assert graph.lists is not None
    lists = extended(x, graph.lists)
    chosen, _ = lists.choose(k)
    return from_chosen(lists, chosen, gamma)


def shrunk(graph: PoolGraph, x: NdArray, kept: NdArray, k: int, gamma: float) -> PoolGraph:
    """The graph of the points that are kept (n,), ``x`` (m, d), from that of all."""
    from a2lp.pool import _kernels as kernels

    assert graph.lists is not None
    lists, shorter = without(graph.lists, kept)
    # a list that was full knew of no others beyond its end, so it is made again once it is shorter than k
    again = shorter & (lists.indices[:, min(k, lists.indices.shape[1]) - 1] == kernels.NOBODY)
    if again.any():
        _search_again(x, lists, np.flatnonzero(again))
    chosen, _ = lists.choose(k)
    return from_chosen(lists, chosen, gamma)
