"""Packs: one .npz of encoded images (or of mosaics of equal tiles) with labels, class names, file names and splits.

``data`` holds all encoded images one after the other and ``offsets`` where each begins (and the last ends);
``labels`` index ``classes``; ``names`` and ``split`` are the file name and the split of each image. With ``grid``
(rows, columns) and ``tile`` (height, width), each encoded image is a mosaic, row by row; ``crop`` is the used part of a
tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from a2lp import npz
from a2lp.arrays import NDArray
from a2lp.checks import shown
from a2lp.errors import DatasetError, InputError
from a2lp.files import reading
from a2lp.images.datasets.layouts import ImageTable, join
from a2lp.images.datasets.sources import Encoded, Mosaics, Source
from a2lp.images.datasets.splits import Standard

_EXPECTED = "a pack of images (.npz)"
_REQUIRED = ("data", "offsets", "labels", "classes")
_OPTIONAL = ("names", "split", "grid", "tile", "crop")


def find_packs(paths: Sequence[Path], standard: Standard | None) -> ImageTable | None:
    """Read the packs of a standard dataset among some .npz files, or packs that all have the same classes."""
    packs = [path for path in paths if set(_REQUIRED) <= set(npz.names(path, _EXPECTED, DatasetError))]
    if not packs:
        return None
    classes = {path: _classes(path) for path in packs}
    if standard is not None:
        known = set(standard.split_of())
        packs = [path for path in packs if set(classes[path]) <= known]
        if not packs:
            names = ", ".join(path.name for path in paths)
            raise DatasetError(f"none of the packs {names} in {paths[0].parent} holds the classes of {standard.title}.")
    elif len(set(classes.values())) > 1:
        other = next(path for path in packs if classes[path] != classes[packs[0]])
        raise DatasetError(
            f"{packs[0]} and {other.name} hold different classes, so they are not of one dataset. Name the dataset, "
            "or give the packs by a pattern such as 'cub_*.npz'."
        )
    tables = [_read(path) for path in packs]
    own = standard is None and all(table.splits is not None for table in tables)
    return join(tables, [split for table in tables for split in table.splits or ()] if own else None)


def _classes(path: Path) -> tuple[str, ...]:
    with reading(path, _EXPECTED, error=DatasetError):
        return tuple(_texts(npz.read(path, _EXPECTED, ["classes"], error=DatasetError)["classes"]))


def _read(path: Path) -> ImageTable:
    pack = npz.read(path, _EXPECTED, _REQUIRED, _OPTIONAL, DatasetError)
    with reading(path, _EXPECTED, error=DatasetError):
        grid = _pair(pack, "grid") if "grid" in pack else None
        _check(pack, 1 if grid is None else math.prod(grid))
        known = _texts(pack["classes"])
        classes = [known[label] for label in pack["labels"].tolist()]
        names = _texts(pack["names"]) if "names" in pack else [f"{row:06d}" for row in range(len(classes))]
        files = [name if "/" in name else f"{label}/{name}" for name, label in zip(names, classes, strict=True)]
        blobs = [pack["data"][start:stop] for start, stop in pairwise(pack["offsets"].tolist())]
        source: Source = Encoded(blobs, files)
        if grid is not None:
            tile = _pair(pack, "tile")
            source = Mosaics(blobs, grid, tile, _pair(pack, "crop") if "crop" in pack else tile, path.name)
        return ImageTable(source, files, classes, _texts(pack["split"]) if "split" in pack else None)


def _check(pack: dict[str, NDArray], tiles: int) -> None:
    data, offsets, labels, count = pack["data"], pack["offsets"], pack["labels"], len(pack["labels"])
    numbers = offsets.dtype.kind in "iu" and labels.dtype.kind in "iu" and labels.size > 0
    rules = {
        "data must be one axis of bytes": data.dtype == np.uint8 and data.ndim == 1,
        "offsets and labels must be one axis of whole numbers": numbers and offsets.ndim == labels.ndim == 1,
        "offsets must rise from 0 to the length of data": len(offsets) > 1
        and offsets[0] >= 0
        and bool((offsets[1:] > offsets[:-1]).all())
        and offsets[-1] <= len(data),
        "labels must index classes": labels.min(initial=0) >= 0 and labels.max(initial=0) < len(pack["classes"]),
        "there must be an image for each label": count <= (len(offsets) - 1) * tiles,
        "names must be one for each label": "names" not in pack or pack["names"].shape == (count,),
        "split must be one for each label": "split" not in pack or pack["split"].shape == (count,),
    }
    for rule, holds in rules.items():
        if not holds:
            raise InputError(f"{rule}, which does not hold. Make the pack again.")


def _texts(values: NDArray) -> list[str]:
    if values.dtype.kind not in "US" or values.ndim != 1:
        raise InputError(f"its names are of shape {values.shape} and {values.dtype}; expected one axis of text.")
    return [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]


def _pair(pack: dict[str, NDArray], name: str) -> tuple[int, int]:
    values = pack[name]
    if values.shape != (2,) or values.dtype.kind not in "iu" or values.min() < 1:
        raise InputError(f"{name} is {shown(values.tolist())}; expected two whole numbers, 1 or more.")
    return int(values[0]), int(values[1])
