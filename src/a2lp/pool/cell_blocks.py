"""The search by cells on a cluster: a task takes a block of cells, and what it finds is a file of the pool's folder.

Workers map a copy of the points in the order of their cells, so that what a task reads lies together. Cells of a block
are compared with others, too, so its file holds lists of all these, and the command merges them; blocks are made of
cells that are near each other, so that these are few. The order of a list is total and the products are those of one
process, so the lists are the same, bit for bit, however they were divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from a2lp.arrays import chunks
from a2lp.cores import map_on_cores
from a2lp.pool.cells import LINKS, Links, Sorting, compare_cells, join_cells
from a2lp.pool.neighbours import Lists, NdArray
from a2lp.pool.stages import Stages, release
from a2lp.scale import Cluster, check_seen

_OPERATIONS = 4e11  # of a task: 5 to 30 s on one core; less in smaller pools, so that eight workers have work
_BLOCKS = 16  # at least
_ROWS = 8192
_POINTS, _CELLS = "shared points", "shared cells"


class Block(NamedTuple):
    """Some cells, by their places in an order of all."""

    first: int
    stop: int

    def __str__(self) -> str:
        return f"cells {self.first} to {self.stop - 1}"


class CellBlocks:
    """The search on a cluster.

    Parameters
    ----------
    cluster : Cluster
    stages : Stages
        Those of the pool; their folder is one that the workers see.
    x, sorting, compared : array (n, d), Sorting, array (m, m)
        As in ``a2lp.pool.cells``.
    total : int
        Of the progress: how often a cell is worked on.
    """

    def __init__(
        self, cluster: Cluster, stages: Stages, x: NdArray, sorting: Sorting, compared: NdArray, total: int
    ) -> None:
        self.cluster, self.stages, self.x, self.total = cluster, stages, x, total
        self.order, self.starts, self.compared = sorting.order, sorting.starts, compared
        pairs = sparse.csr_array(compared)
        self.turn = reverse_cuthill_mckee(pairs, symmetric_mode=True)
        sizes = np.diff(self.starts).astype(np.float64)
        self.pairs = sizes * (sparse.triu(pairs) @ sizes)  # that are compared for each cell (m,)
        self.candidates = sizes * LINKS**2 / 2  # about how many neighbours of neighbours are offered

    def compare(self, length: int) -> Lists:
        """``compare_cells`` of all cells."""
        from a2lp.pool import _kernels as kernels

        lists = Lists.empty(len(self.x), length, np.float32)
        for block in self._made("compared", self.pairs, compare_block, length):
            found = self.stages.arrived(_name("compared", block), 2)
            rows = _rows(self.starts, _reached(self.compared, self.turn[block.first : block.stop]))

            def merge(part: slice, rows: NdArray = rows, found: tuple[NdArray, ...] = found) -> None:
                mine = Lists(*(array[rows[part]] for array in lists))
                kernels.merge_lists(*(array[part] for array in found), *mine)
                for array, merged in zip(lists, mine, strict=True):
                    array[rows[part]] = merged

            map_on_cores(merge, chunks(len(rows), _ROWS))
        return lists

    def join(self, number: int, known: Lists, links: Links) -> Lists:
        """``join_cells`` of all cells; ``known`` are the lists before."""
        self.stages.keep(f"block links {number}", lambda: links)
        lists = Lists(*(np.empty_like(array) for array in known))
        for block in self._made(f"joined {number}", self.candidates, join_block, number):
            rows = _rows(self.starts, self.turn[block.first : block.stop])
            for array, found in zip(lists, self.stages.arrived(_name(f"joined {number}", block), 2), strict=True):
                array[rows] = found
        return lists

    def _made(self, what: str, pairs: NdArray, function: Callable[..., None], argument: int) -> Iterator[Block]:
        """Blocks, each once it has its file; ``pairs`` says how many points are compared for each cell (m,)."""
        blocks = _blocks(2 * self.x.shape[1] * pairs[self.turn])
        missing = [block for block in blocks if not self.stages.has(_name(what, block))]
        there = [block for block in blocks if block not in missing]
        yield from there
        if not missing:
            return
        self._share()
        done = len(self.turn) * (argument if function is join_block else 0)
        where = str(Path(self.stages.folder or "").resolve()), self.stages.key
        with self.cluster.work(self.total, done + sum(block.stop - block.first for block in there)) as work:
            for block in missing:
                work.add(block, function, *where, *block, argument, size=block.stop - block.first)
            for block, _, error in work:
                if error is not None:
                    raise error
                yield block

    def _share(self) -> None:
        """Write what all tasks read."""

        def fill(out: NdArray) -> None:
            def one(part: slice) -> None:
                out[part] = self.x[self.order[part]]

            map_on_cores(one, chunks(len(out), _ROWS))

        release(self.x, self.stages.mapped(_POINTS, self.x.shape, self.x.dtype, fill))
        self.stages.keep(_CELLS, lambda: (self.starts, self.compared, self.turn))


def _blocks(work: NdArray) -> list[Block]:
    """Cells in blocks of much the same work."""
    block = (np.cumsum(work) - work) // min(_OPERATIONS, work.sum() / _BLOCKS)
    ends = [*(np.flatnonzero(np.diff(block)) + 1).tolist(), len(work)]
    return [Block(*block) for block in zip([0, *ends[:-1]], ends, strict=True)]


def _reached(compared: NdArray, cells: NdArray) -> NdArray:
    """Some cells and the later ones that they are compared with."""
    later = compared[cells] & (np.arange(len(compared)) >= cells[:, None])
    return np.flatnonzero(later.any(axis=0))


def _rows(starts: NdArray, cells: NdArray) -> NdArray:
    """The points of some cells, in the order of all points by cells."""
    chosen = np.zeros(len(starts) - 1, bool)
    chosen[cells] = True
    return np.flatnonzero(np.repeat(chosen, np.diff(starts)))


def _name(what: str, block: Block) -> str:
    return f"block {what} {block}"


# ---- on a worker --------------------------------------------------------------------------------------------------


def compare_block(folder: str, key: str, first: int, stop: int, length: int) -> None:
    """Compare some cells with each other and with later ones, unless that has a file."""
    stages, x, sorting, compared, turn = _shared(folder, key)

    def make() -> Lists:
        reached = _reached(compared, turn[first:stop])
        sizes = np.diff(sorting.starts)[reached]
        places = np.zeros(len(compared), np.int64)
        places[reached] = np.cumsum(sizes) - sizes
        lists = Lists.empty(int(sizes.sum()), length, np.float32)
        compare_cells(x, sorting, compared, lists, turn[first:stop].tolist(), places, lambda done: None)
        return lists

    stages.keep(_name("compared", Block(first, stop)), make)


def join_block(folder: str, key: str, first: int, stop: int, number: int) -> None:
    """Offer the points of some cells the neighbours of their neighbours, unless that has a file."""
    stages, x, sorting, compared, turn = _shared(folder, key)

    def make() -> Lists:
        lists = Lists(*stages.arrived(f"lists {number - 1}", 2))
        links = Links(*stages.arrived(f"block links {number}", 3))
        join_cells(x, sorting, compared, lists, links, turn[first:stop].tolist(), lambda done: None)
        rows = _rows(sorting.starts, turn[first:stop])
        return Lists(*(array[rows] for array in lists))

    stages.keep(_name(f"joined {number}", Block(first, stop)), make)


def _shared(folder: str, key: str) -> tuple[Stages, NdArray, Sorting, NdArray, NdArray]:
    """What every task reads: the stages, the points in the order of their cells, these, pairs, and their order."""
    check_seen(Path(folder))
    stages = Stages.at(folder, key)
    (x,) = stages.arrived(_POINTS, 1)
    starts, compared, turn = stages.arrived(_CELLS, 3)
    cell = np.repeat(np.arange(len(compared)), np.diff(starts))
    return stages, x, Sorting(np.arange(len(x), dtype=np.int32), starts, cell), compared, turn
