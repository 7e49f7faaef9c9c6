"""Whitening by the covariance of differences between neighbours: directions that vary within classes count for less.

No labels are used. Near points mostly share a class, so half the covariance of their differences estimates the
covariance within classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from a2lp.arrays import chunks
from a2lp.checks import require_number, require_whole
from a2lp.cores import map_on_cores, one_blas_thread
from a2lp.errors import ShapeError
from a2lp.pool.neighbours import NdArray, check_points, pick_method, search, unit_rows
from a2lp.pool.stages import Stages, release
from a2lp.preprocess import l2

SAMPLE = 50_000  # points that the covariance is estimated from, evenly spaced: plenty for some thousand dimensions
ROWS = 4096  # points whose differences are held at a time


class Whitening(NamedTuple):
    """A linear map of unit vectors.

    Attributes
    ----------
    mean : array (d,)
        It is subtracted first.
    matrix : array (d, r)
        Then points are multiplied by this. r is d, or, for fewer points than dimensions, the number of points: they
        span no more.
    """

    mean: NdArray
    matrix: NdArray

    def __repr__(self) -> str:
        return f"Whitening({self.matrix.shape[0]} to {self.matrix.shape[1]} dimensions)"

    def apply(self, x: Any, stages: Stages | None = None) -> NdArray:
        """The whitened points (n, r), of unit length, in float32 (float64 for float64 points).

        Of points that take more than 1 GiB in float32, they are in float16, in a file that is mapped: a temporary one,
        or that of ``stages``.
        """
        x = check_points(x)
        if x.shape[1] != len(self.mean):
            raise ShapeError(
                f"x has {x.shape[1]} dimensions, and the whitening was estimated on {len(self.mean)}. Use points of "
                "the same kind."
            )
        dtype = unit_rows(x, slice(0, 1)).dtype
        mean, matrix = self.mean.astype(dtype), self.matrix.astype(dtype)
        shape = len(x), matrix.shape[1]

        def fill(out: NdArray) -> None:
            def one(part: slice) -> None:
                out[part] = l2((unit_rows(x, part) - mean) @ matrix)
                release(x[part], out[part])

            map_on_cores(one, chunks(len(x), ROWS))

        stages = stages or Stages(None, x)
        if stages.large:
            return stages.mapped("whitened", shape, np.float16, fill)
        out = np.empty(shape, dtype)
        fill(out)
        return out


def neighbour_whitening(x: Any, n_neighbors: int = 5, ridge: float = 0.3, *, spanned: bool = True) -> Whitening:
    """Estimate a whitening from the points themselves.

    Parameters
    ----------
    x : array (n, d)
        Points; only their directions count. At most 50,000 of them are used.
    n_neighbors : int
        Neighbours of each point whose differences are used.
    ridge : float
        The share of the mean eigenvalue that is added to all of them, so that directions with hardly any variance do
        not dominate.
    spanned : bool
        Whether fewer points than dimensions get coordinates of the space that they span. Vectors of names lie outside
        of it.
    """
    x = check_points(x)
    require_whole("n_neighbors", n_neighbors, 1, "5 does well.")
    require_number("ridge", ridge, "positive", lambda v: v > 0, "0.3 does well.")
    points = unit_rows(x[sampled(len(x))])
    n, d = points.shape
    mean = points.mean(axis=0, dtype=np.float64)
    # in coordinates of the space that the points span, where that is smaller
    reduced = n < d and spanned
    basis = np.linalg.qr(points.T.astype(np.float64))[0] if reduced else np.eye(d)  # (d, r)
    if n < 2:
        return Whitening(mean, basis)
    lists = search(points, min(int(n_neighbors), n - 1), pick_method("auto", n))
    if reduced:
        points = points @ basis.astype(points.dtype)
    spread = sum(map_on_cores(lambda part: _products(points, lists.indices, part), chunks(n, ROWS)))
    matrix = whitening_matrix(np.asarray(spread) / (2 * lists.indices.size), d, ridge)
    if matrix is None:
        return Whitening(mean, basis)
    return Whitening(mean, basis @ matrix if reduced else matrix)


def sampled(n: int) -> Any:
    """Which of n points the covariance is estimated from."""
    return np.linspace(0, n - 1, SAMPLE).astype(np.int64) if n > SAMPLE else slice(None)


def whitening_matrix(covariance: NdArray, d: int, ridge: float) -> NdArray | None:
    """The inverse root of a covariance (r, r) in d dimensions with its ridge; None where there is nothing to whiten."""
    with one_blas_thread():  # several threads mostly wait for each other: up to forty times as long
        values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, 0)
        mean_value = values.sum() / d
        if mean_value == 0:  # all neighbours are equal
            return None
        return np.asarray((vectors / np.sqrt(values + ridge * mean_value)) @ vectors.T)


def _products(points: NdArray, indices: NdArray, part: slice) -> NdArray:
    """Sum of the outer products of the differences between some points and their neighbours (r, r)."""
    total = np.zeros((points.shape[1],) * 2)
    for column in indices[part].T:
        known = column < len(points)
        difference = points[part][known] - points[column[known]]
        total += difference.T @ difference
    return total
