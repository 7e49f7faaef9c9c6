"""The pickles of miniImageNet, tieredImageNet, CIFAR-FS, FC100 and CIFAR-100, read without running code in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.arrays import NDArray
from a2lp.checks import listed, shown
from a2lp.errors import DatasetError, InputError
from a2lp.features.unpickle import PickledArray, describe, load_pickle
from a2lp.files import reading
from a2lp.images.datasets.layouts import ImageTable, join, layout_error
from a2lp.images.datasets.sources import Arrays, Encoded
from a2lp.images.datasets.splits import SPLITS, Standard, standard

_EXPECTED = "a pickle of images"
# datasets with the files of a split, in lower case: images with labels, or one file of each
_FILES: tuple[tuple[str, ...], ...] = (
    ("mini_imagenet", "mini-imagenet-cache-{}.pkl"),
    ("mini_imagenet", "miniimagenet_category_split_{}.pickle"),
    ("tiered_imagenet", "{}_images_png.pkl", "{}_labels.pkl"),
    ("cifar_fs", "cifar_fs_{}.pickle"),
    ("fc100", "fc100_{}.pickle"),
)


def find_pickles(root: Path, split: str | None, wanted: Standard | None) -> ImageTable | None:
    """Read the pickles of a folder, or of one split."""
    present = {entry.name.lower(): entry for entry in root.iterdir()}
    for dataset, *patterns in _FILES:
        files: dict[str, list[Path]] = {}
        for name in SPLITS:
            part = "train_phase_train" if name == "train" and "category_split" in patterns[0] else name
            names = [pattern.format(part) for pattern in patterns]
            if present.keys() >= set(names):
                files[name] = [present[file] for file in names]
        if not files or (wanted is not None and wanted.name != dataset):
            continue
        known = standard(dataset)
        if split is not None and split not in files:
            found = ", ".join(paths[0].name for paths in files.values())
            raise layout_error(root, f"there is {found}, but nothing of the split {split!r}.", known)
        tables = {name: _read(name, known, *files[name]) for name in ([split] if split else files)}
        return join(list(tables.values()), [name for name, table in tables.items() for _ in table.files])
    return None


def find_cifar100(root: Path) -> ImageTable | None:
    """Read ``cifar-100-python``: train and test of the authors together, 600 images for each fine class."""
    for folder in (root, root / "cifar-100-python"):
        paths = [folder / name for name in ("train", "test")]
        if all(path.is_file() for path in (*paths, folder / "meta")):
            with reading(folder / "meta", _EXPECTED, error=DatasetError):
                names = _texts(_load_dict(folder / "meta", ("fine_label_names",))["fine_label_names"])
            return join([_cifar100(path, names) for path in paths], None)
    return None


def _cifar100(path: Path, names: list[str]) -> ImageTable:
    with reading(path, _EXPECTED, error=DatasetError):
        content = _load_dict(path, ("data", "fine_labels", "filenames"))
        flat = _bytes(content["data"], "data")
        if flat.ndim != 2 or flat.shape[1] != 3 * 32 * 32:
            raise InputError(f"`data` has shape {flat.shape}; expected (N, 3072): three planes of 32 x 32.")
        images = flat.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = _labels(content["fine_labels"], len(images), len(names))
        classes = [names[label] for label in labels.tolist()]
        filenames = _texts(content["filenames"])
        files = [f"{path.name}/{label}/{file}" for label, file in zip(classes, filenames, strict=True)]
        return ImageTable(Arrays(images), files, classes)


def _read(split: str, known: Standard, images: Path, labels: Path | None = None) -> ImageTable:
    if labels is not None:
        return _encoded(split, known, images, labels)
    with reading(images, _EXPECTED, error=DatasetError):
        content = _load_dict(images, ())
        key = "image_data" if {"image_data", "class_dict"} <= content.keys() else "data"
        if key == "data" and not {"data", "labels"} <= content.keys():
            raise InputError(f"it holds {listed(content)}; expected image_data and class_dict, or data and labels.")
        pixels = _bytes(content[key], key)
        if pixels.ndim != 4 or pixels.shape[3] != 3:
            raise InputError(f"`{key}` has shape {pixels.shape}; expected (N, height, width, 3).")
        if key == "data":
            numbers = _labels(content["labels"], len(pixels))
            classes, standard_names = _class_names(numbers, content.get("catname2label"), split, known)
        else:
            classes, standard_names = _from_class_dict(content["class_dict"], len(pixels)), True
        files = [f"{images.name}/{name}/{row:06d}" for row, name in enumerate(classes)]
        return ImageTable(Arrays(pixels), files, classes, standard_names=standard_names)


def _encoded(split: str, known: Standard, images: Path, labels: Path) -> ImageTable:
    """tieredImageNet: a list of PNG files, and the names of the classes in words."""
    with reading(images, _EXPECTED, error=DatasetError):
        blobs = load_pickle(images, _EXPECTED, DatasetError)
        if not isinstance(blobs, list) or not blobs:
            raise InputError(f"expected a list of encoded images, found {describe(blobs)}.")
        arrays = [_bytes(blob, f"image {row}") for row, blob in enumerate(blobs)]
    with reading(labels, _EXPECTED, error=DatasetError):
        content = _load_dict(labels, ("label_specific",))
        words = _texts(content.get("label_specific_str", ()))
        numbers = _labels(content["label_specific"], len(arrays), len(words) or None)
        wnid_of = {known.names[name]: name for name in known.classes[split] if name in known.names}
        number_of = {wnid_of.get(word, word): number for number, word in enumerate(words)}
        classes, standard_names = _class_names(numbers, number_of, split, known)
    files = [f"{images.name}/{name}/{row:06d}" for row, name in enumerate(classes)]
    return ImageTable(Encoded(arrays, files), files, classes, standard_names=standard_names)


def _class_names(numbers: NDArray, number_of: Any, split: str, known: Standard) -> tuple[list[str], bool]:
    """The class name of each number, and whether these are names of the standard split."""
    every, classes = sorted(known.split_of()), set(known.classes[split])
    present = set(numbers.tolist())
    name_of: dict[int, str] = {}
    if isinstance(number_of, dict) and all(isinstance(number, int | np.integer) for number in number_of.values()):
        name_of = dict(zip(map(int, number_of.values()), _texts(list(number_of)), strict=True))
    if not present <= name_of.keys():
        # the numbers of CIFAR-100, whose classes are sorted
        if known.name in {"cifar_fs", "fc100"} and {every[n] for n in present if n < len(every)} == classes:
            name_of = dict(enumerate(every))
        else:
            name_of = {n: f"{split}_{n:03d}" for n in present}
    names = [name_of[n] for n in numbers.tolist()]
    return names, set(names) <= classes


def _from_class_dict(rows_of: Any, count: int) -> list[str]:
    if not isinstance(rows_of, dict):
        raise InputError(f"`class_dict` is {describe(rows_of)}; expected a dict from classes to rows.")
    classes: list[str | None] = [None] * count
    for name, rows in zip(_texts(list(rows_of)), rows_of.values(), strict=True):
        for row in _numbers(rows).tolist():
            if not 0 <= row < count or classes[row] is not None:
                raise InputError(f"image {row} of class {shown(name)} does not exist or has another class too.")
            classes[row] = name
    if None in classes:
        raise InputError(f"image {classes.index(None)} is in no class of class_dict. Fetch it again.")
    return [str(name) for name in classes]


def _bytes(value: Any, what: str) -> NDArray:
    array = value.array if isinstance(value, PickledArray) else value
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.size == 0:
        kind = array.dtype if isinstance(array, np.ndarray) else describe(array)
        raise InputError(f"`{what}` is {kind}; expected an array of bytes (uint8). Fetch it again.")
    return array


def _numbers(value: Any) -> NDArray:
    """Whole numbers from an array or a list, one axis."""
    array = value.array if isinstance(value, PickledArray) else value
    if isinstance(array, list | tuple) and all(isinstance(one, int | np.integer) for one in array):
        array = np.array(array, dtype=np.int64)
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"it has {describe(value)} in the place of a list of whole numbers. Fetch it again.")
    return array.astype(np.int64)


def _labels(value: Any, count: int, classes: int | None = None) -> NDArray:
    labels = _numbers(value)
    if len(labels) != count:
        raise InputError(f"it has {len(labels)} labels; expected {count} integers, one for each image.")
    if labels.min() < 0 or (classes is not None and labels.max() >= classes):
        raise InputError(f"its labels go from {labels.min()} to {labels.max()}; there are {classes} classes.")
    return labels


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str | bytes) for value in values):
        raise InputError(f"it has {describe(values)} in the place of a list of names. Fetch it again.")
    return [value.decode() if isinstance(value, bytes) else value for value in values]


def _load_dict(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    content = load_pickle(path, _EXPECTED, DatasetError)
    if not isinstance(content, dict):
        raise InputError(f"expected a pickled dict, found {describe(content)}. Fetch it again.")
    named = dict(zip(_texts(list(content)), content.values(), strict=True))
    missing = [key for key in keys if key not in named]
    if missing:
        raise InputError(f"it holds {listed(named)}; {', '.join(missing)} is missing.")
    return named
