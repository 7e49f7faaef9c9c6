"""Packs: one .npz of encoded images (or of mosaics of equal tiles) with labels, class names, file names and splits.

``data`` holds all encoded images one after the other and ``offsets`` where each begins (and the last ends);
``labels`` index ``classes``; ``names`` and ``split`` say what each image is called and is for. With ``grid``
(rows, columns) and ``tile`` (height, width), each encoded image is a mosaic, read row by row; ``crop`` is the part
of a tile that is used.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.errors import DatasetError
from a2lp.images.datasets.found import Found
from a2lp.images.datasets.sources import Encoded, Mosaics, Source, joined
from a2lp.images.datasets.splits import Standard

NDArray = np.ndarray[Any, Any]


def find_packs(paths: Sequence[Path], standard: Standard | None) -> Found | None:
    """Read the packs of one dataset among some .npz files.

    With a standard, those that hold its classes are taken, and the splits are the standard's; else all must hold
    the same classes, and the splits are the packs' own.
    """
    packs = [path for path in paths if _is_pack(path)]
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
    found = [_read(path) for path in packs]
    splits = None if any(pack.splits is None for pack in found) else _flat([pack.splits or () for pack in found])
    return Found(
        joined([pack.source for pack in found], [len(pack.files) for pack in found]),
        _flat([pack.files for pack in found]),
        _flat([pack.classes or () for pack in found]),
        None if standard is not None else splits,
    )


def _is_pack(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return {"data.npy", "offsets.npy", "labels.npy", "classes.npy"} <= set(archive.namelist())
    except (zipfile.BadZipFile, OSError) as error:
        raise DatasetError(f"{path} cannot be read as an .npz pack ({error}). Fetch or make it again.") from error


def _classes(path: Path) -> tuple[str, ...]:
    with _opened(path) as content:
        return tuple(_texts(content["classes"]))


def _read(path: Path) -> Found:
    with _opened(path) as content:
        return _check(path, {key: content[key] for key in content.files})


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with np.load(path) as content:
            yield content
    except DatasetError:
        raise
    except Exception as error:  # zlib.error, ValueError, KeyError, ...: whatever a damaged archive leads to
        reason = " ".join(str(error).split())[:200]
        raise DatasetError(f"{path} cannot be read as a pack ({reason}). Fetch or make it again.") from error


def _check(path: Path, pack: dict[str, NDArray]) -> Found:
    data, offsets, labels = pack["data"], pack["offsets"], pack["labels"]
    count = len(labels)
    tiles = int(np.prod(pack["grid"])) if "grid" in pack else 1
    rules = {
        "data must be one axis of bytes": data.dtype == np.uint8 and data.ndim == 1,
        "offsets must rise from 0 to the length of data": offsets.ndim == 1
        and len(offsets) > 1
        and offsets[0] >= 0
        and bool((np.diff(offsets) > 0).all())
        and offsets[-1] <= len(data),
        "labels must index classes": labels.ndim == 1 and labels.min() >= 0 and labels.max() < len(pack["classes"]),
        "there must be an image for each label": count <= (len(offsets) - 1) * tiles,
        "names must be one for each label": "names" not in pack or pack["names"].shape == (count,),
        "split must be one for each label": "split" not in pack or pack["split"].shape == (count,),
    }
    for rule, holds in rules.items():
        if not holds:
            raise DatasetError(f"{path}: {rule}, which does not hold. Make the pack again.")
    known = _texts(pack["classes"])
    classes = [known[label] for label in labels.tolist()]
    names = _texts(pack["names"]) if "names" in pack else [f"{row:06d}" for row in range(count)]
    files = [name if "/" in name else f"{label}/{name}" for name, label in zip(names, classes, strict=True)]
    blobs = [data[start:stop] for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    source: Source
    if "grid" in pack:
        tile = _pair(pack["tile"])
        source = Mosaics(blobs, _pair(pack["grid"]), tile, _pair(pack["crop"]) if "crop" in pack else tile, path.name)
    else:
        source = Encoded(blobs, files)
    return Found(source, files, classes, _texts(pack["split"]) if "split" in pack else None)


def _texts(values: NDArray) -> list[str]:
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values.tolist()]


def _pair(values: NDArray) -> tuple[int, int]:
    first, second = values.tolist()
    return int(first), int(second)


def _flat(lists: Sequence[Sequence[str]]) -> list[str]:
    return [item for one in lists for item in one]
