"""An order of the points of a graph in which products with it are fast: neighbours are near each other in memory.

Points are sorted into cells of those that are few edges apart, and cells are visited along a spanning tree of their
strongest connections. Then each point joins the group of cells that most of its edges lead to. So the rows that a
product reads for a point were mostly read a short time before, and are in the cache.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import depth_first_order, minimum_spanning_tree

from a2lp.pool.neighbours import NdArray

_CELL = 256  # points of a cell
_GROUP = 16  # cells that follow each other: their rows fit in the cache
_ROUNDS = 4  # in which each point joins the group that it is connected with most strongly
_SAMPLED = 16  # of its points, those whose edges count for its connections


def fast_order(indptr: NdArray, indices: NdArray, weights: NdArray) -> NdArray:
    """The points (n,) in this order; the arrays are those of a csr_array, ``indptr`` in int64, ``indices`` in int32."""
    from a2lp.pool import _solver as kernels

    n = len(indptr) - 1
    m = max(1, n // _CELL)
    cell = np.empty(n, np.int64)
    kernels.nearest_seed(indptr, indices, np.linspace(0, n - 1, m).astype(np.int64), cell)
    cell[cell < 0] = m  # no path leads to a seed
    place = np.argsort(_order_of_cells(indptr, indices, weights, cell, m + 1))[cell]
    group = place // _GROUP
    for _ in range(_ROUNDS):
        group = kernels.heaviest(indptr, indices, weights, group, m // _GROUP + 1)
    return np.lexsort((place, group)).astype(np.int32)


def _order_of_cells(indptr: NdArray, indices: NdArray, weights: NdArray, cell: NdArray, m: int) -> NdArray:
    rows = np.arange(0, len(cell), _CELL // _SAMPLED)
    lengths = indptr[rows + 1] - indptr[rows]
    ends = np.cumsum(lengths)
    entries = np.arange(ends[-1]) + np.repeat(indptr[rows] - ends + lengths, lengths)
    one, other = cell[np.repeat(rows, lengths)], cell[indices[entries]]
    joined = sparse.csr_array((weights[entries].astype(np.float64), (one, other)), shape=(m, m))
    joined.sum_duplicates()
    joined.data = 1 / joined.data
    chain = np.arange(m - 1)  # the weakest connections, so that there is only one tree
    weakest = 2 * joined.data.max(initial=1.0)
    lengths_between = joined + sparse.csr_array((np.full(m - 1, weakest), (chain, chain + 1)), shape=(m, m))
    tree = minimum_spanning_tree(lengths_between)
    return np.asarray(depth_first_order(tree, 0, directed=False, return_predecessors=False))
