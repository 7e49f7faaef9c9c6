"""Label propagation on a sparse graph: (I - alpha S) Z = Y for all classes at once, by conjugate gradients.

The eigenvalues lie between 1 - alpha and 1 + alpha, so a few dozen rounds give six digits at any size. Classes are
solved in blocks of columns, and the rows of each are divided among the cores. Labels in float32 with a tolerance of
1e-4 or more are solved in float32, all else in float64.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from a2lp import cores
from a2lp.arrays import chunks
from a2lp.checks import require_number
from a2lp.errors import InputError, ShapeError
from a2lp.pool.graph import PoolGraph, System
from a2lp.pool.neighbours import NdArray

_WIDTH = 32  # columns of a block: a row of it fills two cache lines
_LANES = 8  # columns are padded to a multiple of this, so that loops over them are vector operations
_LOOSE = 1e-4  # from this tolerance on, float32 is precise enough, and so is the residual that the rounds keep up
_SHORT = 1 << 18  # numbers below which a step is divided among the cores only once
_WHOLE = 50_000  # points up to which each core solves for blocks of its own; beyond, all share the rows of one


class Propagated(NamedTuple):
    """The solution.

    Attributes
    ----------
    Z : array (n, c)
        In the precision of Y.
    residual : array (c,)
        |Y - (I - alpha S) Z| / |Y| of each column. For tolerances below 1e-4 it is computed from Z as it is returned;
        otherwise it is the one that conjugate gradients keep up.
    iterations : int
        Rounds of the class that took most.
    """

    Z: NdArray
    residual: NdArray
    iterations: int


def propagate(
    graph: PoolGraph,
    Y: Any,
    alpha: float = 0.8,
    *,
    tolerance: float = 1e-6,
    start: Any = None,
    largest: float = math.inf,
) -> Propagated:
    """Solve (I - alpha S) Z = Y (eq. 5).

    Parameters
    ----------
    graph : PoolGraph
    Y : array (n, c)
        What is spread: one-hot rows of labelled points, or any numbers. float32 stays, all else becomes float64.
    alpha : float
        How far labels propagate, from 0 (nowhere) to below 1.
    tolerance : float
        The relative residual of each column is at most this; an error is raised if that cannot be reached.
    start : array (n, c), optional
        The solution for a similar Y: columns that did not change cost one product.
    largest : float
        From a start, a change at one point among many may be within the tolerance. Residuals larger than this are
        solved for where they are, so that it counts.
    """
    y = _matrix("Y", Y, graph.n)
    require_number("alpha", alpha, "at least 0 and below 1", lambda v: 0 <= v < 1, "The paper uses 0.8.")
    require_number("tolerance", tolerance, "between 0 and 1", lambda v: 0 < v < 1, "1e-6 is plenty for labels.")
    before = None if start is None else np.asarray(start)
    if before is not None and before.shape != y.shape:
        raise ShapeError(
            f"start has shape {before.shape} and Y {y.shape}; start must be a Z of as many points and classes."
        )
    z, system = np.empty_like(y), graph.system

    def solve(part: slice, run: cores.Map) -> tuple[NdArray, int]:
        mine = None if before is None else before[:, part]
        return _Solver(system, float(alpha), float(largest), run).solve(y[:, part], mine, z[:, part], float(tolerance))

    parts = _blocks(y.shape[1])
    with cores.crew() as run:
        if graph.n <= _WHOLE and len(parts) > 1:
            found = run(lambda part: solve(part, cores.alone), parts)
        else:
            found = [solve(part, run) for part in parts]
    residual = np.concatenate([reached for reached, _ in found])
    if not (residual <= tolerance).all():
        raise InputError(
            f"alpha={alpha} and tolerance={tolerance:g}: {y.dtype} numbers reach a relative residual of "
            f"{residual.max():.3g} on this graph. Pass Y in float64, take alpha further from 1, or a larger tolerance."
        )
    return Propagated(z, residual, max(rounds for _, rounds in found))


def _blocks(c: int) -> list[slice]:
    """Columns in blocks of nearly equal width, a multiple of what is padded."""
    lanes = math.ceil(c / _LANES)
    count = math.ceil(lanes * _LANES / _WIDTH)
    return list(chunks(c, _LANES * math.ceil(lanes / count)))


class _Solver:
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
        squares, product = squares.copy(), None
        for rounds in range(limit):
            active = squares > enough
            if not active.any():
                return squares, rounds
            if 2 * _padded(int(active.sum())) <= len(active):
                columns = np.flatnonzero(active)
                less = [None if array is None else self._columns(array, columns) for array in (z, r, p)]
                left, more = self._rounds(tuple(less), *_pad(squares, enough, columns), limit - rounds)  # type: ignore[arg-type]
                self._put(less[0], z, columns)
                squares[columns] = left[: len(columns)]
                return squares, rounds + more
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

    def _columns(self, array: NdArray, columns: NdArray) -> NdArray:
        """Some columns of an array, padded."""
        out = np.zeros((self.n, _padded(len(columns))), array.dtype)

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
        out = np.zeros((self.n, _padded(array.shape[1])), dtype)

        def fill(first: int, last: int) -> None:
            part = slice(first * self.kernels.ROWS, last * self.kernels.ROWS)
            out[part, : array.shape[1]] = array[part if self.order is None else self.order[part]]

        self._each(fill, out.size)
        return out

    def _scatter(self, array: NdArray, out: NdArray) -> None:
        """Write rows back in the order of the points."""

        def fill(first: int, last: int) -> None:
            part = slice(first * self.kernels.ROWS, last * self.kernels.ROWS)
            out[part if self.order is None else self.order[part]] = array[part, : out.shape[1]]

        self._each(fill, array.size)


def _padded(c: int) -> int:
    return _LANES * math.ceil(c / _LANES)


def _pad(squares: NdArray, enough: NdArray, columns: NdArray) -> NdArray:
    """What is left and what is enough for some columns (2, w); zero where they are padded."""
    less = np.zeros((2, _padded(len(columns))))
    less[:, : len(columns)] = squares[columns], enough[columns]
    return less


def _matrix(name: str, values: Any, n: int) -> NdArray:
    values = np.asarray(values)
    if values.ndim != 2 or len(values) != n or values.shape[1] == 0:
        raise ShapeError(f"{name} has shape {values.shape}; the graph has {n} points, so it must be ({n}, c).")
    if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
        raise InputError(
            f"{name} must hold finite numbers; found nan, inf or {values.dtype} values. Check what made it."
        )
    found: NdArray = values.astype(np.float32 if values.dtype in (np.float16, np.float32) else np.float64, copy=False)
    return found
