"""Sources of pixels: files, encoded images in memory, arrays, mosaics of tiles, and rows of these."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from a2lp.arrays import NDArray
from a2lp.errors import CorruptImageError, InputError
from a2lp.files import check_file
from a2lp.images.datasets.decode import Pixels, decode

MOSAIC_CACHE_BYTES = 64 << 20
IMAGE_BYTES = 1 << 30  # the largest image file that is read


class Source(Protocol):
    """Images by their row number; safe to read from several threads."""

    def image(self, row: int) -> Pixels:
        """An image as uint8 (h, w, 3); ``CorruptImageError`` if it cannot be decoded."""

    def digest(self, row: int) -> str:
        """SHA-256, in hexadecimal, of the encoded image or of its pixels."""


@dataclass(frozen=True, eq=False)
class Files:
    """Image files under a root. A file that changed since its digest was taken is refused: the cache relies on it."""

    root: Path
    files: Sequence[str]
    _digests: dict[int, bytes] = field(default_factory=dict)

    def image(self, row: int) -> Pixels:
        """Decode the file."""
        content = self._bytes(row)
        if row in self._digests and self._digests[row] != hashlib.sha256(content).digest():
            raise CorruptImageError(self.files[row], "it was changed while this ran")
        return decode(content, self.files[row])

    def digest(self, row: int) -> str:
        """SHA-256 of the file."""
        self._digests[row] = hashlib.sha256(self._bytes(row)).digest()
        return self._digests[row].hex()

    def _bytes(self, row: int) -> bytes:
        path = self.root / self.files[row]
        try:
            check_file(path, "an image", most=IMAGE_BYTES, error=InputError)
            return path.read_bytes()
        except (InputError, OSError) as error:
            raise CorruptImageError(self.files[row], str(error).rstrip(".")) from error


@dataclass(frozen=True, eq=False)
class Encoded:
    """Encoded images in memory: for each row an array of bytes."""

    blobs: Sequence[NDArray]
    files: Sequence[str]

    def image(self, row: int) -> Pixels:
        """Decode the image."""
        return decode(self.blobs[row].tobytes(), self.files[row])

    def digest(self, row: int) -> str:
        """SHA-256 of the encoded image."""
        return hashlib.sha256(self.blobs[row].tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Arrays:
    """Decoded images, (N, h, w, 3)."""

    images: Pixels

    def image(self, row: int) -> Pixels:
        """The pixels themselves."""
        return np.asarray(self.images[row])

    def digest(self, row: int) -> str:
        """SHA-256 of the shape and the pixels."""
        image = self.images[row]
        return hashlib.sha256(repr(image.shape).encode() + image.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Mosaics:
    """Encoded images that hold a grid of tiles each, row by row; the last ones are kept in memory, decoded."""

    blobs: Sequence[NDArray]
    grid: tuple[int, int]
    tile: tuple[int, int]
    crop: tuple[int, int]
    name: str
    _kept: OrderedDict[int, Pixels] = field(default_factory=OrderedDict)
    _hashes: dict[int, bytes] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _locks: dict[int, threading.Lock] = field(default_factory=dict)

    def image(self, row: int) -> Pixels:
        """Cut the tile out of its mosaic."""
        mosaic, place = divmod(row, self.grid[0] * self.grid[1])
        y, x = place // self.grid[1] * self.tile[0], place % self.grid[1] * self.tile[1]
        return self._mosaic(mosaic)[y : y + self.crop[0], x : x + self.crop[1]].copy()

    def digest(self, row: int) -> str:
        """SHA-256 of the encoded mosaic and of the tile's place in it."""
        mosaic, place = divmod(row, self.grid[0] * self.grid[1])
        if mosaic not in self._hashes:
            self._hashes[mosaic] = hashlib.sha256(self.blobs[mosaic].tobytes()).digest()
        where = repr((self.grid, self.tile, self.crop, place)).encode()
        return hashlib.sha256(self._hashes[mosaic] + where).hexdigest()

    def _mosaic(self, index: int) -> Pixels:
        with self._locks.setdefault(index, threading.Lock()):  # so that two threads never decode the same mosaic
            with self._lock:
                if index in self._kept:
                    self._kept.move_to_end(index)
                    return self._kept[index]
            name = f"{self.name}, mosaic {index}"
            pixels = decode(self.blobs[index].tobytes(), name)
            expected = (self.grid[0] * self.tile[0], self.grid[1] * self.tile[1], 3)
            if pixels.shape != expected:
                raise CorruptImageError(name, f"its shape is {pixels.shape}; expected {expected}")
            with self._lock:
                self._kept[index] = pixels
                while len(self._kept) > 1 and sum(kept.nbytes for kept in self._kept.values()) > MOSAIC_CACHE_BYTES:
                    self._kept.popitem(last=False)
            return pixels


@dataclass(frozen=True, eq=False)
class Rows:
    """Chosen rows of one or more sources: row i is ``inner[i]`` of ``sources[part[i]]``."""

    sources: tuple[Source, ...]
    part: NDArray
    inner: NDArray

    def image(self, row: int) -> Pixels:
        """The image of the row's source."""
        return self.sources[int(self.part[row])].image(int(self.inner[row]))

    def digest(self, row: int) -> str:
        """The digest of the row's source."""
        return self.sources[int(self.part[row])].digest(int(self.inner[row]))


def selected(source: Source, rows: NDArray) -> Source:
    """Some rows of a source."""
    if isinstance(source, Rows):
        return Rows(source.sources, source.part[rows], source.inner[rows])
    return Rows((source,), np.zeros(len(rows), dtype=np.int64), np.asarray(rows, dtype=np.int64))
