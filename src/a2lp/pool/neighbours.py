"""The nearest neighbours of all points: exactly, tile by tile on all cores, or by cells (``a2lp.pool.cells``).

Unit vectors in float32 (float64 for float64 points) are made from the caller's array a tile at a time, so the array may
be a memory map in float16 that is larger than memory.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from a2lp.arrays import chunks, to_numpy
from a2lp.cores import map_on_cores
from a2lp.errors import InputError, ShapeError, UnknownNameError
from a2lp.graph import neighbours, tie_slack
from a2lp.pool.stages import Stages, release
from a2lp.preprocess import l2
from a2lp.scale import Cluster

NdArray = np.ndarray[Any, Any]
Progress = Callable[[int, int], object]  # called with the amount done and the total

METHODS = ("auto", "exact", "cells")
SPARE = 8  # neighbours beyond the k-th that a list keeps, since several may be tied with it
_EXACT = 20_000  # points up to which comparing all pairs takes hardly longer: two seconds on two cores
_LARGEST_HALF = 65504  # of the finite float16 numbers
_TILE = 2048  # two tiles and their product are 24 MB at 512 dimensions, and the product runs at full speed


class Lists(NamedTuple):
    """The nearest other points of each point, best first; unused places hold ``_kernels.NOBODY``."""

    similarities: NdArray  # (n, length)
    indices: NdArray  # (n, length) int32

    @classmethod
    def empty(cls, n: int, length: int, dtype: Any, worst: float | None = None) -> Lists:
        """Empty lists; similarities that are not above ``worst``, by default 0, are not entered."""
        from a2lp.pool import _kernels as kernels

        least = kernels.TINY if worst is None else worst
        return cls(np.full((n, length), least, dtype), np.full((n, length), kernels.NOBODY, np.int32))

    def choose(self, k: int) -> tuple[NdArray, NdArray]:
        """Which places are the k neighbours (n, length), ties as in ``a2lp.graph``; which lists end in a tie (n,)."""
        from a2lp.pool import _kernels as kernels

        chosen = np.zeros(self.indices.shape, bool)
        parts = list(chunks(len(chosen), 16 * _TILE))
        slack = tie_slack(self.similarities.dtype)
        cut = map_on_cores(
            lambda part: kernels.choose(self.similarities[part], self.indices[part], k, slack, chosen[part]), parts
        )
        return chosen, np.concatenate(cut)


def check_points(x: Any, name: str = "x") -> NdArray:
    """The caller's points as an array (n, d); a memory map is not read yet."""
    points = to_numpy(x)
    if points.ndim != 2 or 0 in points.shape:
        raise ShapeError(
            f"{name} has shape {points.shape}; it must be (n, d): a row for each point, none of them empty."
        )
    if points.dtype.kind not in "fiub" or points.dtype.itemsize > 8:
        raise InputError(
            f"{name} holds {points.dtype} values; it must hold float16, float32, float64 or integers. Convert it first."
        )
    return points


def rows_of(x: NdArray, rows: Any = slice(None)) -> NdArray:
    """Some rows of points, in float64 if they are, else in float32."""
    if x.dtype != np.float16:
        return np.ascontiguousarray(x[rows], dtype=np.float64 if x.dtype == np.float64 else np.float32)
    from a2lp.pool import _kernels as kernels

    half = np.ascontiguousarray(x[rows]).view(np.uint16)
    out = np.empty(half.shape, np.float32)
    kernels.widen(half, out.view(np.uint32))  # several times faster than NumPy's conversion
    out *= np.float32(2.0**112)
    out[np.abs(out) > _LARGEST_HALF] = np.nan  # infinities and nan, whose bits would mean large numbers
    return out


def unit_rows(x: NdArray, rows: Any = slice(None)) -> NdArray:
    """Some rows of the caller's points at unit length, in float64 if they are, else in float32."""
    part = rows_of(x, rows)
    if not np.isfinite(part).all():
        row = int(np.argmin(np.isfinite(part).all(axis=1)))
        where = np.arange(len(x))[rows][row]
        raise InputError(
            f"row {where} of the points holds nan or inf; all must be finite. Drop that "
            "row, or look for an overflow where the points were made."
        )
    return np.asarray(l2(part))


