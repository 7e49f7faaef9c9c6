"""A reader of pickles that runs none of their code.

A pickle is a program. Here it may name only the few functions that NumPy's arrays are pickled with, and each of them
is replaced by a stand-in, which builds arrays of numbers and plain containers, nothing else.
"""

from __future__ import annotations

import math
import mmap
import pickle
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from a2lp.arrays import NDArray
from a2lp.checks import shown
from a2lp.errors import A2LPError, InputError
from a2lp.files import reading

_DEPTH = 8  # levels of containers
_GROWTH = 8  # elements for each byte of the file; without repetition there is one at most
_LONG = 1 << 12  # bytes from which a read is a view of the file


def load_pickle(path: Path, expected: str, error: type[A2LPError]) -> Any:
    """The content of a pickle; its arrays are ``PickledArray``, which stay in the file until they are used.

    ``error`` is raised for a file that is damaged, asks for anything but arrays, or is made to fill the memory; its
    message names the ``expected`` kind of file.
    """
    with reading(path, expected, error=error) as size, path.open("rb") as file:
        content = RestrictedUnpickler(_Mapped(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))).load()
        check_structure(content, size)
        return content


def check_structure(content: Any, size: int) -> None:
    """Refuse containers that refer to each other so that a few bytes stand for billions of elements."""

    def containers(values: Iterable[Any]) -> list[Any]:
        return [value for value in values if isinstance(value, dict | list | tuple)]

    level, elements = containers([content]), 0
    for _ in range(_DEPTH):
        elements += sum(map(len, level))
        if elements > _GROWTH * size:
            raise InputError(f"its {size} bytes stand for {elements} elements or more. It is damaged or forged.")
        level = containers(child for one in level for child in (one.values() if isinstance(one, dict) else one))
    if level:
        raise InputError(f"it nests containers more than {_DEPTH} levels deep. It is damaged or forged.")


class _StandIn:
    """Base of the stand-ins; with ``__setstate__``, a pickle cannot set attributes."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        raise InputError("the pickle sets the state of something that is not an array. It is damaged or forged.")


def _stand_in(call: Callable[..., Any]) -> type[_StandIn]:
    """A class that a pickle can call like a function; on a function it could set attributes."""
    return type(call.__name__, (_StandIn,), {"__slots__": (), "__new__": lambda cls, *arguments: call(*arguments)})


class DType(_StandIn):
    """Stands in for ``numpy.dtype``: plain numbers only, neither objects nor structures."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any, *_align_copy: Any) -> None:
        if not (isinstance(code, str) and code[:1] in "biuf" and code[1:] in {"1", "2", "4", "8"}):
            raise InputError(
                f"the pickle holds an array of dtype {describe(code)}; expected plain numbers, such as 'f4'. "
                "Objects in arrays are refused, since reading them can run code."
            )
        self.code = code
        self.order: Any = "="

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]


class PickledArray(_StandIn):
    """Stands in for ``numpy.ndarray``; ``array`` is None until its state is set."""

    __slots__ = ("array",)

    def __init__(self, *_subtype_shape_code: Any) -> None:
        self.array: NDArray | None = None

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, fortran, data = state
        self.array = _build(data, dtype, shape, "F" if fortran else "C")


def _build(data: Any, dtype: Any, shape: Any, order: Literal["C", "F"]) -> NDArray:
    if not isinstance(dtype, DType) or not isinstance(data, str | bytes | bytearray | memoryview):
        raise InputError("the pickle holds an array without a dtype or without bytes. It is damaged or forged.")
    if not isinstance(shape, tuple) or not all(isinstance(side, int) and side >= 0 for side in shape):
        raise InputError("the pickle holds an array whose shape is no tuple of numbers. It is damaged or forged.")
    raw = data.encode("latin1") if isinstance(data, str) else data  # Python 2 wrote bytes as str
    kind = np.dtype(dtype.code).newbyteorder(dtype.order)
    if len(raw) != math.prod(shape) * kind.itemsize:
        held = f"{len(raw)} bytes for an array of shape {shown(shape)}"
        raise InputError(f"the pickle holds {held}. It is damaged or forged.")
    return np.frombuffer(raw, kind).reshape(shape, order=order)


@_stand_in
def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> Any:
    made = PickledArray()
    made.array = _build(data, dtype, shape, "F" if order == "F" else "C")
    return made


@_stand_in
def scalar(dtype: Any, data: Any) -> Any:
    """Stands in for ``numpy._core.multiarray.scalar``: one number."""
    return _build(data, dtype, (), "C")[()]


@_stand_in
def _encode(text: Any, encoding: Any = "latin1") -> Any:
    if not isinstance(text, str) or not isinstance(encoding, str) or encoding not in {"latin1", "latin-1"}:
        raise InputError(f"the pickle encodes text as {describe(encoding)}; arrays are only ever written as latin1.")
    return text.encode("latin1")


