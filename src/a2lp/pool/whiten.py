"""Whitening by the covariance of differences between neighbours: what varies within a class counts for less.

No labels are used: near points mostly share a class, so half the covariance of their differences stands for the
covariance within classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from a2lp.arrays import chunks
from a2lp.checks import require_number, require_whole
from a2lp.cores import map_on_cores
from a2lp.errors import ShapeError
from a2lp.pool.neighbours import NdArray, check_points, search, unit_rows
from a2lp.preprocess import l2

_SAMPLE = 50_000  # points that the covariance is estimated from, evenly spaced: plenty for some thousand dimensions
_ROWS = 4096  # points whose differences are held at a time


class Whitening(NamedTuple):
    """A linear map of unit vectors.

    Attributes
    ----------
    mean : array (d,)
        What is subtracted.
    matrix : array (d, d)
        What the rest is multiplied with.
    """

    mean: NdArray
    matrix: NdArray

    def apply(self, x: Any) -> NdArray:
        """The whitened points (n, d), of unit length, in float32 (float64 where such come in)."""
        x = check_points(x)
        if x.shape[1] != len(self.mean):
            raise ShapeError(
                f"x has {x.shape[1]} dimensions, and the whitening was estimated on {len(self.mean)}. Take points of "
                "the same kind."
            )
        dtype = unit_rows(x, slice(0, 1)).dtype
        mean, matrix = self.mean.astype(dtype), self.matrix.astype(dtype)
        out = np.empty(x.shape, dtype)

        def fill(part: slice) -> None:
            out[part] = l2((unit_rows(x, part) - mean) @ matrix)

        map_on_cores(fill, chunks(len(x), _ROWS))
        return out


def neighbour_whitening(x: Any, n_neighbors: int = 5, ridge: float = 0.3) -> Whitening:
    """Estimate a whitening from the points themselves.

    Parameters
    ----------
    x : array (n, d)
        Points; their directions count. At most 50,000 of them are used.
    n_neighbors : int
        Neighbours of each point whose differences are taken.
    ridge : float
        How much of the mean eigenvalue is added to all of them, so that directions of hardly any variance do not
        take over.
    """
    x = check_points(x)
    require_whole("n_neighbors", n_neighbors, 1, "5 does well.")
    require_number("ridge", ridge, "positive", lambda v: v > 0, "0.3 does well.")
    if len(x) > _SAMPLE:
        x = x[np.linspace(0, len(x) - 1, _SAMPLE).astype(np.int64)]
    points = unit_rows(x)
    n, d = points.shape
    mean = points.mean(axis=0, dtype=np.float64)
    if n < 2:
        return Whitening(mean, np.eye(d))
    lists = search(points, min(int(n_neighbors), n - 1))
    spread = sum(map_on_cores(lambda part: _products(points, lists.indices, part), chunks(n, _ROWS)))
    values, vectors = np.linalg.eigh(np.asarray(spread) / (2 * lists.indices.size))
    values = np.maximum(values, 0)
    if values.mean() == 0:  # all neighbours are equal: there is nothing to whiten
        return Whitening(mean, np.eye(d))
    return Whitening(mean, (vectors / np.sqrt(values + ridge * values.mean())) @ vectors.T)


def _products(points: NdArray, indices: NdArray, part: slice) -> NdArray:
    """Sum of the outer products of the differences between some points and their neighbours (d, d)."""
    total = np.zeros((points.shape[1],) * 2)
    for column in indices[part].T:
        known = column < len(points)
        difference = points[part][known] - points[column[known]]
        total += difference.T @ difference
    return total
