"""``ImageSet``: images with their labels, class names and keys, decoded only when they are read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from a2lp.arrays import NDArray
from a2lp.checks import require_name, require_whole, shown
from a2lp.errors import CorruptImageError, InputError, ShapeError
from a2lp.images.datasets.decode import Pixels, resized
from a2lp.images.datasets.sources import Source, selected
from a2lp.images.view import View

OnCorrupt = Literal["refuse", "skip"]

_CHUNK = 600  # images to a thread at most: the tiles of one mosaic, so that threads seldom need the same one


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """N images.

    Parameters
    ----------
    name : str
        The name of the set in reports.
    labels, classes : array (N,) and tuple of str, or None
        Class names, sorted by ``load``, and the position of each image's class; None for images without labels.
    files : tuple of str
        A unique key for each image: the path under the set's root, with forward slashes.
    source : Source
        Gives the pixels of rows.
    """

    name: str
    labels: NDArray | None
    classes: tuple[str, ...] | None
    files: tuple[str, ...]
    source: Source

    def __post_init__(self) -> None:
        twice, times = Counter(self.files).most_common(1)[0] if self.files else ("", 0)
        if times > 1:
            raise InputError(f"the image {shown(twice)} occurs twice in {self.name!r}; keys must differ. Drop one.")
        if (self.labels is None) != (self.classes is None):
            raise InputError(f"{self.name!r} has labels without classes or classes without labels; give both or none.")
        if self.labels is not None and self.labels.shape != (len(self.files),):
            raise ShapeError(f"labels has shape {self.labels.shape} for {len(self.files)} images; give one for each.")

    def __repr__(self) -> str:
        known = "no labels" if self.classes is None else f"{len(self.classes)} classes"
        return f"ImageSet({self.name!r}: {len(self)} images, {known})"

    def __len__(self) -> int:
        return len(self.files)

    def select(self, rows: Sequence[int] | NDArray) -> ImageSet:
        """The set of these rows, in this order; labels and classes keep their meaning."""
        index = np.arange(len(self))[np.asarray(rows)]
        return replace(
            self,
            labels=None if self.labels is None else self.labels[index],
            files=tuple(self.files[row] for row in index.tolist()),
            source=selected(self.source, index),
        )

    def digest(self, row: int) -> str:
        """SHA-256, in hexadecimal, of the encoded image, or of its pixels where they are not encoded."""
        return self.source.digest(row)

    def fingerprint(self, workers: int = 1) -> str:
        """SHA-256, in hexadecimal, of all images in their order, with the class of each."""
        names = [""] * len(self)
        if self.labels is not None and self.classes is not None:
            names = [self.classes[label] for label in self.labels.tolist()]
        whole = hashlib.sha256()
        with ThreadPoolExecutor(workers) as pool:
            for digest, name in zip(pool.map(self.digest, range(len(self))), names, strict=True):
                whole.update(f"{digest} {name}\n".encode())
        return whole.hexdigest()

    def read(
        self,
        rows: Sequence[int] | NDArray,
        view: View,
        *,
        workers: int = 1,
        on_corrupt: OnCorrupt = "refuse",
        skipped: dict[int, str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[Pixels, NDArray]:
        """Pixels (n, size, size, 3) of some images, all held in memory, and their rows without those skipped (n,).

        Parameters
        ----------
        rows, view
            The rows of the images, and their size and crop.
        workers : int
            Threads that decode.
        on_corrupt : {"refuse", "skip"}
            Whether an image that cannot be decoded raises ``CorruptImageError`` or is left out.
        skipped : dict, optional
            Filled with the rows that are left out, and the reasons.
        progress : callable, optional
            Called with the number of images done and their total.
        """
        require_name("choice for corrupt images", on_corrupt, ("refuse", "skip"))
        require_whole("workers", workers, 1, "It is the number of threads that decode.")
        wanted = np.asarray(rows, dtype=np.int64)
        pixels = np.empty((len(wanted), view.output, view.output, 3), dtype=np.uint8)
        decoded = np.zeros(len(wanted), dtype=bool)

        def work(places: NDArray) -> int:
            for place in places.tolist():
                try:
                    image = self.source.image(int(wanted[place]))
                except CorruptImageError as error:
                    if on_corrupt == "refuse":
                        raise
                    if skipped is not None:
                        skipped[int(wanted[place])] = error.reason
                    continue
                pixels[place] = resized(image, view)
                decoded[place] = True
            return len(places)

        chunk = max(1, min(_CHUNK, -(-len(wanted) // (4 * workers))))
        order = np.argsort(wanted, kind="stable")  # neighbours share a mosaic, or a part of the disk
        parts = [order[i : i + chunk] for i in range(0, len(order), chunk)]
        pool, done = ThreadPoolExecutor(workers), 0  # starts no thread before it is used
        try:
            # one worker is the caller itself, which may be one of several threads that read a few images each
            for count in (pool.map if workers > 1 else map)(work, parts):
                done += count
                if progress is not None:
                    progress(done, len(wanted))
        finally:
            pool.shutdown(cancel_futures=True)
        return (pixels, wanted) if decoded.all() else (pixels[decoded], wanted[decoded])

    def pixels(self, view: View, workers: int = 1, progress: Callable[[int, int], None] | None = None) -> Pixels:
        """All images, (N, size, size, 3), as ``read`` gives them; InputError if they would not fit into memory."""
        side = view.output
        check_memory(f"the {len(self)} images of {self.name!r} at {side} x {side} pixels", len(self) * side * side * 3)
        return self.read(range(len(self)), view, workers=workers, progress=progress)[0]


def check_memory(what: str, needed: int) -> None:
    """Raise InputError if more bytes are needed than this process may still allocate, as far as the system reports."""
    limits = []
    with contextlib.suppress(OSError):
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        limits += [int(found[1]) * 1024] if found else []
    with contextlib.suppress(OSError, ValueError):  # a container's limit; "max" where there is none
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    if not limits:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if limits and needed > min(limits):
        raise InputError(
            f"{what} need {needed / 2**30:.1f} GiB of memory and {min(limits) / 2**30:.1f} GiB are free. "
            "Use a smaller view or fewer images, or a machine with more memory."
        )
