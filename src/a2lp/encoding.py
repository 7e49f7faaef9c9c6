"""Labels in ``y`` and which points are unlabelled, in all common notations."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d

from a2lp.errors import A2LPWarning, InputError

NdArray = np.ndarray[Any, Any]


def encode_labels(y: Any, X: Any) -> tuple[NdArray, NdArray]:
    """The sorted classes (c,), and each row's position in them (n,) with -1 where it has no label.

    Labels are integers, whole floats, booleans or strings. -1, None, NaN (pandas' NA too) and "" mean unlabelled, so
    -1 can never be a class. Of ``X``, only the length is used.
    """
    values, missing = read_labels(y, X)
    if missing.all():
        raise InputError(
            f"y labels none of the {len(missing)} points (-1, None, NaN and '' mean unlabelled), so no class "
            "is known. Label at least one point of each class."
        )
    classes, positions = np.unique(values[~missing], return_inverse=True)
    codes = np.full(len(missing), -1, dtype=np.int64)
    codes[~missing] = positions
    return classes, codes


def read_labels(y: Any, X: Any) -> tuple[NdArray, NdArray]:
    """The labels as an array that sorts (n,), and which of them are missing (n,)."""
    if isinstance(y, list | tuple):
        y = np.array(y, dtype=object)  # NumPy would read ["cat", nan] as two strings
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    if y.dtype.kind not in "biufU":
        return _read_objects(y)
    missing = np.zeros(len(y), dtype=bool)
    if y.dtype.kind in "if":
        missing = (y == -1) | (np.isnan(y) if y.dtype.kind == "f" else False)
    elif y.dtype.kind == "U":
        missing = y == ""
        _warn_of_lost_marks(y)
    _check_discrete(y[~missing])
    return y, missing


def _read_objects(y: NdArray) -> tuple[NdArray, NdArray]:
    """As ``read_labels``, for an object array; the labels get the type that they have without the missing ones."""
    missing = np.array([_is_missing(value) for value in y], dtype=bool)
    present = y[~missing].tolist()
    kinds = sorted(
        {"str" if isinstance(v, str) else "number" if isinstance(v, Real) else type(v).__name__ for v in present}
    )
    if kinds not in ([], ["number"], ["str"]):
        raise InputError(
            f"Unknown label type: y holds labels of kind {' and '.join(kinds)}. Labels must be all strings "
            "or all whole numbers, with -1, None, NaN or '' where a point has none. Convert them first."
        )
    plain = np.array(present) if present else np.zeros(0)
    _check_discrete(plain)
    values = np.zeros(len(y), dtype=plain.dtype)
    values[~missing] = plain
    return values, missing


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, str):
        return value == ""
    return isinstance(value, Real) and (value == -1 or value != value)


def _check_discrete(labels: NdArray) -> None:
    if labels.dtype.kind != "f":
        return
    odd = labels[~np.isfinite(labels) | (labels != np.round(labels))]
    if odd.size:
        raise InputError(
            f"Unknown label type: continuous. y holds {odd[0]}, and a class must be a whole number or a "
            "string. For classes by ranges of a value, bin it first, e.g. with numpy.digitize."
        )


def _warn_of_lost_marks(y: NdArray) -> None:
    """Warn of 'nan' and '-1' among strings: NumPy writes them for a NaN or -1 in a list of strings."""
    for mark in ("nan", "-1"):
        if count := int((y == mark).sum()):
            warnings.warn(
                f"y is an array of strings and holds {mark!r} {count} times, which is taken as a class of "
                "that name. If it marks unlabelled points, use '' or None for them, or pass y as a list.",
                A2LPWarning,
                stacklevel=5,
            )