@_stand_in
def _dict(items: Any = ()) -> Any:
    pairs = [] if isinstance(items, type) else list(items)  # a type is the factory of a defaultdict
    _check_keys(key for key, _ in pairs)
    return dict(pairs)


@_stand_in
def _list(*_values: Any) -> Any:
    raise InputError("the pickle makes a list by a call. It is damaged or forged.")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): DType,
    ("numpy", "ndarray"): PickledArray,
    ("_codecs", "encode"): _encode,  # by which protocols 0 to 2 spell bytes
    ("builtins", "list"): _list,  # the factory of PT-MAP's defaultdict, which makes none here
    ("__builtin__", "list"): _list,
    ("collections", "defaultdict"): _dict,
    ("collections", "OrderedDict"): _dict,  # Python 2 pickles its items as its argument
}
for _core in ("numpy._core", "numpy.core"):  # NumPy 2 and 1
    _ALLOWED[f"{_core}.multiarray", "_reconstruct"] = PickledArray
    _ALLOWED[f"{_core}.multiarray", "scalar"] = scalar
    _ALLOWED[f"{_core}.numeric", "_frombuffer"] = _from_buffer


def _checked(code: bytes, keys: slice) -> Callable[[Any], None]:
    """The step of the unpickler that adds items to a dict, after a check of the keys on the stack."""

    def checked(self: Any) -> None:
        _check_keys(self.stack[keys])
        pickle._Unpickler.dispatch[code[0]](self)

    return checked


class RestrictedUnpickler(pickle._Unpickler):
    """Builds NumPy arrays and plain containers, and refuses anything else.

    It is the unpickler in Python, not the one in C, which allocates memory for any memo number that a file names: a
    file of twenty bytes could take all memory.
    """

    read: Callable[[int], Any]  # set by ``load``, as is the next
    append: Callable[[Any], None]

    def __init__(self, file: Any) -> None:
        super().__init__(file, encoding="latin1")

    def find_class(self, module: str, name: str, /) -> Any:
        """Stand-ins for what NumPy's pickles name; an error for anything else."""
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise InputError(
            f"the pickle asks for {module[:80]}.{name[:80]}, which is forbidden: only NumPy arrays are built from "
            "pickles, since anything else can run code. If you trust the file, open it in Python yourself and save its "
            "arrays as .npz."
        )

    def persistent_load(self, pid: Any) -> Any:
        """Refuse: nothing outside the file is read."""
        raise InputError(
            "the pickle refers to something outside of it, as torch's files do; expected arrays alone. Open it with "
            "torch and save `features` and `labels` as .npz."
        )

    def _decode_string(self, value: bytes | memoryview) -> str | memoryview:
        # Python 2 wrote the bytes of an array as a string; text is never that long
        return value if isinstance(value, memoryview) else value.decode("latin1")

    def _load_bytearray(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))
        data = self.read(length)
        if len(data) < length:  # Python's own version allocates the memory before it checks this
            raise EOFError("a byte array is cut short")
        self.append(data if isinstance(data, memoryview) else bytearray(data))  # a long one stays on disk

    dispatch = pickle._Unpickler.dispatch | {
        pickle.BYTEARRAY8[0]: _load_bytearray,
        pickle.DICT[0]: _checked(pickle.DICT, slice(None, None, 2)),
        pickle.SETITEMS[0]: _checked(pickle.SETITEMS, slice(None, None, 2)),
        pickle.SETITEM[0]: _checked(pickle.SETITEM, slice(-2, -1)),
    }
    for _code in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET):
        del dispatch[_code[0]]


def describe(value: Any) -> str:
    """A value of a pickle, for a message; never its whole text, which may be very long."""
    if isinstance(value, PickledArray) and value.array is not None:
        return f"an array of shape {value.array.shape}"
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return shown(value) if isinstance(value, str | bytes) else f"a {type(value).__name__}"


def _check_keys(keys: Iterable[Any]) -> None:
    # Hashing a tuple hashes all it holds: one that holds itself twice on thirty levels takes minutes, and one of a
    # million levels crashes the interpreter.
    for key in keys:
        if not isinstance(key, str | bytes | int | float | np.number | None):
            raise InputError(f"the pickle has a dict with {describe(key)} as a key; expected text or numbers.")


class _Mapped:
    """A memory-mapped file: long reads are views of it, so arrays stay on disk until they are used."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content, self.view, self.at = content, memoryview(content), 0

    def read(self, size: int) -> Any:
        piece = self.view[self.at : self.at + size]
        self.at += len(piece)
        return piece if size >= _LONG else bytes(piece)

    def readline(self) -> bytes:
        end = self.content.find(b"\n", self.at) + 1 or len(self.content)
        line = bytes(self.view[self.at : end])
        self.at = end
        return line
