"""Work on the rows of a pool: a few thousand at a time on all cores, or many at a time on a device.

Points may be a memory map in float16: rows become float32 when they are used. The blocks are the same for any number
of cores, and so are the results. Tensors stay on their device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from a2lp.arrays import chunks, namespace, to_numpy
from a2lp.cores import map_on_cores
from a2lp.pool.neighbours import NdArray, rows_of
from a2lp.pool.stages import release

ROWS = 2048
_ROWS_ON_DEVICE = 1 << 18  # enough work for a device, and small beside the points


def by_rows(function: Callable[[slice], Any], out: Any) -> Any:
    """``out``, its blocks of rows filled with what ``function`` gives for them."""

    def fill(part: slice) -> None:
        out[part] = function(part)

    if isinstance(out, np.ndarray):
        map_on_cores(fill, chunks(len(out), ROWS))
    else:
        for part in chunks(len(out), _ROWS_ON_DEVICE):
            fill(part)
    return out


def host_rows(points: Any, rows: NdArray) -> NdArray:
    """Some rows of points, given by a mask (n,), in the host's memory."""
    return rows_of(points, rows) if isinstance(points, np.ndarray) else to_numpy(points[np.flatnonzero(rows)])


def products(points: Any, function: Callable[[slice, Any], Any], out: Any) -> Any:
    """``out``, its blocks of rows filled with what ``function`` makes of their slice and their points."""
    if not isinstance(points, np.ndarray):
        return by_rows(lambda part: function(part, points[part]), out)

    def made(part: slice) -> Any:
        found = function(part, rows_of(points, part))
        release(points[part])
        return found

    return by_rows(made, out)


def weighted_sums(weights: Any, points: Any) -> Any:
    """W' X (c, d) of weights (n, c) and points (n, d)."""
    if not isinstance(points, np.ndarray):
        return weights.T @ points

    def sums(part: slice) -> NdArray:
        found: NdArray = weights[part].T @ rows_of(points, part)
        release(points[part])
        return found

    size = max(ROWS, -(-len(points) // 64))  # at most 64 sums are held
    found = map_on_cores(sums, chunks(len(points), size))
    return np.asarray(sum(found[1:], found[0]))


def as_distributions(z: Any, *, overwrite: bool = False) -> Any:
    """Rows that sum to 1; uniform where nothing positive arrived. ``z`` may be overwritten by them."""
    xp = namespace(z)

    def normalised(part: slice) -> Any:
        rows = xp.clip(z[part], 0, None)  # the solver may leave values slightly below 0
        total = xp.sum(rows, axis=1, keepdims=True)
        some = total > 0
        return xp.where(some, rows / xp.where(some, total, 1), 1 / z.shape[1])

    return by_rows(normalised, z if overwrite else xp.empty_like(z))
