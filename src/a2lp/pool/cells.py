"""Nearest neighbours of many points, by cells.

K-means sorts the points into cells. Every cell is compared with the cells of the nearest centroids, by one product of
matrices. Then points are offered the neighbours of their neighbours, also from cells that were not compared.

A graph that lacks neighbours costs accuracy, so the constants are set by the accuracy of label propagation;
``benchmarks/graph_quality.py`` compares it with that on the exact graph.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse

from a2lp.arrays import chunks
from a2lp.cores import map_on_cores
from a2lp.pool.neighbours import Lists, NdArray, Progress, unit_rows
from a2lp.pool.stages import Stages, release
from a2lp.preprocess import l2

if TYPE_CHECKING:
    from a2lp.scale import Cluster

_CELLS = 4.0  # times the root of the number of points
_PROBES = 32  # cells that a cell is compared with
_JOINS = 6  # each looks only at what is new, so the last ones take little
_LINKED = 28  # neighbours whose neighbours are offered
LINKS = 64  # of a point: its neighbours, and some of those whose neighbour it is
_TRAINING = 40  # points for each centroid of k-means
_ROUNDS = 4
_GROUPED = 512  # centroids from which on they are searched by groups
_TRIED = 6  # groups of centroids that a point is compared with
_ROWS = 8192
_COLUMNS = 4096  # points that a cell is compared with at a time


class Sorting(NamedTuple):
    """Points in the order of their cells."""

    order: NdArray  # (n,)
    starts: NdArray  # (m + 1,)  where each cell begins
    cell: NdArray  # (n,)  of each point in this order


def search_cells(
    x: NdArray,
    length: int,
    progress: Progress,
    joins: int = _JOINS,
    stages: Stages | None = None,
    cluster: Cluster | None = None,
) -> Lists:
    """The ``length`` nearest others of each row of ``x`` (n, d), most of them right."""
    from a2lp.pool.cell_blocks import CellBlocks

    n, stages = len(x), stages or Stages(None, x)
    m = max(2, min(int(_CELLS * math.sqrt(n)), n // _TRAINING))
    centroids, cell = stages.keep("cells", lambda: _make_cells(x, m))
    order = np.argsort(cell, kind="stable").astype(np.int32)
    sorting = Sorting(order, np.searchsorted(cell[order], np.arange(m + 1)), cell[order])
    compared = _pairs(centroids)
    links: Links | None = None
    total, every = m * (1 + joins), range(m)
    blocks = None if cluster is None else CellBlocks(cluster, stages, x, sorting, compared, total)

    def compare() -> tuple[NdArray, NdArray]:
        if blocks is not None:
            return blocks.compare(length)
        lists = Lists.empty(n, length, np.float32)
        compare_cells(x, sorting, compared, lists, every, sorting.starts, lambda done: progress(done, total))
        return lists

    def join(number: int, known: tuple[NdArray, ...]) -> tuple[NdArray, NdArray]:
        nonlocal links
        lists = Lists(*(array if array.flags.writeable else np.array(array) for array in known))
        links = _link(lists, links)
        if blocks is not None:
            return blocks.join(number, lists, links)
        join_cells(x, sorting, compared, lists, links, every, lambda done: progress(m * number + done, total))
        return lists

    known = max((number for number in range(joins + 1) if stages.has(f"lists {number}")), default=0)
    release(x)
    found = stages.keep(f"lists {known}", compare)
    stages.drop("block compared *")
    for number in range(known + 1, joins + 1):
        found = stages.keep(f"lists {number}", partial(join, number, found))
        for name in (f"lists {number - 1}", "block *"):
            stages.drop(name)
    stages.drop("shared *")
    release(x)
    return _in_the_order_of_points(Lists(*found), order)


def expected_products(n: int, d: int) -> float:
    """About how many operations the comparisons of cells take."""
    m = _CELLS * math.sqrt(n)
    return 2.0 * d * 0.75 * _PROBES * n * n / m  # two cells are mostly among each other's nearest


def _make_cells(x: NdArray, m: int) -> tuple[NdArray, NdArray]:
    """Centroids (m, d), and the cell of each point (n,)."""
    centroids = _k_means(x, m, np.random.default_rng(0))
    return centroids, _assign(x, np.arange(len(x)), centroids)


def _k_means(x: NdArray, m: int, rng: np.random.Generator) -> NdArray:
    """M unit vectors (m, d), from some of the points."""
    rows = np.unique(np.linspace(0, len(x) - 1, min(len(x), _TRAINING * m)).astype(np.int64))
    sample = by_blocks(x, rows)
    centroids = sample[np.sort(rng.choice(len(rows), m, replace=False))]
    for _ in range(_ROUNDS):
        cell = _assign(sample, np.arange(len(sample)), centroids)
        members = sparse.csr_array((np.ones(len(cell), np.float32), (cell, np.arange(len(cell)))), shape=(m, len(cell)))
        sums = members @ sample
        empty = np.bincount(cell, minlength=m) == 0
        sums[empty] = sample[rng.choice(len(sample), int(empty.sum()), replace=False)]
        centroids = np.asarray(l2(sums))
    return centroids


def by_blocks(x: NdArray, rows: NdArray) -> NdArray:
    """Some rows at unit length, in float32, read on all cores."""
    out = np.empty((len(rows), x.shape[1]), np.float32)

    def fill(part: slice) -> None:
        out[part] = unit_rows(x, rows[part])

    map_on_cores(fill, chunks(len(rows), _ROWS))
    return out


def _assign(x: NdArray, rows: NdArray, centroids: NdArray) -> NdArray:
    """The nearest centroid of each of these rows (n,); of many centroids, the nearest in the nearest groups."""
    m = len(centroids)
    if m < _GROUPED:
        return _nearest_of(x, rows, lambda points: (points @ centroids.T).argmax(axis=1))
    n_groups = int(math.sqrt(m))
    heads = centroids[np.linspace(0, m - 1, n_groups).astype(np.int64)]
    for _ in range(_ROUNDS):
        group = (centroids @ heads.T).argmax(axis=1)
        sums = np.stack(
            [centroids[group == g].sum(axis=0) if (group == g).any() else heads[g] for g in range(n_groups)]
        )
        heads = np.asarray(l2(sums))
    group = (centroids @ heads.T).argmax(axis=1)
    members = [np.flatnonzero(group == g) for g in range(n_groups)]

    def nearest(points: NdArray) -> NdArray:
        near = np.argpartition(-(points @ heads.T), _TRIED, axis=1)[:, :_TRIED]
        best, found = np.full(len(points), -2, np.float32), np.zeros(len(points), np.int64)
        for g, mine in enumerate(members):
            who = np.flatnonzero((near == g).any(axis=1))
            if len(who) and len(mine):
                sims = points[who] @ centroids[mine].T
                place = sims.argmax(axis=1)
                value = sims[np.arange(len(who)), place]
                better = value > best[who]
                best[who[better]], found[who[better]] = value[better], mine[place[better]]
        return found

    return _nearest_of(x, rows, nearest)


def _nearest_of(x: NdArray, rows: NdArray, nearest: Callable[[NdArray], NdArray]) -> NdArray:
    return np.concatenate(
        map_on_cores(
            lambda part: nearest(unit_rows(x, rows[part]).astype(np.float32, copy=False)), chunks(len(rows), _ROWS)
        )
    )


def _pairs(centroids: NdArray) -> NdArray:
    """Which cells are compared with each other (m, m): those of the nearest centroids, of either."""
    m = len(centroids)
    near = np.zeros((m, m), bool)
    probes = min(_PROBES, m)

    def fill(part: slice) -> None:
        sims = centroids[part] @ centroids.T
        nearest = np.argpartition(-sims, probes - 1, axis=1)[:, :probes]
        np.put_along_axis(near[part], nearest, True, axis=1)

    map_on_cores(fill, chunks(m, 512))
    np.fill_diagonal(near, True)
    return near | near.T


def compare_cells(
    x: NdArray,
    sorting: Sorting,
    compared: NdArray,
    lists: Lists,
    cells: Sequence[int],
    places: NdArray,
    progress: Callable[[int], object],
) -> None:
    """Enter the points of some cells and of later ones that they are compared with in each other's lists.

    ``places`` (m) says where the lists of each cell begin.
    """
    from a2lp.pool import _kernels as kernels

    order, starts, _ = sorting
    locks = [threading.Lock() for _ in range(len(compared))]
    counting = threading.Lock()
    done = 0

    def of(a: int) -> Lists:
        part = slice(places[a], places[a] + starts[a + 1] - starts[a])
        return Lists(lists.similarities[part], lists.indices[part])

    def one(a: int) -> None:
        nonlocal done
        rows = slice(starts[a], starts[a + 1])
        mine = unit_rows(x, order[rows]).astype(np.float32, copy=False)
        within = mine @ mine.T
        np.fill_diagonal(within, -1)
        own = of(a)
        with locks[a]:
            kernels.merge_rows(within, rows.start, *own)
        for group in _groups(a + 1 + np.flatnonzero(compared[a, a + 1 :]), starts):
            columns = [slice(starts[b], starts[b + 1]) for b in group]
            others = np.concatenate([order[part] for part in columns])
            block = mine @ unit_rows(x, others).astype(np.float32, copy=False).T
            low = 0
            for b, part in zip(group, columns, strict=True):
                high = low + part.stop - part.start
                with locks[a]:
                    kernels.merge_rows_between(block, low, high, part.start, *own)
                with locks[b]:
                    kernels.merge_columns_between(block, low, high, rows.start, *of(b))
                low = high
        with counting:
            done += 1
            progress(done)

    map_on_cores(one, cells)


def _groups(cells: NdArray, starts: NdArray) -> list[list[int]]:
    """Cells in groups whose points fill a block."""
    groups: list[list[int]] = []
    size = _COLUMNS
    for cell in cells.tolist():
        if size >= _COLUMNS:
            groups.append([])
            size = 0
        groups[-1].append(cell)
        size += int(starts[cell + 1] - starts[cell])
    return groups


class Links(NamedTuple):
    """The neighbours of each point, some of those whose neighbour it is, and which of them are new."""

    points: NdArray  # (n, width)
    counts: NdArray  # (n,)
    new: NdArray  # (n, width)


def _link(lists: Lists, before: Links | None) -> Links:
    from a2lp.pool import _search as kernels

    n = len(lists.indices)
    links, counts = np.empty((n, LINKS), np.int32), np.zeros(n, np.int32)
    kernels.add_reverse(lists.indices, min(_LINKED, lists.indices.shape[1]), links, counts)
    new = np.ones((n, LINKS), bool) if before is None else before.new  # written anew below
    if before is not None:
        parts = chunks(n, _ROWS)
        map_on_cores(
            lambda part: kernels.mark_new(links[part], counts[part], *(a[part] for a in before[:2]), new[part]), parts
        )
    return Links(links, counts, new)


def join_cells(
    x: NdArray,
    sorting: Sorting,
    compared: NdArray,
    lists: Lists,
    links: Links,
    cells: Sequence[int],
    progress: Callable[[int], object],
) -> None:
    """Offer each point of some cells the neighbours of its neighbours."""
    from a2lp.pool import _search as kernels

    order, starts, cell = sorting
    n, own, counting = len(order), threading.local(), threading.Lock()
    done = 0

    def one(a: int) -> None:
        nonlocal done
        if not hasattr(own, "met"):
            own.met, own.slot = np.full((2, n), -1, np.int32), np.empty(n, np.int32)
            own.places, own.names = np.empty(1 << 18, np.int32), np.empty(1 << 16, np.int32)
        first, last = int(starts[a]), int(starts[a + 1])
        begins = np.empty(last - first + 1, np.int64)
        while True:
            spaces = own.met, own.slot, begins, own.places, own.names
            size, count = kernels.candidates(first, last, lists.indices, *links, cell, compared, *spaces)
            if size >= 0:
                break
            own.places, own.names = np.empty(2 * len(own.places), np.int32), np.empty(2 * len(own.names), np.int32)
            own.met[:] = -1
        if size:
            names = own.names[:count]
            mine = unit_rows(x, order[first:last]).astype(np.float32, copy=False)
            others = unit_rows(x, order[names]).astype(np.float32, copy=False)
            kernels.offer(first, mine, others, names, own.places, begins, *lists)
        with counting:
            done += 1
            progress(done)

    map_on_cores(one, cells)


def _in_the_order_of_points(lists: Lists, order: NdArray) -> Lists:
    from a2lp.pool import _kernels as kernels

    found = Lists(np.empty_like(lists.similarities), np.empty_like(lists.indices))
    for part in chunks(len(order), _ROWS):
        indices = lists.indices[part]
        known = indices != kernels.NOBODY
        found.similarities[order[part]] = lists.similarities[part]
        found.indices[order[part]] = np.where(known, order[np.where(known, indices, 0)], kernels.NOBODY)
    return found
