"""Label propagation on a sparse graph: (I - alpha S) Z = Y for all classes at once, by conjugate gradients.

The eigenvalues lie between 1 - alpha and 1 + alpha, so a few dozen rounds give six digits at any size. Classes are
solved in blocks of columns, and the rows of each are divided among the cores. Labels in float32 with a tolerance of
1e-4 or more are solved in float32, all else in float64.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_torch_array

from a2lp import cores
from a2lp.checks import require_number
from a2lp.errors import InputError, ShapeError
from a2lp.pool.conjugate import LANES, Solver
from a2lp.pool.graph import PoolGraph
from a2lp.pool.neighbours import NdArray

_WIDTH = 32  # columns of a block: a row of it fills two cache lines
_LONG_WIDTH = 24  # of one that is larger than the cache: there, a column among 32 takes three times as long
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
    overwrite: bool = False,
) -> Propagated:
    """Solve (I - alpha S) Z = Y (eq. 5).

    Parameters
    ----------
    graph : PoolGraph
    Y : array (n, c)
        What is spread: one-hot rows of labelled points, or any numbers. float32 stays, all else becomes float64. A
        torch tensor is solved for on its device, in its precision.
    alpha : float
        How far labels propagate, from 0 (nowhere) to below 1.
    tolerance : float
        The relative residual of each column is at most this; an error is raised if that cannot be reached.
    start : array (n, c), optional
        The solution for a similar Y: columns that did not change cost one product.
    largest : float
        From a start, a change at one point among many may be within the tolerance. Residuals larger than this are
        solved for where they are, so that it counts.
    overwrite : bool
        Y may be overwritten by Z.
    """
    if is_torch_array(Y):
        return _on_device(graph, Y, alpha, tolerance, start, largest)
    y = _matrix("Y", Y, graph.n)
    require_number("alpha", alpha, "at least 0 and below 1", lambda v: 0 <= v < 1, "The paper uses 0.8.")
    require_number("tolerance", tolerance, "between 0 and 1", lambda v: 0 < v < 1, "1e-6 is plenty for labels.")
    before = None if start is None else np.asarray(start)
    if before is not None and before.shape != y.shape:
        raise ShapeError(
            f"start has shape {before.shape} and Y {y.shape}; start must be a Z of as many points and classes."
        )
    z, system = y if overwrite and y is Y else np.empty_like(y), graph.system

    def solve(part: slice, run: cores.Map) -> tuple[NdArray, int]:
        mine = None if before is None else before[:, part]
        return Solver(system, float(alpha), float(largest), run).solve(y[:, part], mine, z[:, part], float(tolerance))

    parts = _blocks(y.shape[1], _WIDTH if graph.n <= _WHOLE else _LONG_WIDTH)
    with cores.crew() as run:
        if graph.n <= _WHOLE and len(parts) > 1:
            found = run(lambda part: solve(part, cores.alone), parts)
        else:
            found = [solve(part, run) for part in parts]
    residual = np.concatenate([reached for reached, _ in found])
    return _checked(Propagated(z, residual, max(rounds for _, rounds in found)), alpha, tolerance)


def _on_device(graph: PoolGraph, y: Any, alpha: float, tolerance: float, start: Any, largest: float) -> Propagated:
    from a2lp.pool.device_solver import solve

    z, residual, rounds = solve(graph.on(y.device), y, alpha, tolerance, start, largest)
    return _checked(Propagated(z, residual.cpu().numpy(), rounds), alpha, tolerance)


def _checked(found: Propagated, alpha: float, tolerance: float) -> Propagated:
    if not (found.residual <= tolerance).all():
        raise InputError(
            f"alpha={alpha} and tolerance={tolerance:g}: {found.Z.dtype} numbers reach a relative residual of "
            f"{found.residual.max():.3g} on this graph. Pass Y in float64, take alpha further from 1, or a larger "
            "tolerance."
        )
    return found


def _blocks(c: int, most: int) -> list[slice]:
    """Columns in blocks of nearly equal width, multiples of what is padded."""
    lanes = math.ceil(c / LANES)
    ends = np.cumsum([len(part) for part in np.array_split(np.arange(lanes), math.ceil(lanes * LANES / most))]) * LANES
    return [slice(start, min(end, c)) for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)]


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
