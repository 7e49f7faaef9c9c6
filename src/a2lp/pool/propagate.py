"""Label propagation on a sparse graph: (I - alpha S) Z = Y for all classes at once, by conjugate gradients.

The eigenvalues lie between 1 - alpha and 1 + alpha, so a few dozen rounds give six digits at any size. Classes are
solved in blocks, a block to a core, in float64 whatever is stored.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from a2lp import cores
from a2lp.arrays import chunks
from a2lp.checks import require_number
from a2lp.cores import map_on_cores
from a2lp.errors import InputError, ShapeError
from a2lp.pool.graph import PoolGraph
from a2lp.pool.neighbours import NdArray

_BLOCK = 16  # classes of a block: a row of it fills two cache lines


class Propagated(NamedTuple):
    """The solution.

    Attributes
    ----------
    Z : array (n, c)
        In the precision of Y.
    residual : array (c,)
        |Y - (I - alpha S) Z| / |Y| of each column, computed from Z as it is returned.
    iterations : int
        Rounds of the class that took most.
    """

    Z: NdArray
    residual: NdArray
    iterations: int


def propagate(
    graph: PoolGraph, Y: Any, alpha: float = 0.8, *, tolerance: float = 1e-6, start: Any = None
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
    """
    y = _matrix("Y", Y, graph.n)
    require_number("alpha", alpha, "at least 0 and below 1", lambda v: 0 <= v < 1, "The paper uses 0.8.")
    require_number("tolerance", tolerance, "between 0 and 1", lambda v: 0 < v < 1, "1e-6 is plenty for labels.")
    z = np.zeros_like(y) if start is None else _matrix("start", start, graph.n).astype(y.dtype)
    if z.shape != y.shape:
        raise ShapeError(f"start has shape {z.shape} and Y {y.shape}; start must be a Z of as many points and classes.")
    s = graph.normalised
    # of one type, so that it is compiled once
    system = (s.indptr.astype(np.int64, copy=False), s.indices.astype(np.int32, copy=False), s.data, float(alpha))
    size = min(_BLOCK, math.ceil(y.shape[1] / cores.count()))
    found = map_on_cores(
        lambda part: _solve_block(system, y[:, part], z[:, part], float(tolerance)), chunks(y.shape[1], size)
    )
    residual = np.concatenate([block[0] for block in found])
    if not (residual <= tolerance).all():
        raise InputError(
            f"alpha={alpha} and tolerance={tolerance:g}: {y.dtype} numbers reach a relative residual of "
            f"{residual.max():.3g} on this graph. Pass Y in float64, take alpha further from 1, or a larger tolerance."
        )
    return Propagated(z, residual, max(block[1] for block in found))


def _solve_block(system: tuple[Any, ...], y: NdArray, z: NdArray, tolerance: float) -> tuple[NdArray, int]:
    """Solve for some classes, in place of ``z``; the relative residuals that were reached, and the rounds."""
    from a2lp.pool import _kernels as kernels

    right = np.ascontiguousarray(y, np.float64)
    length = np.sqrt((right * right).sum(axis=0))
    z[:, length == 0] = 0
    # twice the rounds that are enough without rounding, at the condition number (1 + alpha) / (1 - alpha)
    root = math.sqrt((1 + system[3]) / (1 - system[3]))
    limit = math.ceil(root * math.log(2 * root / tolerance)) + 1
    r = np.empty_like(right)
    rounds, best = 0, math.inf
    while True:
        solution = z.astype(np.float64, order="C")  # as it will be returned: the precision of Z counts
        squares = kernels.residual(*system, solution, right, r)
        reached = np.divide(np.sqrt(squares), length, out=np.zeros_like(length), where=length > 0)
        # once more where rounding took the running residual away from the true one, as long as that helps
        if reached.max() <= tolerance or reached.max() >= best:
            return reached, rounds
        best = float(reached.max())
        # a tenth below what is asked for, so that a little rounding does no harm
        rounds += kernels.conjugate_gradients(*system, solution, r, squares, (0.9 * tolerance * length) ** 2, limit)
        z[...] = solution


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
