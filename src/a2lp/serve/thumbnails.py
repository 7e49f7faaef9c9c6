"""Pictures of the points, by row: decoded and encoded again, so that no file reaches the browser as it is.

Small ones are kept on disk by the content of the image. They are made in threads, those of rows in view first.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from a2lp import cores, png
from a2lp.errors import InputError, MissingExtraError
from a2lp.files import replacing

SIZES = (128, 256)
LARGEST = 1600
_QUALITY = 70
_LARGE_QUALITY = 85


class Picture(NamedTuple):
    """An encoded image."""

    data: bytes
    type: str


class NoPicture(InputError):
    """A row that has no picture."""


class Drawn:
    """Pictures of grey pixel vectors, such as the digits.

    Parameters
    ----------
    pixels : array (n, h, w)
        From 0 (white) to ``most`` (black).
    """

    def __init__(self, pixels: np.ndarray[Any, Any], most: float) -> None:
        self._pixels = np.round(255 * (1 - pixels / most)).astype(np.uint8)

    def __call__(self, key: str, side: int) -> Picture:
        """The picture of a point, whose key is its row; each pixel is a square."""
        times = max(1, side // self._pixels.shape[1])
        return Picture(png.encode(self._pixels[int(key)].repeat(times, axis=0).repeat(times, axis=1)), "image/png")


class Files:
    """Pictures of image files.

    Parameters
    ----------
    paths : mapping of str to Path
        By key.
    roots : sequence of Path
        Folders that files must lie in, after links are followed; none: any place.
    cache : Path
        The folder of small pictures.
    """

    def __init__(self, paths: Mapping[str, Path], roots: Sequence[Path], cache: Path) -> None:
        self._paths, self._cache = paths, cache
        self._roots = [os.path.realpath(root) for root in roots]
        self._digests: dict[str, tuple[tuple[int, int], str]] = {}

    def __call__(self, key: str, side: int) -> Picture:
        """The picture of a point, at most ``side`` pixels wide and high."""
        path = self._paths[key]
        real = os.path.realpath(path)
        if self._roots and not any(Path(real).is_relative_to(root) for root in self._roots):
            raise NoPicture(f"{key} is a link that leads out of the source, and is not shown.")
        try:
            status = Path(real).stat()
            stamp = status.st_size, status.st_mtime_ns
            known = self._digests.get(key)
            data = None if known is not None and known[0] == stamp else Path(real).read_bytes()
            if data is not None:
                known = (stamp, hashlib.sha256(data).hexdigest())
                self._digests[key] = known
            assert known is not None
            kept = self._cache / known[1][:2] / f"{known[1]}_{side}.webp"
            if side in SIZES and kept.exists():
                return Picture(kept.read_bytes(), "image/webp")
            made = _encoded(Path(real).read_bytes() if data is None else data, key, side)
        except OSError as failure:
            raise NoPicture(f"{key} cannot be read: {failure.strerror or failure}") from failure
        if side in SIZES:
            kept.parent.mkdir(exist_ok=True)
            with replacing(kept) as temporary:
                temporary.write_bytes(made.data)
        return made


def _encoded(data: bytes, name: str, side: int) -> Picture:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("showing images", "pillow", "images") from error
    from a2lp.images.datasets.decode import decode

    image = Image.fromarray(decode(data, name, side))
    image.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    made = io.BytesIO()
    image.save(made, "WEBP", quality=_QUALITY if side in SIZES else _LARGE_QUALITY, method=2)
    return Picture(made.getvalue(), "image/webp")


class _Wanted(NamedTuple):
    row: int
    key: str
    side: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Picture]


class Studio:
    """Threads that make pictures: rows in view first, of the others the latest request first."""

    def __init__(self, make: Callable[[str, int], Picture]) -> None:
        self._make = make
        self._waiting: list[_Wanted] = []
        self._view: set[int] = set()
        self._ready = threading.Condition()
        self._open = True
        for _ in range(cores.count()):
            threading.Thread(target=self._work, daemon=True).start()

    def look_at(self, rows: Iterable[int]) -> None:
        """Set the rows that are in view."""
        self._view = set(rows)

    async def picture(self, row: int, key: str, side: int) -> Picture:
        """The picture of the point in a row."""
        loop = asyncio.get_running_loop()
        wanted = _Wanted(row, key, side, loop, loop.create_future())
        with self._ready:
            self._waiting.append(wanted)
            self._ready.notify()
        return await wanted.future

    def close(self) -> None:
        """End the threads."""
        with self._ready:
            self._open = False
            self._ready.notify_all()

    def _work(self) -> None:
        while (wanted := self._next()) is not None:
            if wanted.future.cancelled():  # the browser does not wait for it any more
                continue
            try:
                made = self._make(wanted.key, wanted.side)
            except Exception as error:
                _tell(wanted, None, error)
            else:
                _tell(wanted, made, None)

    def _next(self) -> _Wanted | None:
        with self._ready:
            while self._open and not self._waiting:
                self._ready.wait()
            if not self._open:
                return None
            seen = (place for place, one in enumerate(self._waiting) if one.row in self._view)
            return self._waiting.pop(next(seen, -1))


def _tell(wanted: _Wanted, made: Picture | None, error: Exception | None) -> None:
    def tell() -> None:
        if wanted.future.done():
            return
        if error is not None:
            wanted.future.set_exception(error)
        elif made is not None:
            wanted.future.set_result(made)

    try:
        wanted.loop.call_soon_threadsafe(tell)
    except RuntimeError:  # the server has ended
        return
