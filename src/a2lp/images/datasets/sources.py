"""Where pixels come from: files, encoded images in memory, arrays, mosaics of tiles, and rows of these."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from a2lp.errors import CorruptImageError
from a2lp.images.datasets.decode import Pixels, decode

NDArray = np.ndarray[Any, Any]

MOSAIC_CACHE_BYTES = 64 << 20


class Source(Protocol):
    """Images by their row number; safe to read from several threads."""

    def read(self, rows: Sequence[int]) -> list[Pixels]:
        """Each image as uint8 (h, w, 3); ``CorruptImageError`` names one that cannot be decoded."""
        ...

    def digest(self, row: int) -> str:
        """SHA-256 of what the image is made of, in hexadecimal."""
        ...


@dataclass(frozen=True, eq=False)
class Files:
    """Image files under a root. What was digested must be what is then decoded: others rely on that."""

    root: Path
    files: Sequence[str]
    _digests: dict[int, bytes] = field(default_factory=dict)

    def read(self, rows: Sequence[int]) -> list[Pixels]:
        """Decode the files."""
        return [decode(self._unchanged(row), self.files[row]) for row in rows]

    def digest(self, row: int) -> str:
        """SHA-256 of the file."""
        self._digests[row] = hashlib.sha256(self._bytes(row)).digest()
        return self._digests[row].hex()

    def _unchanged(self, row: int) -> bytes:
        content = self._bytes(row)
        if row in self._digests and self._digests[row] != hashlib.sha256(content).digest():
            raise CorruptImageError(self.files[row], "it was changed while this ran")
        return content

    def _bytes(self, row: int) -> bytes:
        try:
            return (self.root / self.files[row]).read_bytes()
        except OSError as error:
            raise CorruptImageError(self.files[row], error.strerror or str(error)) from error


@dataclass(frozen=True, eq=False)
class Encoded:
    """Encoded images in memory: for each row an array of bytes."""

    blobs: Sequence[NDArray]
    files: Sequence[str]

    def read(self, rows: Sequence[int]) -> list[Pixels]:
        """Decode the images."""
        return [decode(self.blobs[row].tobytes(), self.files[row]) for row in rows]

    def digest(self, row: int) -> str:
        """SHA-256 of the encoded image."""
        return hashlib.sha256(self.blobs[row].tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Arrays:
    """Pixels that are there already, (N, h, w, 3)."""

    images: Pixels

    def read(self, rows: Sequence[int]) -> list[Pixels]:
        """The pixels themselves."""
        return [self.images[row] for row in rows]

    def digest(self, row: int) -> str:
        """SHA-256 of the shape and the pixels."""
        image = self.images[row]
        return hashlib.sha256(repr(image.shape).encode() + image.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Mosaics:
    """Encoded images that hold a grid of tiles each, row by row.

    A mosaic is decoded once and kept for its other tiles, as long as it is among the last ones that fit into
    ``MOSAIC_CACHE_BYTES``.
    """

    blobs: Sequence[NDArray]
    grid: tuple[int, int]
    tile: tuple[int, int]
    crop: tuple[int, int]
    name: str
    _kept: OrderedDict[int, Pixels] = field(default_factory=OrderedDict)
    _hashes: dict[int, bytes] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _locks: dict[int, threading.Lock] = field(default_factory=dict)

    def read(self, rows: Sequence[int]) -> list[Pixels]:
        """Cut the tiles out of their mosaics."""
        (_, columns), (height, width) = self.grid, self.tile
        tiles: dict[int, Pixels] = {}
        for row in sorted(set(rows)):
            mosaic, place = divmod(row, self.grid[0] * columns)
            y, x = place // columns * height, place % columns * width
            tiles[row] = self._mosaic(mosaic)[y : y + self.crop[0], x : x + self.crop[1]].copy()
        return [tiles[row] for row in rows]

    def digest(self, row: int) -> str:
        """SHA-256 of the encoded mosaic and of the tile's place in it."""
        mosaic, place = divmod(row, self.grid[0] * self.grid[1])
        if mosaic not in self._hashes:
            self._hashes[mosaic] = hashlib.sha256(self.blobs[mosaic].tobytes()).digest()
        where = repr((self.grid, self.tile, self.crop, place)).encode()
        return hashlib.sha256(self._hashes[mosaic] + where).hexdigest()

    def _mosaic(self, index: int) -> Pixels:
        with self._lock:
            lock = self._locks.setdefault(index, threading.Lock())
        with lock:  # so that two threads never decode the same one
            with self._lock:
                if index in self._kept:
                    self._kept.move_to_end(index)
                    return self._kept[index]
            pixels = decode(self.blobs[index].tobytes(), f"{self.name}, mosaic {index}")
            expected = (self.grid[0] * self.tile[0], self.grid[1] * self.tile[1], 3)
            if pixels.shape != expected:
                raise CorruptImageError(
                    f"{self.name}, mosaic {index}", f"its shape is {pixels.shape}; the pack says {expected}"
                )
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

    def read(self, rows: Sequence[int]) -> list[Pixels]:
        """Ask each source for its own rows at once."""
        wanted = np.asarray(rows, dtype=np.int64)
        images: dict[int, Pixels] = {}
        for part in np.unique(self.part[wanted]).tolist():
            at = np.flatnonzero(self.part[wanted] == part).tolist()
            found = self.sources[part].read(self.inner[wanted[at]].tolist())
            images.update(zip(at, found, strict=True))
        return [images[i] for i in range(len(wanted))]

    def digest(self, row: int) -> str:
        """The digest that the row has in its source."""
        return self.sources[int(self.part[row])].digest(int(self.inner[row]))


def joined(sources: Sequence[Source], sizes: Sequence[int]) -> Source:
    """Several sources one after the other."""
    if len(sources) == 1:
        return sources[0]
    part = np.repeat(np.arange(len(sources)), sizes)
    return Rows(tuple(sources), part, np.concatenate([np.arange(size) for size in sizes]))


def selected(source: Source, rows: NDArray) -> Source:
    """Some rows of a source."""
    if isinstance(source, Rows):
        return Rows(source.sources, source.part[rows], source.inner[rows])
    return Rows((source,), np.zeros(len(rows), dtype=np.int64), np.asarray(rows, dtype=np.int64))
