"""Points that come to a pool after its graph was built, and points that leave it."""

from __future__ import annotations

import numpy as np

from a2lp.arrays import chunks
from a2lp.cores import map_on_cores
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
    # one more than needed: a point is its own nearest
    places, cosines = nearest(fresh, x, length + 1)
    for row in range(n - old):
        others = (places[row] != old + row) & (cosines[row] > 0)
        count = min(int(others.sum()), length)
        found.similarities[old + row, :count] = cosines[row][others][:count]
        found.indices[old + row, :count] = places[row][others][:count]
    return found


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
