"""Preprocessing of vectors, over all points of a task together, without labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from a2lp.arrays import Array, device, distinct_rows, is_numpy, largest_safe, like, namespace, on_host
from a2lp.errors import InputError, ShapeError, UnknownNameError

NAMES = ("l2", "plc", "cl2n", "whiten", "bpa", "none")
USES_BASE = ("cl2n", "whiten")  # these need statistics of the base classes

POWERS = ("clamp", "sign", "none")

_BPA_WIDTH, _BPA_ROUNDS = 0.1, 10  # as in the authors' code
_ROOT_OFFSET = 1e-6  # inside the root, as in the authors' code: a zero entry becomes 1e-3


def preprocess(name: str, points: Array, base: Any = None, *, overwrite: bool = False) -> Array:
    """Apply a preprocessing by name to the points of each task.

    Parameters
    ----------
    name : {"l2", "plc", "cl2n", "whiten", "bpa", "none"}
    points : array (b, n, d)
    base : BaseStatistics, optional
        Statistics of the base classes; ``cl2n`` and ``whiten`` need them, the others ignore them.
    overwrite : bool
        Whether a NumPy array of points may be changed in place, which saves a copy.

    Returns
    -------
    array (b, n, d)
        For ``bpa`` (b, n, n).

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.preprocess import preprocess
    >>> preprocess("l2", np.array([[[3.0, 4.0]]])).tolist()
    [[[0.6, 0.8]]]
    """
    if name == "l2":
        return l2(points, overwrite=overwrite)
    if name == "plc":
        return plc(points)
    if name in USES_BASE:
        mean = like(require_base(name, base, points.shape[-1]).mean, points, dtype=points.dtype)
        if name == "whiten":
            return whiten(points, mean, like(base.whitening, points, points.dtype))
        centred = np.subtract(points, mean, out=points) if overwrite and is_numpy(namespace(points)) else points - mean
        return l2(centred, overwrite=True)
    if name == "bpa":
        return bpa(points)
    if name == "none":
        return points
    raise UnknownNameError("preprocess", name, NAMES)


def preprocess_names(name: str, prototypes: Array, points: Array, base: Any = None) -> Array:
    """Vectors of class names (b, c, d) through the map of the points (b, n, d), which they do not change."""
    if name == "bpa":
        raise InputError(
            "preprocess='bpa' describes each point by its affinities to the others, and names are no points. Choose "
            "'l2' or another preprocessing that maps names, too."
        )
    if name == "plc":
        return plc(prototypes, namespace(points).mean(power_l2(points), axis=-2, keepdims=True))
    return preprocess(name, prototypes, base)


def l2(points: Array, *, overwrite: bool = False) -> Array:
    """Each vector divided by its Euclidean norm; a zero vector stays zero. ``overwrite`` as in ``preprocess``.

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.preprocess import l2
    >>> l2(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    xp = namespace(points)
    with np.errstate(over="ignore"):
        squares = xp.vecdot(points, points)
    # where squares may leave the range of float32, vectors are first divided by their largest entry; a device is not
    # asked whether, since the answer would have to be waited for
    if not on_host(points) or not bool(xp.all((squares > 1e-30 * points.shape[-1]) & (squares < 1e30))):
        largest = xp.maximum(xp.max(points, axis=-1, keepdims=True), -xp.min(points, axis=-1, keepdims=True))
        safe = ((largest > 1e-15) & (largest < 1e15)) | (largest == 0)
        points = points / xp.where(safe, xp.ones_like(largest), largest)
        squares = xp.vecdot(points, points)
    norm = xp.sqrt(squares[..., None])
    norm = xp.where(norm > 0, norm, xp.ones_like(norm))
    return np.divide(points, norm, out=points) if overwrite and is_numpy(xp) else points / norm


def in_range(points: Array) -> Array:
    """Points (b, n, d) scaled so that no entry is larger than ``largest_safe`` and no square overflows.

    A task with mostly larger points is scaled as a whole, which changes neither angles nor ratios of distances. Single
    points that are still larger are shortened in their direction: they stay far from all others.
    """
    xp, limit = namespace(points), largest_safe(points.dtype)
    largest = xp.max(xp.abs(points), axis=-1)  # (b, n)
    ones = xp.ones_like(largest)
    middle = xp.sort(largest, axis=1)[:, largest.shape[1] // 2 :][:, :1]  # (b, 1)
    factor = xp.where(middle > limit, limit / xp.clip(middle, min=1.0), ones)
    factor = factor * xp.where(largest * factor > limit, limit / xp.clip(largest * factor, min=1.0), ones)
    return points * factor[:, :, None]


def plc(points: Array, centre: Array | None = None) -> Array:
    """Power, L2, centring over the task, L2 again.

    The last step is in the authors' code, not in the paper. The power keeps the sign of small negative entries, which
    features after a leaky ReLU have.

    Parameters
    ----------
    points : array (..., n, d)
    centre : array (d,) or (..., 1, d), optional
        What to subtract instead of the points' own mean, for points that are added later.

    Returns
    -------
    array (..., n, d)

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.preprocess import plc
    >>> plc(np.array([[1.0, 0.0], [0.0, 1.0]])).round(2).tolist()
    [[0.71, -0.71], [-0.71, 0.71]]
    """
    unit = power_l2(points)
    xp = namespace(points)
    centred = unit - (xp.mean(unit, axis=-2, keepdims=True) if centre is None else centre)
    # equal points have no direction after centring, only rounding
    noise = xp.max(xp.abs(centred), axis=-1, keepdims=True) <= 32 * xp.finfo(points.dtype).eps
    return l2(xp.where(noise, xp.zeros_like(centred), centred))


def bpa(points: Array) -> Array:
    """Balanced pairwise affinities: each point as its affinities to all points of its task (b, n, n), of unit length.

    Shalam and Korman, "The balanced-pairwise-affinities feature transform", ICML 2024. The affinities are a transport
    plan of the points onto themselves: exp((cosine - 1) / 0.1) without the diagonal, scaled in 10 rounds so that rows
    and columns sum to one, then divided by the largest; a point's own entry is 1. As in the authors' pipeline with
    PT-MAP, cosines are those after ``plc``. Rows of the plan lean to classes of equal size.

    Two things differ from the authors' code: there, several tasks at a time stop as soon as scales change little on
    average, so that one task's answer depends on the others, and labelled pairs may be set to 0 and 1. Here all rounds
    are made, and no labels are used, as in their code for a single task.

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.preprocess import bpa
    >>> bpa(np.eye(3)[None]).shape
    (1, 3, 3)
    """
    xp, n = namespace(points), points.shape[-2]
    unit = plc(points)
    own = xp.eye(n, dtype=points.dtype, device=device(points))
    kernel = xp.exp((unit @ xp.matrix_transpose(unit) - 1.0) / _BPA_WIDTH) * (1.0 - own)
    columns = xp.ones_like(kernel[..., :1])  # (b, n, 1)
    rows = columns
    for _ in range(_BPA_ROUNDS if n > 1 else 0):
        rows = 1.0 / (kernel @ columns)
        columns = 1.0 / (xp.matrix_transpose(kernel) @ rows)
    plan = rows * kernel * xp.matrix_transpose(columns)
    largest = xp.max(plan, axis=(-2, -1), keepdims=True)
    return l2(plan / xp.where(largest > 0, largest, xp.ones_like(largest)) + own)


def power_l2(points: Array) -> Array:
    """The first half of ``plc``: signed square roots, then L2."""
    return l2(rooted(points, "sign"))


def rooted(points: Array, power: str) -> Array:
    """Square roots of the entries, whose distribution is closer to a Gaussian.

    With ``power="clamp"`` negative entries become zero, with ``"sign"`` they keep their sign; ``"none"`` is L2 instead.
    """
    xp = namespace(points)
    if power == "clamp":
        return xp.sqrt(xp.clip(points, min=0.0) + _ROOT_OFFSET)
    if power == "none":
        return l2(points)
    roots = xp.sqrt(xp.abs(points) + _ROOT_OFFSET)
    return xp.where(points < 0, -roots, roots)


def unit_gram(gram: Array, roundings: int = 0) -> Array:
    """Inner products (b, n, n) of normalised points; a point of squared length up to ``roundings`` eps becomes zero."""
    xp = namespace(gram)
    squares = xp.linalg.diagonal(gram)  # (b, n)
    some = squares > roundings * float(xp.finfo(gram.dtype).eps)
    scale = xp.where(some, 1.0 / xp.sqrt(xp.where(some, squares, xp.ones_like(squares))), xp.zeros_like(squares))
    return scale[:, :, None] * gram * scale[:, None, :]


def whiten(points: Array, mean: Array, matrix: Array) -> Array:
    """Centring on the base classes' mean, whitening by their scatter within classes, then L2.

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.preprocess import whiten
    >>> whiten(np.array([[[4.0, 5.0]]]), np.array([1.0, 1.0]), np.eye(2)).tolist()
    [[[0.6, 0.8]]]
    """
    if not is_numpy(namespace(points)):
        return l2((points - mean) @ matrix)
    # one product on all cores, with each distinct vector once
    rows, index = distinct_rows(points.reshape(-1, points.shape[-1]))
    white = l2((rows - mean) @ matrix, overwrite=True)
    return (white if index is None else white[index]).reshape(points.shape)


def require_base(name: str, base: Any, n_dims: int) -> Any:
    """Check that ``base`` has the statistics of base classes of ``n_dims`` dimensions, which ``name`` needs."""
    how = "Pass base=a2lp.BaseStatistics.of(features, labels) of the base classes (on the command line: --base FILE)"
    if base is None:
        raise InputError(
            f"{name!r} needs statistics of the base classes, and base is None. {how}, or choose a preprocessing that "
            "does without, such as 'plc', which centres each task on itself."
        )
    if not (hasattr(base, "whitening") and hasattr(base, "mean")):
        raise InputError(f"base is of type {type(base).__name__}; it must be BaseStatistics. {how}.")
    if base.mean.shape != (n_dims,):
        raise ShapeError(
            f"base has {base.mean.shape[0]} dimensions and the points have {n_dims}; they must be the same. Take "
            "statistics of features of the same backbone."
        )
    return base
