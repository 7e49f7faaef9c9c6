"""Pickles of ``{class: vectors}``, as S2M2 and PT-MAP publish their features (``output.plk``), read safely.

A pickle is a program. Here it may name only the few functions that NumPy's arrays are pickled with, and
what it gets for each is a stand-in below, never NumPy's own: it builds arrays of numbers, nothing else.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.errors import InputError

NDArray = np.ndarray[Any, Any]

MAX_BYTES = 4 << 30
# Real files need about as many bytes on disk as in memory; one that grows more repeats itself to fill it.
MAX_GROWTH = 8


class _StandIn:
    """Base of the stand-ins; a pickle can set no attribute on what has ``__setstate__``."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        raise InputError("the pickle sets the state of something that is not an array. It is damaged or forged.")


class _DType(_StandIn):
    """Stands in for ``numpy.dtype``: plain numbers only, so neither objects nor structures."""

    __slots__ = ("code", "order")

    def __init__(self, code: str, *_align_copy: Any) -> None:
        if not (isinstance(code, str) and code[:1] in "biuf" and code[1:] in {"1", "2", "4", "8"}):
            raise InputError(
                f"the pickle holds an array of dtype {code!r}; expected plain numbers, such as 'f4'. "
                "Objects in arrays are refused, since reading them can run code."
            )
        self.code = code
        self.order: Any = "="

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]

    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.code).newbyteorder(self.order)


class PickledArray(_StandIn):
    """Stands in for ``numpy.ndarray``; holds the array once its state has come."""

    __slots__ = ("array",)

    def __init__(self) -> None:
        self.array: NDArray | None = None

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, fortran, data = state
        self.array = _build(data, dtype, shape, "F" if fortran else "C")


class _Reconstruct(_StandIn):
    """Stands in for ``numpy._core.multiarray._reconstruct``: an array whose state follows."""

    __slots__ = ()

    def __new__(cls, *_subtype_shape_code: Any) -> Any:
        return PickledArray()


class _FromBuffer(_StandIn):
    """Stands in for ``numpy._core.numeric._frombuffer``, which protocol 5 uses."""

    __slots__ = ()

    def __new__(cls, data: Any, dtype: Any, shape: Any, order: Any) -> Any:
        made = PickledArray()
        made.array = _build(data, dtype, shape, order)
        return made


class _Scalar(_StandIn):
    """Stands in for ``numpy._core.multiarray.scalar``: one number."""

    __slots__ = ()

    def __new__(cls, dtype: Any, data: Any) -> Any:
        return _build(data, dtype, (), "C")[()]


class _Encode(_StandIn):
    """Stands in for ``_codecs.encode``, by which protocols 0 to 2 spell bytes."""

    __slots__ = ()

    def __new__(cls, text: str, encoding: str = "latin1") -> Any:
        if encoding not in {"latin1", "latin-1"}:
            raise InputError(f"the pickle encodes text as {encoding!r}; arrays are only ever written as 'latin1'.")
        return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): PickledArray,
    ("_codecs", "encode"): _Encode,
    ("builtins", "list"): list,  # the factory of PT-MAP's defaultdict
    ("__builtin__", "list"): list,
    ("collections", "defaultdict"): defaultdict,
    ("collections", "OrderedDict"): OrderedDict,
}
for _core in ("numpy._core", "numpy.core"):  # NumPy 2 and 1
    _ALLOWED[f"{_core}.multiarray", "_reconstruct"] = _Reconstruct
    _ALLOWED[f"{_core}.multiarray", "scalar"] = _Scalar
    _ALLOWED[f"{_core}.numeric", "_frombuffer"] = _FromBuffer


