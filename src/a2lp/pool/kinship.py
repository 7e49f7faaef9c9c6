"""The similarity of points on a graph, K = I + 0.8 S + 0.64 S², scaled to a diagonal of 1: paths of up to two edges.

K has hundreds of entries in a row, so it is never held as a whole: rows are computed where they are needed.
"""

from __future__ import annotations

import numpy as np

from a2lp.arrays import chunks
from a2lp.cores import map_tasks
from a2lp.pool.graph import PoolGraph
from a2lp.pool.neighbours import NdArray

_EDGE = 0.8  # an edge's share in K
_ROWS = 512  # whose gains are computed at a time by one core
_ROUNDING = 1 + 1e-6  # the weights may be in float32


class Kinship:
    """K of a graph (n, n), row by row."""

    def __init__(self, graph: PoolGraph) -> None:
        from a2lp.pool import _solver as kernels

        s = graph.normalised
        self.n, self._multiply = graph.n, kernels.multiply_vector
        self._system = s.indptr.astype(np.int64, copy=False), s.indices.astype(np.int32, copy=False), s.data
        squares = np.empty(self.n)
        kernels.row_sums(self._system[0], s.data, 2, squares)
        self._scale = 1 / np.sqrt(1 + _EDGE**2 * squares)
        self._space = self._make_space()

    def row(self, row: int) -> tuple[NdArray, NdArray]:
        """The columns of a row where it is not 0 (m,), and its values there (m,)."""
        from a2lp.pool import _kernels as kernels

        values, touched = self._space
        count = kernels.kin(*self._system, _EDGE, self._scale, row, values, touched)
        columns = touched[:count].copy()
        found = values[columns]
        values[columns] = 0
        return columns, found

    def bounds(self, need: NdArray, covered: NdArray) -> NdArray:
        """At least what each point would add to what is covered (n,): the sum over j of need_j [K_ij - covered_j]_+.

        No entry of K is above 1, so it is at most the sum of need_j (1 - covered_j) K_ij: two products with the graph.
        """
        v = need * (1 - covered) * self._scale
        around, further = np.empty((2, self.n))
        self._multiply(*self._system, v, around)
        self._multiply(*self._system, around, further)
        found: NdArray = self._scale * (v + _EDGE * around + _EDGE**2 * further)
        return found * _ROUNDING

    def gains(self, rows: NdArray, need: NdArray, covered: NdArray) -> NdArray:
        """How much some points would add (m,)."""
        from a2lp.pool import _kernels as kernels

        found, parts = np.empty(len(rows)), list(chunks(len(rows), _ROWS))

        def fill(number: int, space: tuple[NdArray, NdArray]) -> None:
            part = parts[number]
            kernels.kin_gains(*self._system, _EDGE, self._scale, need, covered, rows[part], *space, found[part])

        map_tasks(fill, len(parts), self._make_space)
        return found

    def _make_space(self) -> tuple[NdArray, NdArray]:
        return np.zeros(self.n), np.empty(self.n, np.int32)
