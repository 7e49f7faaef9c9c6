"""Conjugate gradients for (I - alpha S) Z = Y, a block of columns at a time, with the rows divided among the cores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from a2lp import cores
from a2lp.arrays import chunks
from a2lp.pool.graph import System
from a2lp.pool.neighbours import NdArray, rows_of

LANES = 8  # columns are padded to a multiple of this, so that loops over them are vector operations
_LOOSE = 1e-4  # from this tolerance on, float32 is precise enough, and so is the residual that the rounds keep up
_SHORT = 1 << 18  # numbers below which a step is divided among the cores only once


class Solver:
    """Solves for the columns of one block; its arrays have the rows in the order of the system."""

    def __init__(self, system: System, alpha: float, largest: float, run: cores.Map) -> None:
        from a2lp.pool import _solver as kernels

        self.kernels, self.alpha, self.largest, self.run, self.order = kernels, alpha, largest, run, system.order
        self.system = system.indptr, system.indices, system.data
        self.n = len(system.indptr) - 1
        self.n_blocks = math.ceil(self.n / kernels.ROWS)
        self.n_cores = 1 if run is cores.alone else cores.count()

    def solve(self, y: NdArray, start: NdArray | None, z: NdArray, tolerance: float) -> tuple[NdArray, int]:
        """Write the solution to ``z``; the relative residuals that were reached, and the rounds."""
        loose = y.dtype == self.system[2].dtype == np.float32 and tolerance >= _LOOSE
        right = self._gathered(y, np.float32 if loose else np.float64)
        squares = self._sums(self.kernels.squares, right)
        length = np.sqrt(np.where(squares > 0, squares, 1))[: y.shape[1]]
        # twice the rounds that are enough without rounding, at the condition number (1 + alpha) / (1 - alpha)
        root = math.sqrt((1 + self.alpha) / (1 - self.alpha))
        limit = math.ceil(root * math.log(2 * root / tolerance)) + 1
        # a tenth below what is asked for, so that a little rounding does no harm
        enough = (0.9 * tolerance) ** 2 * squares
        rounds, best = 0, math.inf
        solution, left, missed = self._begin(right, start, squares, enough, loose)
        while True:
            reached = np.sqrt(missed)[: y.shape[1]] / length
            if start is not None:
                # once more where rounding took the running residual away from the true one, as long as that helps
                if reached.max() <= tolerance or reached.max() >= best:
                    break
                best = float(reached.max())
            missed, count = self._rounds((solution, left, None), missed, enough, limit)
            rounds += count
            if loose:
                reached = np.sqrt(missed)[: y.shape[1]] / length
                break
            self._scatter(solution, z)
            start = z  # as it will be returned: the precision of Z counts
            solution, left, missed = self._begin(right, start, squares, enough, loose)
        self._scatter(solution, z)
        return reached, rounds

    def _begin(
        self, right: NdArray, start: NdArray | None, squares: NdArray, enough: NdArray, loose: bool
    ) -> tuple[NdArray, NdArray, NdArray]:
        """Z from which to go on, its residual, and the squared length of that.

        With ``loose`` the residual takes the place of ``right``, which is needed only once.
        """
        z, r = np.zeros_like(right), right if loose else right.copy()
        if start is None:
            return z, r, squares
        first = self._gathered(start, right.dtype)
        first[:, squares == 0] = 0
        product = np.empty_like(first)
        self._sums(self.kernels.multiply, first, product, system=True)
        missed, peaks = self._advance(z, r, first, product, np.ones(z.shape[1]))
        for column in np.flatnonzero((missed <= enough) & (peaks > self.largest)).tolist():
            self._settle(z[:, column], r[:, column])
        return z, r, missed

    def _settle(self, z: NdArray, r: NdArray) -> None:
        """Solve for the largest residuals of a column, where they are."""
        from a2lp.pool import _kernels as kernels

        rows = np.flatnonzero(np.abs(r) > self.largest)
        column, touched = np.zeros(self.n), np.empty(self.n, np.int64)
        weights = r[rows].astype(np.float64)
        count = kernels.push(*self.system, self.alpha, rows, weights, self.largest, column, touched)
        z[touched[:count]] += column[touched[:count]].astype(z.dtype)

    def _rounds(
        self,
        arrays: tuple[NdArray, NdArray, NdArray | None],
        squares: NdArray,
        enough: NdArray,
        limit: int,
    ) -> tuple[NdArray, int]:
        """Conjugate gradients from Z with its residual R, first in its direction: what is left, and the rounds."""
        z, r, p = arrays
        product = None
        for rounds in range(limit):
            active = squares > enough
            if not active.any():
                return squares, rounds
            if 2 * padded(int(active.sum())) <= len(active):
                return self._fewer(np.flatnonzero(active), arrays, (squares, enough), limit, rounds)
            if p is None or product is None:
                p, product = r.copy() if p is None else p, np.empty_like(r)
            curvature = self._sums(self.kernels.multiply, p, product, system=True)
            # a column that is done does not change
            step = np.divide(squares, curvature, out=np.zeros_like(squares), where=active & (curvature > 0))
            found, _ = self._advance(z, r, p, product, step)
            share = np.divide(found, squares, out=np.zeros_like(squares), where=step > 0).astype(z.dtype)
            squares = np.where(step > 0, found, squares)
            self._each(lambda first, last, p=p, share=share: self.kernels.turn(r, p, share, first, last), z.size)
        return squares, limit

    def _fewer(
        self,
        columns: NdArray,
        arrays: tuple[NdArray, NdArray, NdArray | None],
        state: tuple[NdArray, NdArray],
        limit: int,
        rounds: int,
    ) -> tuple[NdArray, int]:
        """Go on with the columns that are not done yet."""
        z, r, p = arrays
        squares, enough = np.zeros((2, padded(len(columns))))
        squares[: len(columns)], enough[: len(columns)] = state[0][columns], state[1][columns]
        less = self._columns(z, columns), self._columns(r, columns), None if p is None else self._columns(p, columns)
        left, more = self._rounds(less, squares, enough, limit - rounds)
        self._put(less[0], z, columns)
        found = state[0].copy()
        found[columns] = left[: len(columns)]
        return found, rounds + more

    def _columns(self, array: NdArray, columns: NdArray) -> NdArray:
        """Some columns of an array, padded."""
        out = np.zeros((self.n, padded(len(columns))), array.dtype)

        def fill(first: int, last: int) -> None:
            part = slice(first * self.kernels.ROWS, last * self.kernels.ROWS)
            out[part, : len(columns)] = array[part][:, columns]

        self._each(fill, array.size)
        return out

    def _put(self, array: NdArray, out: NdArray, columns: NdArray) -> None:
        """Write some columns back."""

        def fill(first: int, last: int) -> None:
            part = slice(first * self.kernels.ROWS, last * self.kernels.ROWS)
            out[part, columns] = array[part, : len(columns)]

        self._each(fill, out.size)

    def _advance(self, z: NdArray, r: NdArray, p: NdArray, product: NdArray, step: NdArray) -> tuple[NdArray, NdArray]:
        """Take a step; the squared lengths (w,) and largest values (w,) of the residual after it."""
        sums, peaks = np.empty((2, self.n_blocks, z.shape[1]), z.dtype)
        arguments = (z, r, p, product, step.astype(z.dtype), sums, peaks)
        self._each(lambda first, last: self.kernels.advance(*arguments, first, last), z.size)
        return sums.sum(axis=0, dtype=np.float64), peaks.max(axis=0).astype(np.float64)

    def _sums(self, kernel: Any, *arrays: NdArray, system: bool = False) -> NdArray:
        """Call a kernel for all blocks of rows; the sums over points (w,) that it makes."""
        sums = np.empty((self.n_blocks, arrays[0].shape[1]), arrays[0].dtype)
        matrix = (*self.system, sums.dtype.type(self.alpha)) if system else ()
        arguments = (*matrix, *arrays, sums)
        self._each(lambda first, last: kernel(*arguments, first, last), arrays[0].size)
        total: NdArray = sums.sum(axis=0, dtype=np.float64)  # from the first block to the last
        return total

    def _each(self, work: Any, size: int) -> None:
        """Call ``work(first, last)`` for ranges of blocks on all cores."""
        shares = self.n_cores * (1 if size < _SHORT else 4)  # of several, a core that is free takes the next
        parts = chunks(self.n_blocks, math.ceil(self.n_blocks / shares))
        self.run(lambda part: work(part.start, part.stop), parts)

    def _gathered(self, array: NdArray, dtype: Any) -> NdArray:
        """The rows of an array in the order of the system, padded."""
        out = np.zeros((self.n, padded(array.shape[1])), dtype)

        def fill(first: int, last: int) -> None:
            part = slice(first * self.kernels.ROWS, last * self.kernels.ROWS)
            rows = part if self.order is None else self.order[part]
            out[part, : array.shape[1]] = rows_of(array, rows) if array.dtype == np.float16 else array[rows]

        self._each(fill, out.size)
        return out

    def _scatter(self, array: NdArray, out: NdArray) -> None:
        """Write rows back in the order of the points."""

        def fill(first: int, last: int) -> None:
            part = slice(first * self.kernels.ROWS, last * self.kernels.ROWS)
            out[part if self.order is None else self.order[part]] = array[part, : out.shape[1]]

        self._each(fill, array.size)


def padded(c: int) -> int:
    """The number of columns of an array for c classes."""
    return LANES * math.ceil(c / LANES)
