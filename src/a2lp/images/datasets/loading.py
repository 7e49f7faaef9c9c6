"""``load``: an ``ImageSet`` from a folder or from packs, in any of the common layouts of these datasets."""

from __future__ import annotations

import contextlib
import glob
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from a2lp.arrays import NDArray
from a2lp.checks import shown
from a2lp.errors import A2LPError, A2LPWarning, DatasetError, InputError, UnknownNameError
from a2lp.files import check_file, exists
from a2lp.images.datasets.decode import EXTENSIONS
from a2lp.images.datasets.folders import find_csvs, find_folders
from a2lp.images.datasets.image_set import ImageSet
from a2lp.images.datasets.layouts import ImageTable, layout_error
from a2lp.images.datasets.packs import find_packs
from a2lp.images.datasets.pickles import find_cifar100, find_pickles
from a2lp.images.datasets.shards import SUFFIXES, find_shards
from a2lp.images.datasets.sources import selected
from a2lp.images.datasets.splits import SPLITS, TITLES, Standard, standard

PathLike = str | Path


def load(path: PathLike | Sequence[PathLike], split: str | None = None, *, dataset: str | None = None) -> ImageSet:
    """Find the images of a dataset on disk; they are decoded when they are read.

    An unknown layout raises a DatasetError that shows the expected and the actual tree. Classes of the standard split
    that are missing cause a warning.

    Parameters
    ----------
    path : str, Path or a sequence of them
        A folder in one of the layouts below, or packs: one .npz, several, or a pattern such as ``cub_*.npz``. Or
        shards: tar archives or Parquet tables, one or a pattern.
    split : {"train", "val", "test"}, optional
        All images if not given.
    dataset : str, optional
        mini_imagenet, tiered_imagenet, cub, cub_easyfsl, cifar_fs or fc100. With it, classes and splits are compared
        with the standard ones. Needed to load a split of a folder that has none itself.

    Notes
    -----
    Layouts: class folders, alone or in train, val and test; ``images`` with train.csv, val.csv and test.csv;
    ``CUB_200_2011``; CIFAR-FS as ``data`` and ``splits``; the pickles of miniImageNet, tieredImageNet, CIFAR-FS,
    FC100 and CIFAR-100; packs; and a folder of images, which has no labels. A folder of shards has tar archives of
    images (WebDataset), or Parquet tables with a column of encoded images, and no labels.
    """
    if split is not None and split not in SPLITS:
        raise InputError(f"split={split!r} must be one of {', '.join(SPLITS)}, or left out for all images.")
    known = None if dataset is None else standard(dataset)
    root, name, table = _find(path, split, known)
    rows = _rows(root, table, split, known)
    if not len(rows):
        raise layout_error(root, f"there are no images of the split {split!r}.", known)
    name = name if known is None else known.name
    labels, classes = None, None
    if table.classes is not None:
        classes = tuple(sorted({table.classes[row] for row in rows.tolist()}))
        position = {label: i for i, label in enumerate(classes)}
        labels = np.array([position[table.classes[row]] for row in rows.tolist()], dtype=np.int64)
    files = tuple(table.files[row] for row in rows.tolist())
    return ImageSet(name if split is None else f"{name}_{split}", labels, classes, files, selected(table.source, rows))


def _find(
    path: PathLike | Sequence[PathLike], split: str | None, known: Standard | None
) -> tuple[Path, str, ImageTable]:
    """The folder or file for messages, the name of the set, and its images."""
    shards = _named(path, SUFFIXES)
    if shards:
        table = find_shards(shards)
        if table is None:
            raise DatasetError(f"{shards[0]} has no images ({', '.join(EXTENSIONS)}). Check its content.")
        return shards[0].parent, shards[0].stem if len(shards) == 1 else shards[0].parent.resolve().name, table
    packs = _packs(path)
    if packs:
        table = find_packs(packs, known)
        if table is None:
            raise DatasetError(f"{packs[0]} is no pack: it lacks data, offsets, labels or classes. Make it again.")
        root = packs[0] if len(packs) == 1 else packs[0].parent
        common = os.path.commonprefix([pack.stem for pack in packs])  # noqa: RUF071 of letters, not of folders
        return root, common.rstrip("_") or root.name, table
    root = Path(str(path))
    if not exists(root):
        with contextlib.suppress(UnknownNameError):
            known = known or standard(root.name)
        raise layout_error(root, "there is no such folder.", known)
    if not root.is_dir():
        raise layout_error(root, "it is a file; expected a folder or an .npz pack.", known)
    try:
        table = (
            find_csvs(root, split, known)
            or find_pickles(root, split, known)
            or find_cifar100(root)
            or find_packs(sorted(root.glob("*.npz")), known)
            or find_folders(root, split, known)
            or find_shards(each for each in root.iterdir() if each.suffix in SUFFIXES)
        )
    except A2LPError:
        raise
    except OSError as error:
        raise DatasetError(f"{error.filename} cannot be read: {error.strerror}. Check its permissions.") from error
    if table is None:
        raise layout_error(root, "no images were found.", known)
    return root, root.resolve().name, table


