"""How kernels are compiled by numba, and where the compiled code is kept.

numba's own cache checks the file of a function but not the files of the functions it calls, so after an upgrade it
could run old code. Here the cache folder is named by a hash of all sources of compiled code and of the versions of
numba, llvmlite and a2lp. It is in the user's cache, since site-packages is often read-only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import llvmlite
import numba
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from a2lp._version import __version__
from a2lp.files import cache_folder
from a2lp.kernels.kept import private_folder, remove_old

# Sums may be reordered and multiplications fused; NaN, infinities and divisions keep their meaning.
FAST = {"reassoc", "contract", "nsz"}

# Functions that only compiled code calls: without wrappers for Python they compile in half the time. Those with
# fast-math are inlined. Otherwise they would be compiled twice, alone and with their caller; the process that compiles
# would link to the first, processes that load the cache to the second, and the two do not round alike.
_COMMON = {"nogil": True, "error_model": "numpy", "_nrt": False}
_INSIDE = _COMMON | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
part = numba.njit(**_INSIDE)
fast_part = numba.njit(fastmath=FAST, forceinline=True, **_INSIDE)

_POOL = ("pool/_kernels.py", "pool/_solver.py", "pool/_search.py")
_SOURCES = ("kernels", "engines", "loops", *_POOL, "arrays.py", "graph.py", "losses.py", "optimizers.py")
_MOST_FOLDERS = 8


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function that Python calls: compiled at its first call with numba's options, then cached."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**_COMMON | {"fastmath": FAST} | options)(function)
        if folder() is not None:
            dispatcher._cache = _KernelCache(function)
        return dispatcher

    return decorate


@cache
def source_hash() -> str:
    """A hash of everything that decides compiled code but the processor, which numba checks itself."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__} {__version__}".encode())
    for name in _SOURCES:
        path = root / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:24]


@cache
def folder() -> Path | None:
    """The folder of compiled code; None if it cannot be written, or if others can write to it: it holds pickles."""
    try:
        root = Path(config.CACHE_DIR) / "a2lp" if config.CACHE_DIR else cache_folder() / "kernels"
        found = root / source_hash()
        new = not found.exists()
        if not private_folder(found):
            return None
        os.utime(found)
        if new:
            remove_old([path for path in root.iterdir() if path.is_dir()], _MOST_FOLDERS)
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return None
    return found


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Tells numba where a function's code is kept."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._function, self._py_file = function, file  # numba reads the file's name

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func, py_file)

    def get_cache_path(self) -> str:
        return str(folder())

    def get_source_stamp(self) -> str:
        return source_hash()

    def get_disambiguator(self) -> str:
        return self._function.__module__


class _Implementation(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes: ClassVar = [_Locator]


class _KernelCache(FunctionCache):  # type: ignore[misc]
    _impl_class = _Implementation
