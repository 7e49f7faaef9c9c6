"""The array-API shim: the few operations that the standard does not have, for any array library.

A library is recognised by the arrays that come in; nothing is imported for the user.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.linalg
from array_api_compat import array_namespace, device, is_numpy_namespace, is_torch_namespace

from a2lp.errors import InputError

Array = Any
Namespace = Any

_COMPARED = 256  # rows at a time
_MOSTLY_DISTINCT = 0.8  # of the rows: looking the others up costs a tenth of multiplying them


def namespace(*arrays: Array) -> Namespace:
    """The array-API namespace of some arrays; lists and scalars count as NumPy."""
    known = [a for a in arrays if a is not None]
    try:
        return array_namespace(*known)
    except TypeError as error:
        kinds = sorted({f"{type(a).__module__}.{type(a).__name__}" for a in known})
        raise InputError(
            f"arrays of {', '.join(kinds)} cannot be used together; all arrays of a batch must come from one "
            "array library (NumPy, torch, or another that follows the array API). Convert them first."
        ) from error


def is_numpy(xp: Namespace) -> bool:
    """Whether a namespace is NumPy's."""
    return bool(is_numpy_namespace(xp))


def is_torch(xp: Namespace) -> bool:
    """Whether a namespace is torch's."""
    return bool(is_torch_namespace(xp))


def on_host(x: Array) -> bool:
    """Whether an array lives in the processor's own memory."""
    return "cpu" in str(device(x)).lower()


def to_numpy(x: Array) -> np.ndarray[Any, Any]:
    """A NumPy copy or view of any array, moved to the host where it must be."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "detach"):  # a torch tensor, possibly on a device or with a gradient
        return np.asarray(x.detach().cpu())
    return np.asarray(x)


def like(x: Any, reference: Array, dtype: Any = None) -> Array:
    """NumPy values as an array of the library and device of ``reference``."""
    xp = namespace(reference)
    if is_numpy(xp):
        return np.asarray(x, dtype=dtype)
    return xp.asarray(np.asarray(x), dtype=dtype, device=device(reference))


def largest_safe(dtype: Any) -> float:
    """The largest entry whose square, summed over many dimensions, stays in the range of a floating type."""
    return 1e150 if "float64" in str(dtype) else 1e15


def kth_largest(x: Array, k: int) -> Array:
    """The ``k``-th largest value along the last axis (k = 1: the largest), with that axis kept."""
    xp = namespace(x)
    n = x.shape[-1]
    if is_numpy(xp):
        return np.partition(x, n - k, axis=-1)[..., n - k : n - k + 1]
    if is_torch(xp):
        return x.topk(k, dim=-1).values[..., -1:]
    return xp.sort(x, axis=-1)[..., n - k : n - k + 1]


def softmax(x: Array) -> Array:
    """Softmax along the last axis, shifted so that nothing overflows."""
    xp = namespace(x)
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def one_hot(codes: Array, n_classes: int, dtype: Any) -> Array:
    """Rows of zeros with a one at ``codes``; shape ``(*codes.shape, n_classes)``."""
    xp = namespace(codes)
    classes = xp.arange(n_classes, dtype=codes.dtype, device=device(codes))
    return xp.astype(codes[..., None] == classes, dtype)


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
    """Distinct rows of a NumPy array, and for each row which of them it is; where most are distinct, all, and None.

    Tasks are often drawn from one pool: what is done to a row then need not be done for every task that has it.
    """
    keys = np.stack([np.sum(rows, axis=1), rows[:, 0]], axis=1).astype(np.float32).view(np.uint64)[:, 0]
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) > _MOSTLY_DISTINCT * len(rows):
        return rows, None
    found = rows[first]
    # a few at a time: what is looked up stays in the cache
    if not all(np.array_equal(found[place[part]], rows[part]) for part in chunks(len(rows), _COMPARED)):
        return rows, None
    return found, place


def collect(total: int, parts: Iterable[Any]) -> Any:
    """NamedTuples of consecutive blocks of tasks as one of all, field by field; None and text are taken from the first.

    Each block is put in its place and let go, so that memory never holds the whole twice.
    """
    whole, start = None, 0
    for part in parts:
        stop = start + part[0].shape[0]
        if whole is None:
            if stop == total:
                return part
            whole = type(part)(*(x if x is None or isinstance(x, str) else _room(total, x) for x in part))
        for place, x in zip(whole, part, strict=True):
            if not (x is None or isinstance(x, str)):
                place[start:stop, ...] = x
        start = stop
    return whole


def _room(total: int, x: Array) -> Array:
    return namespace(x).empty((total, *x.shape[1:]), dtype=x.dtype, device=device(x))
