"""What one answer leaves for the next: solutions to start from, so that one more label takes little work.

Every solution meets the same tolerance whether it had a start or not, so answers differ by no more than that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from a2lp.arrays import device, like, namespace, to_numpy
from a2lp.pool import logistic
from a2lp.pool.graph import PoolGraph
from a2lp.pool.neighbours import NdArray, nearest, rows_of
from a2lp.pool.part import Part
from a2lp.pool.propagate import propagate
from a2lp.pool.rows import by_rows, products
from a2lp.pool.stages import LARGE, release, temporary

_LARGEST = 0.02  # residual of a distribution at any point, so that one label counts among a million points


class Memory:
    """Solutions of earlier answers for the same points and classes.

    Parameters
    ----------
    keep : bool
        False for one that forgets all solutions.
    part : Part, optional
        The part of the pool on which labels are held out.
    """

    def __init__(self, *, keep: bool = True, part: Part | None = None) -> None:
        self.keep, self.part = keep, part
        self._codes: NdArray | None = None
        self._starts: dict[str, Any] = {}
        self._nearest: tuple[NdArray, ...] = (np.zeros(0, np.int64),) * 3

    @property
    def empty(self) -> bool:
        """Whether the next answer has nothing to start from."""
        return not self._starts

    def propagated(self, graph: PoolGraph, codes: NdArray, y: Any, alpha: float, tolerance: float) -> Any:
        """Z for one-hot labels y (n, c); classes whose labels are the same are not solved again."""
        z = self._starts.get("propagated")
        if z is None or self._codes is None or z.shape != y.shape:
            z = propagate(graph, y, alpha, tolerance=tolerance).Z
        else:
            changed = codes != self._codes
            classes = np.setdiff1d(np.concatenate([codes[changed], self._codes[changed]]), [-1])
            if len(classes):
                at = like(classes, y)
                found = propagate(graph, y[:, at], alpha, tolerance=tolerance, start=z[:, at]).Z
                z = namespace(z).asarray(z, copy=True)  # it may belong to an answer
                z[:, at] = found
        if self.keep:
            self._starts["propagated"], self._codes = z, codes
        return z

    def solved(self, name: str, graph: PoolGraph, y: Any, alpha: float, tolerance: float) -> Any:
        """Z for any y (n, c), from the last one of this name; y may be overwritten."""
        start = self._starts.get(name)
        fits = start is not None and start.shape == y.shape
        if fits:
            z = propagate(graph, y, alpha, tolerance=tolerance, start=start, largest=_LARGEST, overwrite=True).Z
            if isinstance(start, np.ndarray):
                release(start)
        else:
            z = propagate(graph, y, alpha, tolerance=tolerance, overwrite=True).Z
        if self.keep:
            self._starts[name] = _halves(z)
        return z

    def fitted(self, points: NdArray, targets: NdArray) -> NdArray:
        """Coefficients of logistic regression (d + 1, c), from the last ones."""
        start = self._starts.get("coefficients")
        fits = start is not None and start.shape == (points.shape[1] + 1, targets.shape[1])
        coefficients = logistic.fit(points, targets, start=start if fits else None)
        if self.keep:
            self._starts["coefficients"] = coefficients
        return coefficients

    def nearest(self, points: Any, rows: NdArray) -> NdArray:
        """The row of the labelled point that is nearest to each point (n,); only new ones are compared."""
        if not isinstance(points, np.ndarray):
            return _nearest_on_device(points, rows)
        before, closest, cosine = self._nearest
        if len(np.setdiff1d(before, rows)) or not len(before):
            before, closest, cosine = rows[:0], np.zeros(len(points), np.int64), np.full(len(points), -2.0)
        if len(fresh := np.setdiff1d(rows, before)):
            places, cosines = nearest(points, rows_of(points, fresh), 1)
            found, value = fresh[places[:, 0]], cosines[:, 0].astype(np.float64)
            better = (value > cosine) | ((value == cosine) & (found < closest))
            closest, cosine = np.where(better, found, closest), np.where(better, value, cosine)
        if self.keep:
            self._nearest = rows, closest, cosine
        return closest.copy()


def _halves(z: Any) -> Any:
    """A copy in half precision: three digits, more than the tolerance of what starts from it."""
    xp = namespace(z)
    if isinstance(z, np.ndarray) and z.size * 4 > LARGE:
        out = by_rows(lambda part: z[part], temporary(z.shape, np.float16))
        release(out)
        return out
    return by_rows(lambda part: z[part], xp.empty(z.shape, dtype=xp.float16, device=device(z)))


def _nearest_on_device(points: Any, rows: NdArray) -> NdArray:
    xp, at = namespace(points), like(rows, points)
    theirs = points[at]
    found = products(
        points,
        lambda _, x: xp.argmax(x @ theirs.T, axis=1),
        xp.empty(len(points), dtype=xp.int64, device=device(points)),
    )
    return rows[to_numpy(found)]


NO_MEMORY = Memory(keep=False)
