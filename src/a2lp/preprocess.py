"""What is done to vectors before a method sees them; always over all points of a task together.

No point's label is used, and nothing here knows which points are queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from a2lp.arrays import Array, like, namespace, to_numpy
from a2lp.errors import InputError, ShapeError, UnknownNameError

NAMES = ("l2", "plc", "cl2n", "none")

_PLC_OFFSET = 1e-6  # inside the power, as in the authors' code: a zero entry becomes +1e-3


def preprocess(name: str, points: Array, base_mean: Any = None) -> Array:
    """Apply a preprocessing by name to the points of each task.

    Parameters
    ----------
    name : {"l2", "plc", "cl2n", "none"}
    points : array (b, n, d)
    base_mean : array (d,), optional
        Mean of the base classes' features; ``cl2n`` needs it, the others ignore it.
    """
    if name == "l2":
        return l2(points)
    if name == "plc":
        return plc(points)
    if name == "cl2n":
        return cl2n(points, base_mean)
    if name == "none":
        return points
    raise UnknownNameError("preprocess", name, NAMES)


def l2(points: Array) -> Array:
    """Each vector divided by its Euclidean norm; a zero vector stays zero."""
    xp = namespace(points)
    largest = xp.max(xp.abs(points), axis=-1, keepdims=True)
    one = xp.ones_like(largest)
    # the squares of float32 vectors of this size stay in range; others are brought to size first
    in_range = ((largest > 1e-15) & (largest < 1e15)) | (largest == 0)
    points = points / xp.where(in_range, one, largest)
    norm = xp.sqrt(xp.sum(points * points, axis=-1, keepdims=True))
    return points / xp.where(norm > 0, norm, one)


def plc(points: Array, centre: Array | None = None) -> Array:
    """Power, L2, centring over the task, L2 again.

    The paper's text leaves out the last step; the authors' code has it, and so have we. The power keeps the sign,
    since features after a leaky ReLU have small negative entries.

    Parameters
    ----------
    points : array (..., n, d)
    centre : array (d,), optional
        What to subtract in the place of the points' own mean, for points that join others later.
    """
    rooted = power_l2(points)
    xp = namespace(points)
    centred = rooted - (xp.mean(rooted, axis=-2, keepdims=True) if centre is None else centre)
    # what centring leaves of points that are all equal is rounding, not a direction
    noise = xp.max(xp.abs(centred), axis=-1, keepdims=True) <= 32 * xp.finfo(points.dtype).eps
    return l2(xp.where(noise, xp.zeros_like(centred), centred))


def power_l2(points: Array) -> Array:
    """The first half of ``plc``: signed square roots, then L2."""
    xp = namespace(points)
    rooted = xp.sqrt(xp.abs(points) + _PLC_OFFSET)
    return l2(xp.where(points < 0, -rooted, rooted))


def cl2n(points: Array, base_mean: Any) -> Array:
    """The base classes' mean subtracted, then L2 (SimpleShot)."""
    if base_mean is None:
        raise InputError(
            "preprocess='cl2n' subtracts the mean of the base classes' features, and base_mean is None. Pass "
            "base_mean=... of shape (d,) (on the command line: --base FILE), or choose 'plc', which centres each task "
            "on itself."
        )
    try:
        values = to_numpy(base_mean).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"base_mean is not an array of numbers; it must be one of shape ({points.shape[-1]},). Take the mean over "
            "features of the base classes."
        ) from error
    if not np.isfinite(values).all():
        raise InputError("base_mean holds nan or inf; it must be finite. Look at the features it was taken over.")
    mean = like(values, points, dtype=points.dtype)
    if mean.shape != (points.shape[-1],):
        raise ShapeError(
            f"base_mean has shape {tuple(mean.shape)}; the points have {points.shape[-1]} dimensions, so it must be "
            f"({points.shape[-1]},). Take the mean over features of the same backbone."
        )
    return l2(points - mean)
