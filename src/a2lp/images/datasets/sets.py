"""``ImageSet``: images with their labels, class names and keys, decoded only when they are read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from a2lp.errors import InputError, ShapeError
from a2lp.images.datasets.decode import Pixels
from a2lp.images.datasets.memory import check_memory
from a2lp.images.datasets.resize import fill
from a2lp.images.datasets.sources import Source, selected
from a2lp.images.view import View

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """N images.

    Parameters
    ----------
    name : str
        What reports call the set.
    labels : array (N,) or None
        Positions in ``classes``; None where nothing says what the images show.
    classes : tuple of str or None
        Class names, sorted where ``load`` made the set.
    files : tuple of str
        A key for each image, all different: the path under the set's root, with forward slashes.
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
            raise InputError(f"the image {twice!r} occurs twice in {self.name!r}; keys must differ. Leave one out.")
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
        shown = [""] * len(self)
        if self.labels is not None and self.classes is not None:
            shown = [self.classes[label] for label in self.labels.tolist()]
        whole = hashlib.sha256()
        with ThreadPoolExecutor(workers) as pool:
            for digest, name in zip(pool.map(self.digest, range(len(self))), shown, strict=True):
                whole.update(f"{digest} {name}\n".encode())
        return whole.hexdigest()

    def pixels(self, view: View, workers: int = 1, progress: Callable[[int, int], None] | None = None) -> Pixels:
        """All images at once, as a network sees them.

        Parameters
        ----------
        view : View
            What is kept of each image.
        workers : int
            Threads that decode.
        progress : callable, optional
            Called with the number of images done and their total.

        Returns
        -------
        uint8 array (N, size, size, 3)

        Raises
        ------
        InputError
            Where they would not fit into memory.
        CorruptImageError
            For an image that cannot be decoded.
        """
        side = view.output
        check_memory(f"the {len(self)} images of {self.name!r} at {side} x {side} pixels", len(self) * side * side * 3)
        pixels = np.empty((len(self), side, side, 3), dtype=np.uint8)
        fill(pixels, self.source, np.arange(len(self)), view, workers, "refuse", progress)
        return pixels
