"""Images in folders: a folder for each class, with or without train, val and test above; or no classes at all."""

from __future__ import annotations

import os
from pathlib import Path

from a2lp.errors import DatasetError
from a2lp.images.datasets.decode import EXTENSIONS
from a2lp.images.datasets.found import Found, layout_error
from a2lp.images.datasets.sources import Files
from a2lp.images.datasets.splits import SPLITS, Standard

# where the archives of CUB and CIFAR-FS keep their class folders
_INSIDE = ("CUB_200_2011", "cifar100", "images", "data")


def find_folders(root: Path, split: str | None, standard: Standard | None) -> Found | None:
    """Read class folders, or a folder of images; None where there is no image."""
    if not root.is_dir():
        return None
    top = _class_root(root, standard)
    paths, skipped = image_files(root, top / split if split and _has_folders(top / split) else top)
    if not paths:
        return None
    above = len(top.relative_to(root).parts)
    parts = [path.split("/")[above:] for path in paths]
    flat = sum(len(part) == 1 for part in parts)
    apart = sum(len(part) > 2 and part[0] in SPLITS for part in parts)
    for count, what in ((flat, "lie beside"), (apart, "lie in train, val or test beside other")):
        if 0 < count < len(parts):
            raise layout_error(
                root, f"{count} images {what} folders with images, so it is not clear what the classes are.", standard
            )
    source = Files(root, paths)
    if flat:
        return Found(source, paths, None, skipped=skipped)
    if apart:
        return Found(source, paths, [part[1] for part in parts], [part[0] for part in parts], skipped=skipped)
    classes = [part[0] for part in parts]
    return Found(source, paths, classes, _listed_splits(root, top, classes, standard), skipped=skipped)


def image_files(root: Path, folder: Path) -> tuple[list[str], int]:
    """The images under a folder, as sorted paths under ``root``, and how many other files were skipped.

    Links are followed, but never into a folder that they lie in.
    """
    found: list[str] = []
    skipped = 0

    def walk(directory: Path, above: frozenset[str]) -> None:
        nonlocal skipped
        real = os.path.realpath(directory)
        if real in above:
            return
        with os.scandir(directory) as entries:
            here = list(entries)
        for entry in here:
            if entry.name.startswith("."):
                skipped += 1
            elif entry.is_dir():
                walk(Path(entry.path), above | {real})
            elif _is_image(entry):
                found.append(_key(root, entry.path))
            else:
                skipped += 1

    walk(folder, frozenset())
    return sorted(found, key=lambda path: path.split("/")), skipped


def _is_image(entry: os.DirEntry[str]) -> bool:
    return "." + entry.name.rpartition(".")[2].lower() in EXTENSIONS and entry.is_file()


def _key(root: Path, path: str) -> str:
    key = Path(path).relative_to(root).as_posix()
    try:
        key.encode()
    except UnicodeError:
        raise DatasetError(f"the file {path!r} has a name that is not UTF-8. Rename it.") from None
    return key


def _class_root(root: Path, standard: Standard | None) -> Path:
    """Step into ``CUB_200_2011/images`` and the like, where that is all there is or the dataset says so."""
    top = root
    for name in _INSIDE:
        if (top / name).is_dir() and (standard is not None or not _images_beside(top, name)):
            top /= name
    return top


def _has_folders(folder: Path) -> bool:
    """Whether ``train`` holds classes; CIFAR-100 has a class of that name, which holds images."""
    return folder.is_dir() and any(entry.is_dir() for entry in _entries(folder))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if not entry.name.startswith(".")]


def _images_beside(top: Path, name: str) -> bool:
    beside = [entry for entry in _entries(top) if entry.name != name]
    return any(_is_image(entry) or (entry.is_dir() and image_files(top, Path(entry.path))[0]) for entry in beside)


def _listed_splits(root: Path, top: Path, classes: list[str], standard: Standard | None) -> list[str] | None:
    """CIFAR-FS: the splits of ``splits/bertinetto/*.txt``, which lie beside ``data``."""
    folder = top.parent / "splits" / "bertinetto"
    if top == root or not folder.is_dir() or (standard is not None and standard.name != "cifar_fs"):
        return None
    split_of = {
        name: split
        for split in SPLITS
        if (folder / f"{split}.txt").is_file()
        for name in (folder / f"{split}.txt").read_text("utf-8").split()
    }
    unknown = sorted(set(classes) - set(split_of))
    if unknown:
        raise DatasetError(
            f"{folder}: its lists do not name the class folder {unknown[0]!r} of {top}. Complete them, or remove it."
        )
    return [split_of[name] for name in classes]
