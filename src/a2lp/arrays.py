"""Operations that the array API standard does not have, for any array library.

The library is that of the arrays passed in; none is imported for the user.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special
from array_api_compat import array_namespace, is_numpy_namespace, is_torch_namespace
from array_api_compat import device as device

from a2lp.errors import InputError

Array = Any
Namespace = Any
NDArray = np.ndarray[Any, Any]
is_numpy, is_torch = is_numpy_namespace, is_torch_namespace

DIGAMMA_SHIFT = 8  # recurrences, after which the error of the asymptotic series is 1e-11
_COMPARED_ROWS = 256  # at a time, so that they stay in the cache
_MOSTLY_DISTINCT = 0.8  # share of the rows above which there is too little to save


def namespace(*arrays: Array) -> Namespace:
    """The array-API namespace of some arrays; None is ignored."""
    known = [a for a in arrays if a is not None]
    try:
        return array_namespace(*known)
    except TypeError as error:
        kinds = sorted({f"{type(a).__module__}.{type(a).__name__}" for a in known})
        raise InputError(
            f"arrays of {', '.join(kinds)} cannot be used together; all arrays of a batch must come from one "
            "array library (NumPy, torch, or another that follows the array API). Convert them first."
        ) from error


def on_host(x: Array) -> bool:
    """Whether an array is in the CPU's memory."""
    return "cpu" in str(device(x)).lower()


def to_numpy(x: Array) -> NDArray:
    """A NumPy copy or view of any array, moved to the CPU where needed."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "detach"):  # a torch tensor, possibly on a device or with a gradient
        return np.asarray(x.detach().cpu())
    return np.asarray(x)


def like(x: Any, reference: Array, dtype: Any = None) -> Array:
    """NumPy values as an array of the library and on the device of ``reference``."""
    xp = namespace(reference)
    if is_numpy(xp):
        return np.asarray(x, dtype=dtype)
    return xp.asarray(np.asarray(x), dtype=dtype, device=device(reference))


def largest_safe(dtype: Any) -> float:
    """The largest entry whose square, summed over many dimensions, does not overflow in a floating type."""
    return 1e150 if "float64" in str(dtype) else 1e15


def kth_largest(x: Array, k: int) -> Array:
    """The ``k``-th largest value along the last axis (k = 1: the largest), keeping that axis."""
    xp = namespace(x)
    n = x.shape[-1]
    if is_numpy(xp):
        return np.partition(x, n - k, axis=-1)[..., n - k : n - k + 1]
    if is_torch(xp):
        return x.topk(k, dim=-1).values[..., -1:]
    return xp.sort(x, axis=-1)[..., n - k : n - k + 1]


def softmax(x: Array, axis: int = -1) -> Array:
    """Softmax along an axis, shifted so that nothing overflows."""
    xp = namespace(x)
    if is_torch(xp):  # one launch on a GPU, not five
        return x.softmax(axis)
    e = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return e / xp.sum(e, axis=axis, keepdims=True)


def log_softmax(x: Array, axis: int = -1) -> Array:
    """Logarithms of the softmax along an axis; finite where the softmax is rounded to zero."""
    xp = namespace(x)
    if is_torch(xp):
        return x.log_softmax(axis)
    x = x - xp.max(x, axis=axis, keepdims=True)
    return x - xp.log(xp.sum(xp.exp(x), axis=axis, keepdims=True))


def digamma(x: Array) -> Array:
    """The derivative of log gamma, for x > 0."""
    xp = namespace(x)
    below = xp.sum(1.0 / (x[..., None] + xp.arange(DIGAMMA_SHIFT, dtype=x.dtype, device=device(x))), axis=-1)
    x = x + DIGAMMA_SHIFT
    inverse = 1.0 / (x * x)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    return xp.log(x) - 0.5 / x - series - below


def log_gamma(x: Array) -> Array:
    """The logarithm of the gamma function, for x > 0."""
    xp = namespace(x)
    if is_numpy(xp):
        return scipy.special.gammaln(x)
    below = xp.sum(xp.log(x[..., None] + xp.arange(DIGAMMA_SHIFT, dtype=x.dtype, device=device(x))), axis=-1)
    x = x + DIGAMMA_SHIFT
    inverse = 1.0 / (x * x)
    series = (1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse * (1 / 1680 - inverse / 1188)))) / x
    return (x - 0.5) * xp.log(x) - x + 0.5 * math.log(2 * math.pi) + series - below


def one_hot(codes: Array, n_classes: int, dtype: Any, axis: int = -1) -> Array:
    """Zeros with a one at ``codes`` along a new last axis, or the middle one, ``axis=1``, of three."""
    xp = namespace(codes)
    classes = xp.arange(n_classes, dtype=codes.dtype, device=device(codes))
    return xp.astype(xp.expand_dims(codes, axis=axis) == (classes if axis == -1 else classes[:, None]), dtype)


def cholesky_solve(factor: Array, right: Array) -> Array:
    """Solve ``M X = right`` for a batch, given the lower Cholesky factor of ``M``."""
    xp = namespace(factor, right)
    if is_numpy(xp):
        return scipy.linalg.cho_solve((factor, True), right, check_finite=False)
    if is_torch(xp):
        return right.cholesky_solve(factor)
    half = xp.linalg.solve(factor, right)
    return xp.linalg.solve(xp.matrix_transpose(factor), half)


def chunks(total: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most ``size`` that cover ``range(total)``."""
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))


def distinct_rows(rows: Array) -> tuple[Array, Array | None]:
    """Distinct rows of a NumPy array and each row's index among them; all rows and None if most are distinct.

    Tasks are often drawn from one pool, so that the same vectors occur in many tasks and can be transformed once.
    """
    keys = np.stack([np.sum(rows, axis=1), rows[:, 0]], axis=1).astype(np.float32).view(np.uint64)[:, 0]
    _, first, index = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) > _MOSTLY_DISTINCT * len(rows):
        return rows, None
    distinct = rows[first]
    if not all(np.array_equal(distinct[index[part]], rows[part]) for part in chunks(len(rows), _COMPARED_ROWS)):
        return rows, None
    return distinct, index


def collect(total: int, parts: Iterable[Any]) -> Any:
    """Join NamedTuples of consecutive blocks of tasks, field by field; None and text are taken from the first.

    Each block is copied and freed before the next one is computed, so that memory never holds everything twice.
    """

    def allocate(x: Any) -> Any:
        if x is None or isinstance(x, str):
            return x
        return namespace(x).empty((total, *x.shape[1:]), dtype=x.dtype, device=device(x))

    whole, start = None, 0
    for part in parts:
        stop = start + part[0].shape[0]
        if whole is None:
            if stop == total:
                return part
            whole = type(part)(*map(allocate, part))
        for field, x in zip(whole, part, strict=True):
            if not (x is None or isinstance(x, str)):
                field[start:stop, ...] = x
        start = stop
    return whole
