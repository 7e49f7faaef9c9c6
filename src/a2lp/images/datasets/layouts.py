"""Layouts of datasets on disk: the images that are read from one, and the error that shows the known layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from a2lp.errors import DatasetError
from a2lp.images.datasets.sources import Rows, Source
from a2lp.images.datasets.splits import Standard


@dataclass(frozen=True)
class ImageTable:
    """The images of a dataset as its layout on disk gives them, one to a row."""

    source: Source
    files: Sequence[str]  # the key of each image
    classes: Sequence[str] | None  # the class name of each
    splits: Sequence[str] | None = None  # the split of each, where the layout has splits
    standard_names: bool = True  # whether classes have the names of the standard splits, so that both can be compared


def join(tables: Sequence[ImageTable], splits: Sequence[str] | None) -> ImageTable:
    """Several tables one after the other, with these splits."""
    sizes = [len(table.files) for table in tables]
    part, inner = np.repeat(np.arange(len(tables)), sizes), np.concatenate([np.arange(size) for size in sizes])
    return ImageTable(
        Rows(tuple(table.source for table in tables), part, inner),
        [file for table in tables for file in table.files],
        [name for table in tables for name in table.classes or ()],
        splits,
        all(table.standard_names for table in tables),
    )


def _class_folders(train: str, val: str, test: str) -> str:
    return f"train/{train}/*.jpg, ...\nval/{val}/*.jpg, ...\ntest/{test}/*.jpg, ..."


_CIFAR = "data/apple/*.png, data/aquarium_fish/*.png, ..."
_PICKLES = "train, test, meta                       the pickles of cifar-100-python"
_TABLES = "train.csv, val.csv, test.csv            columns filename,label"
_PACKS = "*.npz                                   packs: data, offsets, labels, classes, names, split"
_CUB_FOLDERS = "001.Black_footed_Albatross/*.jpg, ..."

TREES: dict[str, tuple[str, ...]] = {
    "mini_imagenet": (
        f"images/n0153282900000005.jpg, ...\n{_TABLES}",
        _class_folders("n01532829", "n01855672", "n01930112"),
        "mini-imagenet-cache-{train,val,test}.pkl",
        "miniImageNet_category_split_{train_phase_train,val,test}.pickle",
        _PACKS,
    ),
    "tiered_imagenet": (
        "{train,val,test}_images_png.pkl\n{train,val,test}_labels.pkl",
        _class_folders("n01530575", "n02099267", "n03314780"),
        "n01530575/*.JPEG, ...                   ImageNet's own training folders",
        _PACKS,
    ),
    "cub": (f"CUB_200_2011/images/{_CUB_FOLDERS}", _CUB_FOLDERS, _PACKS),
    "cifar_fs": (
        f"{_CIFAR}\nsplits/bertinetto/{{train,val,test}}.txt",
        "CIFAR_FS_{train,val,test}.pickle",
        _PICKLES,
        _class_folders("apple", "beaver", "baby"),
        _PACKS,
    ),
    "fc100": (_CIFAR, "FC100_{train,val,test}.pickle", _PICKLES, _class_folders("apple", "bear", "baby"), _PACKS),
}
TREES["cub_easyfsl"] = TREES["cub"]
ANY = (
    "CLASS/*.jpg, ...                        a folder for each class",
    _class_folders("CLASS", "CLASS", "CLASS"),
    "*.jpg, ...                              images without labels",
    f"images/*.jpg, ...\n{_TABLES}",
    _PACKS,
    "*.tar or *.parquet                      shards of images without labels",
)


def layout_error(root: Path, problem: str, standard: Standard | None) -> DatasetError:
    """The error for a folder that is not laid out as expected; its message shows the expected and the actual tree."""
    title = "images" if standard is None else standard.title
    trees = ANY if standard is None else TREES[standard.name]
    expected = "\n  or\n".join("\n".join(f"    {line}" for line in tree.splitlines()) for tree in trees)
    names = f" Or name one of the datasets {', '.join(TREES)}, which are also read from their pickles."
    return DatasetError(
        f"{root}: {problem}\nExpected for {title}:\n{expected}\nFound:\n{_tree(root)}\n"
        f"Give the folder that holds these.{names if standard is None else ''}"
    )


def _tree(root: Path) -> str:
    """The first ten entries of a folder, and the first three of each folder in it."""
    if not root.is_dir():
        return f"    {'a file' if root.exists() else 'nothing of that name'}"
    names = _names(root)
    lines = []
    for name in names[:10]:
        if name.endswith("/"):
            inside = _names(root / name)
            name += f"  ({len(inside)} inside: {', '.join(inside[:3])}{', ...' * (len(inside) > 3)})"
        lines.append(f"    {name}")
    if len(names) > 10:
        lines.append(f"    and {len(names) - 10} more")
    return "\n".join(lines) or "    an empty folder"


def _names(folder: Path) -> list[str]:
    """The entries of a folder, folders with a slash; none if it cannot be read."""
    try:
        return sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError:
        return []
