"""Layouts of datasets on disk: the images that are read from one, and the error that shows the known layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from a2lp.errors import DatasetError
from a2lp.images.datasets.sources import Source, joined
from a2lp.images.datasets.splits import Standard


@dataclass(frozen=True)
class ImageTable:
    """The images of a dataset as its layout on disk gives them, one to a row.

    Attributes
    ----------
    source : Source
        Their pixels.
    files : sequence of str
        Their keys.
    classes : sequence of str or None
        The class name of each.
    splits : sequence of str or None
        The split of each, where the layout has splits.
    standard_names : bool
        Whether classes are named as the standard splits name them, so that the two can be compared.
    """

    source: Source
    files: Sequence[str]
    classes: Sequence[str] | None
    splits: Sequence[str] | None = None
    standard_names: bool = True


def join(tables: Sequence[ImageTable], splits: Sequence[str] | None) -> ImageTable:
    """Several tables one after the other, with these splits."""
    return ImageTable(
        joined([table.source for table in tables], [len(table.files) for table in tables]),
        [file for table in tables for file in table.files],
        [name for table in tables for name in table.classes or ()],
        splits,
        all(table.standard_names for table in tables),
    )


_CIFAR = (
    "data/apple/*.png, data/aquarium_fish/*.png, ...",
    "train, test, meta                       the pickles of cifar-100-python",
)


def _class_folders(train: str, val: str, test: str) -> str:
    return f"train/{train}/*.jpg, ...\nval/{val}/*.jpg, ...\ntest/{test}/*.jpg, ..."


_PACKS = "*.npz                                   packs: data, offsets, labels, classes, names, split"

TREES: dict[str, tuple[str, ...]] = {
    "mini_imagenet": (
        "images/n0153282900000005.jpg, ...\ntrain.csv, val.csv, test.csv            columns filename,label",
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
    "cub": (
        "CUB_200_2011/images/001.Black_footed_Albatross/*.jpg, ...",
        "001.Black_footed_Albatross/*.jpg, ...",
        _PACKS,
    ),
    "cifar_fs": (
        f"{_CIFAR[0]}\nsplits/bertinetto/{{train,val,test}}.txt",
        "CIFAR_FS_{train,val,test}.pickle",
        _CIFAR[1],
        _class_folders("apple", "beaver", "baby"),
        _PACKS,
    ),
    "fc100": (_CIFAR[0], "FC100_{train,val,test}.pickle", _CIFAR[1], _class_folders("apple", "bear", "baby"), _PACKS),
}
TREES["cub_easyfsl"] = TREES["cub"]
ANY = (
    "CLASS/*.jpg, ...                        a folder for each class",
    _class_folders("CLASS", "CLASS", "CLASS"),
    "*.jpg, ...                              images without labels",
    "images/*.jpg, ...\ntrain.csv, val.csv, test.csv            columns filename,label",
    _PACKS,
)


def layout_error(root: Path, problem: str, standard: Standard | None) -> DatasetError:
    """The error for a folder that is not laid out as expected; its message shows both trees."""
    title = "images" if standard is None else standard.title
    trees = ANY if standard is None else TREES[standard.name]
    expected = "\n  or\n".join("\n".join(f"    {line}" for line in tree.splitlines()) for tree in trees)
    known = f" Or name one of the datasets {', '.join(TREES)}, which are also read from their pickles."
    return DatasetError(
        f"{root}: {problem}\nExpected for {title}:\n{expected}\nFound:\n{listing(root)}\n"
        f"Give the folder that holds these.{known if standard is None else ''}"
    )


def listing(root: Path, most: int = 10) -> str:
    """The first entries of a folder, and the first of each folder in it."""
    if not root.is_dir():
        return f"    {'a file' if root.exists() else 'nothing of that name'}"
    names = _names(root)
    lines = []
    for name in names[:most]:
        if name.endswith("/"):
            inside = _names(root / name)
            name += f"  ({len(inside)} inside: {', '.join(inside[:3])}{', ...' * (len(inside) > 3)})"
        lines.append(f"    {name}")
    if len(names) > most:
        lines.append(f"    and {len(names) - most} more")
    return "\n".join(lines) or "    an empty folder"


def _names(folder: Path) -> list[str]:
    """The entries of a folder, folders with a slash; none where it cannot be read."""
    try:
        return sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError:
        return []