class RestrictedUnpickler(pickle._Unpickler):
    """Builds NumPy arrays and plain containers, and refuses whatever else a pickle asks for.

    It is Python's own unpickler, not the one in C: that one makes room for whatever memo number a file names, so a
    file of twenty bytes can take all memory.
    """

    def find_class(self, module: str, name: str, /) -> Any:
        """Stand-ins for what NumPy's pickles name; an error for anything else."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise InputError(
                f"the pickle asks for {module}.{name}, which is forbidden: only NumPy arrays are built "
                "from pickles, since anything else can run code. If you trust the file, open it in Python "
                "yourself and save its arrays as .npz."
            ) from None

    def persistent_load(self, pid: Any) -> Any:
        """Refuse: nothing outside the file is looked up."""
        raise InputError(
            f"the pickle refers to {pid!r} outside of it, as torch's files do; expected {{class: vectors}} "
            "alone. Open it with torch and save `features` and `labels` as .npz."
        )

    def _load_bytearray(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))  # type: ignore[attr-defined]
        data = self.read(length)  # type: ignore[attr-defined]
        if len(data) < length:  # Python's own version fills that much memory before it looks
            raise EOFError("a byte array is cut short")
        self.append(bytearray(data))  # type: ignore[attr-defined]

    dispatch = pickle._Unpickler.dispatch | {pickle.BYTEARRAY8[0]: _load_bytearray}  # type: ignore[assignment]


def _build(data: Any, dtype: Any, shape: Any, order: Any) -> NDArray:
    if not isinstance(dtype, _DType):
        raise InputError("the pickle holds an array without a dtype. It is damaged or forged.")
    raw = data.encode("latin1") if isinstance(data, str) else data  # Python 2 wrote bytes as str
    kind = dtype.dtype()
    if len(raw) != math.prod(shape) * kind.itemsize:
        raise InputError(f"the pickle holds {len(raw)} bytes for an array of shape {shape}. It is damaged or forged.")
    return np.frombuffer(raw, kind).reshape(shape, order=order)


def read_pickle(path: Path) -> dict[str, Any]:
    """Read features, labels and class names in the file's own order, which the authors' tasks rest on."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise InputError(
            f"the pickle has {size} bytes; at most {MAX_BYTES} are read. Save it as .npz where it was made."
        )
    content = RestrictedUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    if not isinstance(content, dict) or not content:
        found = "an empty dict" if isinstance(content, dict) else _describe(content)
        raise InputError(f"expected a pickled dict {{class: list of vectors}}, found {found}.")
    blocks: list[NDArray] = []
    left = MAX_GROWTH * size + (1 << 20)
    for key, vectors in content.items():
        block = _vectors(key, vectors, left)
        left -= block.nbytes
        if blocks and block.shape[1] != blocks[0].shape[1]:
            raise InputError(
                f"class {key!r} has vectors of {block.shape[1]} dimensions and the first class of "
                f"{blocks[0].shape[1]}; all must have the same."
            )
        blocks.append(block)
    return {
        "features": np.concatenate(blocks),
        "labels": np.repeat(np.arange(len(blocks)), [len(block) for block in blocks]),
        "classes": [key if isinstance(key, str | bytes) else str(key) for key in content],
    }


def _vectors(key: Any, vectors: Any, limit: int) -> NDArray:
    """The vectors of one class as (n, d)."""
    if isinstance(vectors, PickledArray):
        if vectors.array is None or vectors.array.ndim != 2 or 0 in vectors.array.shape:
            found = None if vectors.array is None else vectors.array.shape
            raise InputError(f"class {key!r} holds an array of shape {found}; expected (n, d): n vectors of d numbers.")
        _check_growth(vectors.array.nbytes, limit)
        return vectors.array
    if not isinstance(vectors, list | tuple) or not vectors:
        raise InputError(f"class {key!r} holds {_describe(vectors)}; expected a list of vectors.")
    rows: list[NDArray] = []
    for i, vector in enumerate(vectors):
        row = _vector(key, i, vector)
        if len(row) != len(rows[0] if rows else row):
            raise InputError(
                f"class {key!r} is ragged: vector {i} has {len(row)} dimensions and vector 0 has "
                f"{len(rows[0])}; all must have the same."
            )
        rows.append(row)
        _check_growth(row.nbytes * len(rows), limit)
    return np.stack(rows)


def _vector(key: Any, i: int, vector: Any) -> NDArray:
    if isinstance(vector, PickledArray) and vector.array is not None and vector.array.ndim == 1 and vector.array.size:
        return vector.array
    if isinstance(vector, list | tuple) and vector and all(isinstance(x, int | float | np.number) for x in vector):
        return np.array(vector)
    raise InputError(f"vector {i} of class {key!r} is {_describe(vector)}; expected a list or 1-D array of numbers.")


def _check_growth(needed: int, limit: int) -> None:
    if needed > limit:
        raise InputError(
            f"the pickle repeats itself: it grows to more than {MAX_GROWTH} times its size in memory. It is "
            "damaged or forged; if you trust it, open it in Python yourself and save `features` and `labels` "
            "as .npz."
        )


def _describe(value: Any) -> str:
    if isinstance(value, PickledArray) and value.array is not None:
        return f"an array of shape {value.array.shape}"
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
