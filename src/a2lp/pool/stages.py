"""Files between the stages of a large pool: what one stage found is kept, so that a run that was ended goes on there.

The name of a file has a hash of everything it was made from, so files of other points or other versions are never
used. A file is complete or not there: it is written under another name, and renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from a2lp._version import __version__
from a2lp.arrays import chunks
from a2lp.files import replacing, writing
from a2lp.scale import wait_for

NdArray = np.ndarray[Any, Any]

LARGE = 1 << 30  # bytes of points in float32, above which what is made of them is in files
_ROWS = 65_536
_FORMAT = "1"  # of the files; another one for another algorithm


class Stages:
    """Arrays by the name of their stage.

    Parameters
    ----------
    folder : Path or None
        Where they are kept; None if they are not.
    x : array (n, d)
        The points that everything is made from.
    kind : str
        What else the arrays depend on.
    """

    def __init__(self, folder: str | Path | None, x: NdArray, kind: str = "") -> None:
        self.folder = None if folder is None else Path(folder)
        self.large = x.size * max(x.itemsize, 4) > LARGE
        if self.folder is not None:
            with writing(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
            self.key = _hash(x, kind)

    @classmethod
    def at(cls, folder: str, key: str) -> Stages:
        """Stages whose key is known, on a worker."""
        found = cls.__new__(cls)
        found.folder, found.key, found.large = Path(folder), key, False
        return found

    def keep(self, name: str, make: Callable[[], tuple[NdArray, ...]]) -> tuple[NdArray, ...]:
        """The arrays of a stage: mapped from its files, or made and written."""
        if self.folder is None:
            return make()
        if (found := self._load(name)) is not None:
            return found
        arrays = make()
        for number, array in reversed(list(enumerate(arrays))):  # the first is there once all are
            path = self._path(name, number, len(arrays))
            with writing(path), replacing(path) as unfinished, unfinished.open("wb") as file:
                np.save(file, array)
        found = self._load(name)
        assert found is not None
        return found

    def aside(self, arrays: tuple[NdArray, ...]) -> tuple[NdArray, ...]:
        """The arrays of a large pool, mapped from temporary files where none are kept."""
        return tuple(map(stored, arrays)) if self.large and self.folder is None else arrays

    def has(self, name: str) -> bool:
        """Whether there are files of a stage."""
        return self.folder is not None and self._load(name) is not None

    def drop(self, name: str) -> None:
        """Remove the files of a stage that is needed no more."""
        if self.folder is not None:
            for path in self.folder.glob(f"{name}-{self.key}-*.npy"):
                path.unlink(missing_ok=True)

    def mapped(self, name: str, shape: tuple[int, ...], dtype: Any, fill: Callable[[NdArray], None]) -> NdArray:
        """An array too large for memory: a file that ``fill`` writes, temporary if none is kept."""
        if self.folder is None:
            found = temporary(shape, dtype)
            fill(found)
            return found
        if (known := self._load(name)) is None:
            path = self._path(name, 0, 1)
            with writing(path), replacing(path) as unfinished:
                array = np.lib.format.open_memmap(unfinished, "w+", dtype, shape)
                fill(array)
                array.flush()
            known = self._load(name)
        assert known is not None
        return known[0]

    def arrived(self, name: str, count: int) -> tuple[NdArray, ...]:
        """The arrays of a stage that another machine has made, mapped so that changes stay in this process."""
        wait_for(self._path(name, 0, count))
        return tuple(np.load(self._path(name, number, count), mmap_mode="c") for number in range(count))

    def _path(self, name: str, number: int, of: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}-{self.key}-{number}of{of}.npy"

    def _load(self, name: str) -> tuple[NdArray, ...] | None:
        assert self.folder is not None
        for first in self.folder.glob(f"{name}-{self.key}-0of*.npy"):
            count = int(first.stem.rsplit("of", 1)[1])
            with contextlib.suppress(OSError, ValueError):  # damaged, or removed meanwhile
                return tuple(np.load(self._path(name, number, count), mmap_mode="r") for number in range(count))
        return None


def temporary(shape: tuple[int, ...], dtype: Any) -> NdArray:
    """An array in a file that ends with it."""
    dtype = np.dtype(dtype)
    with writing(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
        size = math.prod(shape) * dtype.itemsize
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error here, and the end of the process later
        return np.memmap(file, dtype, "r+", shape=shape)


def stored(array: NdArray) -> NdArray:
    """A copy of an array in a temporary file."""
    if not array.size:
        return array
    found = temporary(array.shape, array.dtype)
    for part in chunks(len(array), _ROWS):
        found[part] = array[part]
        release(found[part])
    return found


def release(*arrays: NdArray) -> None:
    """Let the pages of mapped arrays leave this process, so that they count as the file's; they are read again.

    Of an array of consecutive rows, the pages of these rows.
    """
    for array in arrays:
        found: Any = array
        while found is not None and not isinstance(getattr(found, "base", None), mmap.mmap):
            found = getattr(found, "base", None)
        # of a private map, changes would be lost
        if found is None or found.mode == "c" or not array.size or not hasattr(mmap, "MADV_DONTNEED"):
            continue
        first = array.ctypes.data - found.ctypes.data + found.offset % mmap.ALLOCATIONGRANULARITY
        start = first - first % mmap.PAGESIZE
        found.base.madvise(mmap.MADV_DONTNEED, start, first + array.nbytes - start)


def _hash(x: NdArray, kind: str) -> str:
    digest = hashlib.blake2b(f"{_FORMAT} {__version__} {kind} {x.shape} {x.dtype}".encode(), digest_size=12)
    for part in chunks(len(x), _ROWS):
        digest.update(np.ascontiguousarray(x[part]).data)
        release(x[part])
    return digest.hexdigest()
