"""The pickles that miniImageNet, tieredImageNet, CIFAR-FS, FC100 and CIFAR-100 are passed around as.

They are read by the same restricted reader as pickled features, so nothing in them is run.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.errors import DatasetError, InputError
from a2lp.features.unpickle import PickledArray, RestrictedUnpickler
from a2lp.images.datasets.found import Found, layout_error
from a2lp.images.datasets.sources import Arrays, Encoded, Source, joined
from a2lp.images.datasets.splits import SPLITS, Standard, standard

NDArray = np.ndarray[Any, Any]

_LONG = 1 << 12


@dataclass(frozen=True)
class _Family:
    """Files of one dataset, in lower case: ``{}`` stands for the split."""

    dataset: str
    images: str
    labels: str | None = None
    train: str = "train"

    def files(self, root: Path) -> dict[str, tuple[Path, Path | None]]:
        """The file of images, and that of labels, of each split that is there."""
        there = {entry.name.lower(): entry for entry in root.iterdir()} if root.is_dir() else {}
        found = {}
        for split in SPLITS:
            name = self.train if split == "train" else split
            images, labels = self.images.format(name), (self.labels or self.images).format(name)
            if images in there and labels in there:
                found[split] = (there[images], there[labels] if self.labels else None)
        return found


_FAMILIES = (
    _Family("mini_imagenet", "mini-imagenet-cache-{}.pkl"),
    _Family("mini_imagenet", "miniimagenet_category_split_{}.pickle", train="train_phase_train"),
    _Family("tiered_imagenet", "{}_images_png.pkl", "{}_labels.pkl"),
    _Family("cifar_fs", "cifar_fs_{}.pickle"),
    _Family("fc100", "fc100_{}.pickle"),
)


@dataclass(frozen=True)
class _Part:
    """One pickle: where its pixels come from, and the class and key of each image."""

    source: Source
    classes: list[str]
    files: list[str]
    standard_names: bool


def find_pickles(root: Path, split: str | None, wanted: Standard | None) -> Found | None:
    """Read the pickles of a folder, those of one split where it is named."""
    for family in _FAMILIES:
        files = family.files(root)
        if not files or (wanted is not None and wanted.name != family.dataset):
            continue
        if split is not None and split not in files:
            there = ", ".join(images.name for images, _ in files.values())
            raise layout_error(root, f"there is {there}, but nothing of the split {split!r}.", standard(family.dataset))
        names = list(files) if split is None else [split]
        parts = []
        for name in names:
            with _reading(files[name][0]):
                parts.append(_pickled(*files[name], name, standard(family.dataset)))
        return _found(parts, [name for name, part in zip(names, parts, strict=True) for _ in part.files])
    return None


def find_cifar100(root: Path) -> Found | None:
    """Read ``cifar-100-python``: train and test of the authors together, 600 images for each fine class."""
    for folder in (root, root / "cifar-100-python"):
        paths = [folder / name for name in ("train", "test")]
        if all(path.is_file() for path in (*paths, folder / "meta")):
            with _reading(folder):
                names = [str(name) for name in _dict(folder / "meta", ("fine_label_names",))["fine_label_names"]]
                return _found([_cifar100(path, names) for path in paths], None)
    return None


def _found(parts: list[_Part], splits: list[str] | None) -> Found:
    return Found(
        joined([part.source for part in parts], [len(part.files) for part in parts]),
        [file for part in parts for file in part.files],
        [name for part in parts for name in part.classes],
        splits,
        all(part.standard_names for part in parts),
    )


def _cifar100(path: Path, names: list[str]) -> _Part:
    content = _dict(path, ("data", "fine_labels", "filenames"))
    flat = _array(path, content["data"], "data")
    if flat.ndim != 2 or flat.shape[1] != 3 * 32 * 32:
        raise DatasetError(f"{path}: `data` has shape {flat.shape}; expected (N, 3072): three planes of 32 x 32.")
    images = flat.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    labels = _labels(path, content["fine_labels"], len(images), len(names))
    classes = [names[label] for label in labels.tolist()]
    files = [f"{path.name}/{label}/{file}" for label, file in zip(classes, content["filenames"], strict=True)]
    return _Part(Arrays(images), classes, files, True)


def _pickled(images: Path, labels: Path | None, split: str, known: Standard) -> _Part:
    if labels is not None:
        return _encoded(images, labels, split, known)
    content = _dict(images, ())
    if {"image_data", "class_dict"} <= content.keys():
        pixels = _images(images, content["image_data"], "image_data")
        return _part(images, Arrays(pixels), _from_class_dict(images, content["class_dict"], len(pixels)), True)
    if {"data", "labels"} <= content.keys():
        pixels = _images(images, content["data"], "data")
        numbers = _labels(images, content["labels"], len(pixels))
        classes, standard_names = _names(numbers, content.get("catname2label"), split, known)
        return _part(images, Arrays(pixels), classes, standard_names)
    raise DatasetError(
        f"{images} holds {', '.join(map(str, content)) or 'nothing'}; expected image_data and class_dict, or data and "
        "labels. Fetch it again."
    )


def _encoded(images: Path, labels: Path, split: str, known: Standard) -> _Part:
    """tieredImageNet: a list of PNG files, and the names of the classes in words."""
    blobs = _load(images)
    if not isinstance(blobs, list) or not blobs:
        raise DatasetError(f"{images}: expected a list of encoded images, found {type(blobs).__name__}.")
    arrays = [_array(images, blob, f"image {row}") for row, blob in enumerate(blobs)]
    content = _dict(labels, ("label_specific",))
    words = [str(word) for word in content.get("label_specific_str", ())]
    numbers = _labels(labels, content["label_specific"], len(arrays), len(words) or None)
    wnid_of = {known.names[name]: name for name in known.classes[split] if name in known.names}
    classes, standard_names = _names(numbers, {wnid_of.get(w, w): n for n, w in enumerate(words)}, split, known)
    files = _files(images, classes)
    return _Part(Encoded(arrays, files), classes, files, standard_names)


def _part(path: Path, source: Source, classes: list[str], standard_names: bool) -> _Part:
    return _Part(source, classes, _files(path, classes), standard_names)


def _files(path: Path, classes: list[str]) -> list[str]:
    return [f"{path.name}/{name}/{row:06d}" for row, name in enumerate(classes)]


def _names(numbers: NDArray, number_of: Any, split: str, known: Standard) -> tuple[list[str], bool]:
    """The class name of each number, and whether these are names of the standard split."""
    every = sorted(known.split_of())
    if isinstance(number_of, Mapping) and set(numbers.tolist()) <= set(number_of.values()):
        name_of = {int(number): _text(name) for name, number in number_of.items()}
    elif known.name in {"cifar_fs", "fc100"} and {every[n] for n in set(numbers.tolist()) if n < len(every)} == set(
        known.classes[split]
    ):
        name_of = dict(enumerate(every))  # the numbers of CIFAR-100, whose classes are sorted
    else:
        name_of = {n: f"{split}_{n:03d}" for n in set(numbers.tolist())}
    names = [name_of[n] for n in numbers.tolist()]
    return names, set(names) <= set(known.classes[split])


def _from_class_dict(path: Path, rows_of: Any, count: int) -> list[str]:
    classes: list[str | None] = [None] * count
    for name, rows in rows_of.items():
        for row in _value(rows):
            if not 0 <= row < count or classes[row] is not None:
                raise DatasetError(f"{path}: image {row} of class {name!r} does not exist or has another class too.")
            classes[row] = _text(name)
    if None in classes:
        raise DatasetError(f"{path}: image {classes.index(None)} is in no class of class_dict. Fetch it again.")
    return [str(name) for name in classes]


def _images(path: Path, value: Any, what: str) -> NDArray:
    images = _array(path, value, what)
    if images.ndim != 4 or images.shape[3] != 3:
        raise DatasetError(f"{path}: `{what}` has shape {images.shape}; expected (N, height, width, 3).")
    return images


def _array(path: Path, value: Any, what: str) -> NDArray:
    array = _value(value)
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.size == 0:
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise DatasetError(f"{path}: `{what}` is {kind}; expected an array of bytes (uint8). Fetch it again.")
    return array


def _labels(path: Path, value: Any, count: int, classes: int | None = None) -> NDArray:
    labels = np.asarray(_value(value))
    if labels.shape != (count,) or labels.dtype.kind not in "iu":
        raise DatasetError(
            f"{path}: its labels have shape {labels.shape} and dtype {labels.dtype}; expected {count} integers."
        )
    if labels.min() < 0 or (classes is not None and labels.max() >= classes):
        raise DatasetError(f"{path}: its labels go from {labels.min()} to {labels.max()}; there are {classes} classes.")
    return labels.astype(np.int64)


def _value(value: Any) -> Any:
    return value.array if isinstance(value, PickledArray) else value


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _dict(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    content = _load(path)
    if not isinstance(content, dict):
        raise DatasetError(f"{path}: expected a pickled dict, found {type(content).__name__}. Fetch it again.")
    named = {_text(key): value for key, value in content.items()}
    missing = [key for key in keys if key not in named]
    if missing:
        raise DatasetError(f"{path} holds {', '.join(named) or 'nothing'}; {', '.join(missing)} is missing.")
    return named


class _Mapped:
    """A file in memory's place: long reads are views of it, so the images stay on disk until they are read."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content, self.view, self.at = content, memoryview(content), 0

    def read(self, size: int) -> Any:
        piece = self.view[self.at : self.at + size]
        self.at += len(piece)
        return piece if size >= _LONG else bytes(piece)

    def readline(self) -> bytes:
        end = self.content.find(b"\n", self.at) + 1 or len(self.content)
        line = bytes(self.view[self.at : end])
        self.at = end
        return line


class _ImageUnpickler(RestrictedUnpickler):
    def _decode_string(self, value: bytes | memoryview) -> str | memoryview:
        # Python 2 wrote the bytes of an array as a string; text is never that long
        return value if isinstance(value, memoryview) else value.decode("latin1")


def _load(path: Path) -> Any:
    with _reading(path), path.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _ImageUnpickler(_Mapped(content), encoding="latin1").load()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise DatasetError(f"{path}: {error}") from error
    except DatasetError:
        raise
    except Exception as error:  # EOFError, struct.error, TypeError, ...: whatever a damaged pickle leads to
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DatasetError(f"{path} cannot be read as a pickle of images ({reason}). Fetch it again.") from error