def _named(path: PathLike | Sequence[PathLike], suffixes: Sequence[str]) -> list[Path]:
    """The files that were named, one or by a pattern, if they have these extensions."""
    if not isinstance(path, str | Path) or Path(path).suffix not in suffixes or Path(path).is_dir():
        return []
    if glob.has_magic(str(path)) and not Path(path).exists():
        return sorted(Path(match) for match in glob.glob(str(path)))  # noqa: PTH207 the pattern may be absolute
    return [Path(path)]


def _packs(path: PathLike | Sequence[PathLike]) -> list[Path]:
    """The .npz files that were named, one by one or by a pattern; none for a folder."""
    if not isinstance(path, str | Path):
        paths = [Path(each) for each in path]
    elif glob.has_magic(str(path)) and not Path(path).exists():
        paths = sorted(Path(match) for match in glob.glob(str(path)))  # noqa: PTH207 the pattern may be absolute
        if not paths:
            raise DatasetError(f"no file matches {path}. Give the pattern of some .npz packs, or a folder.")
    elif Path(path).suffix == ".npz":
        paths = [Path(path)]
    else:
        return []
    wrong = [each for each in paths if each.suffix != ".npz"]
    if wrong or not paths:
        name = wrong[0] if wrong else "an empty list"
        raise DatasetError(f"{name} is no .npz file; several paths at once must be packs. Or give one folder.")
    for each in paths:
        check_file(each, "a pack of images (.npz)", error=DatasetError)
    return paths


def _rows(root: Path, table: ImageTable, split: str | None, known: Standard | None) -> NDArray:
    """The rows of a split: the layout's own, or those of the standard class lists if it has none."""
    every = np.arange(len(table.files))
    if table.classes is None:
        if split is None and known is None:
            return every
        raise layout_error(root, "its images lie in no class folders, so their classes are unknown.", known)
    if table.splits is not None:
        if known is not None and table.standard_names:
            split_of = known.split_of()
            for name, there in sorted(set(zip(table.classes, table.splits, strict=True))):
                if split_of.get(name) != there:  # results could not be compared with others
                    right = f"is a {split_of[name]} class" if name in split_of else "is no class"
                    raise layout_error(
                        root,
                        f"class {shown(name)} is in {there[:80]} here and {right} of {known.title}. Leave the dataset "
                        "out to use the splits that are here, or give the folder of its class folders to use the "
                        "standard ones.",
                        known,
                    )
        rows = every if split is None else np.flatnonzero(np.array(table.splits) == split)
    elif known is not None:
        wanted = set(known.split_of()) if split is None else set(known.classes[split])
        rows = np.flatnonzero([name in wanted for name in table.classes])
        if not len(rows):
            example = shown(min(table.classes))
            problem = f"none of its classes (such as {example}) is a {split or ''} class of {known.title}."
            raise layout_error(root, problem, known)
    elif split is None:
        rows = every
    else:
        raise layout_error(
            root,
            f"it has no splits of its own, so which classes are {split!r} is not known. Name the dataset, one of "
            f"{', '.join(TITLES)}, or load it without a split.",
            None,
        )
    if known is not None and split is not None:
        present, expected = {table.classes[row] for row in rows.tolist()}, known.classes[split]
        missing = [name for name in expected if name not in present] if table.standard_names else []
        if missing or len(present) != len(expected):
            which = f": {', '.join(missing[:3])}{', ...' * (len(missing) > 3)} missing" if missing else ""
            warnings.warn(
                f"{root} has {len(present)} of the {len(expected)} {split} classes of {known.title}{which}. Results on "
                "it cannot be compared with others.",
                A2LPWarning,
                stacklevel=3,
            )
    return rows
