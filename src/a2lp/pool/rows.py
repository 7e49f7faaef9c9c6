"""Work on the rows of a pool, a few thousand at a time, on all cores.

Points may be a memory map in float16: rows become float32 when they are used. The blocks are the same for any number
of cores, and so are the results.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from a2lp.arrays import chunks
from a2lp.cores import map_on_cores
from a2lp.pool.neighbours import NdArray, rows_of
from a2lp.pool.stages import release

ROWS = 2048


def by_rows(function: Callable[[slice], NdArray], out: NdArray) -> NdArray:
    """``out``, its blocks of rows filled with what ``function`` gives for them."""

    def fill(part: slice) -> None:
        out[part] = function(part)

    map_on_cores(fill, chunks(len(out), ROWS))
    return out


def products(points: NdArray, function: Callable[[slice, NdArray], NdArray], out: NdArray) -> NdArray:
    """``out``, its blocks of rows filled with what ``function`` makes of their slice and their points."""
    by_rows(lambda part: function(part, rows_of(points, part)), out)
    release(points)
    return out


def weighted_sums(weights: NdArray, points: NdArray) -> NdArray:
    """W' X (c, d) of weights (n, c) and points (n, d)."""
    size = max(ROWS, -(-len(points) // 64))  # at most 64 sums are held
    found = map_on_cores(lambda part: weights[part].T @ rows_of(points, part), chunks(len(points), size))
    release(points)
    return np.asarray(sum(found[1:], found[0]))


def as_distributions(z: NdArray, *, overwrite: bool = False) -> NdArray:
    """Rows that sum to 1; uniform where nothing positive arrived. ``z`` may be overwritten by them."""

    def normalised(part: slice) -> NdArray:
        rows = np.maximum(z[part], 0)  # the solver may leave values slightly below 0
        total = rows.sum(axis=1, keepdims=True)
        rows[total[:, 0] <= 0] = 1 / z.shape[1]
        return np.asarray(rows / np.where(total > 0, total, 1))

    return by_rows(normalised, z if overwrite else np.empty_like(z))