def nearest(queries: NdArray, x: NdArray, k: int) -> tuple[NdArray, NdArray]:
    """Indices (m, k) and cosines (m, k) of the k rows of ``x`` (n, d) nearest to each query (m, d), best first."""
    from a2lp.pool import _kernels as kernels

    queries, x = check_points(queries, "queries"), check_points(x)
    k = min(k, len(x))
    dtype = np.result_type(unit_rows(queries, slice(0, 1)), unit_rows(x, slice(0, 1)))
    lists = Lists.empty(len(queries), k, dtype, worst=-2)  # below every cosine: negative ones count, too

    def fill(rows: slice) -> None:
        mine = unit_rows(queries, rows).astype(dtype, copy=False)
        for columns in chunks(len(x), _TILE):
            block = mine @ unit_rows(x, columns).astype(dtype, copy=False).T
            kernels.merge_rows(block, columns.start, lists.similarities[rows], lists.indices[rows])
        release(queries[rows])

    map_on_cores(fill, chunks(len(queries), _tile(len(queries))))
    return lists.indices.astype(np.int64), lists.similarities


def pick_method(method: str, n: int) -> str:
    """``"exact"`` or ``"cells"`` for n points; ``"auto"`` is exact up to 20,000."""
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    if method != "auto":
        return method
    return "cells" if n > _EXACT else "exact"


def search(
    x: NdArray,
    length: int,
    method: str = "exact",
    progress: Progress | None = None,
    stages: Stages | None = None,
    cluster: Cluster | None = None,
) -> Lists:
    """The ``length`` nearest others of each row of ``x`` (n, d), at most n - 1."""
    from a2lp.pool.cells import search_cells

    progress = progress or (lambda done, of: None)
    if method == "cells":
        return search_cells(x, length, progress, stages=stages, cluster=cluster)
    return _search_exact(x, length, progress)


def search_rows(x: NdArray, rows: NdArray, k: int) -> list[NdArray]:
    """The exact k neighbours of some rows, however many are tied, from all cosines of a row."""

    def one(part: slice) -> list[NdArray]:
        mine = rows[part]
        sims = np.concatenate([unit_rows(x, mine) @ unit_rows(x, c).T for c in chunks(len(x), _TILE)], axis=1)
        sims = np.maximum(sims, 0)
        sims[np.arange(len(mine)), mine] = -1
        return [np.flatnonzero(row) for row in neighbours(sims, k)]

    size = max(1, (8 << 20) // len(x))
    return [found for part in map_on_cores(one, chunks(len(rows), size)) for found in part]


def _tile(n: int) -> int:
    """Rows of a tile; small pools have at least a dozen tiles, so that all cores have work."""
    return int(np.clip(math.ceil(n / 16), 128, _TILE))


def _search_exact(x: NdArray, length: int, progress: Progress) -> Lists:
    """All pairs of tiles, each pair once: its product updates the lists of both."""
    from a2lp.pool import _kernels as kernels

    tiles = list(chunks(len(x), _tile(len(x))))
    lists = Lists.empty(len(x), length, unit_rows(x, slice(0, 1)).dtype)
    locks = [threading.Lock() for _ in tiles]
    counting = threading.Lock()
    done = 0

    def compare(first: int) -> None:
        nonlocal done
        rows = tiles[first]
        mine = unit_rows(x, rows)
        for second in range(first, len(tiles)):
            columns = tiles[second]
            block = mine @ (mine if second == first else unit_rows(x, columns)).T
            if second == first:
                np.fill_diagonal(block, -1)
            with locks[first]:
                kernels.merge_rows(block, columns.start, lists.similarities[rows], lists.indices[rows])
            if second > first:
                with locks[second]:
                    kernels.merge_columns(block, rows.start, lists.similarities[columns], lists.indices[columns])
        with counting:
            done += len(tiles) - first
            progress(done, len(tiles) * (len(tiles) + 1) // 2)

    map_on_cores(compare, range(len(tiles)))  # the longest first
    return lists
