"""Images in folders: a folder for each class, with or without train, val and test above; or no classes at all."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from a2lp.errors import A2LPWarning, DatasetError
from a2lp.images.datasets.decode import EXTENSIONS, UNREAD
from a2lp.images.datasets.found import Found, layout_error
from a2lp.images.datasets.sources import Files
from a2lp.images.datasets.splits import SPLITS, Standard

# where the archives of CUB and CIFAR-FS keep their class folders
_INSIDE = ("CUB_200_2011", "cifar100", "images", "data")


class Listing(NamedTuple):
    """What lies under a folder.

    Attributes
    ----------
    images : list of str
        Sorted paths under the root that was given.
    others : Counter
        How many other files, by extension; hidden ones do not count.
    """

    images: list[str]
    others: Counter[str]

    def warn_of_unread(self, folder: Path) -> None:
        """Say so where pictures are among the others: nobody expects them to be left out."""
        unread = {kind: count for kind, count in sorted(self.others.items()) if kind in UNREAD}
        if unread:
            warnings.warn(
                f"{sum(unread.values())} pictures in {folder} are of kinds that are not read and were passed over: "
                f"{', '.join(f'{count} {kind}' for kind, count in unread.items())}. Convert them to JPEG or PNG.",
                A2LPWarning,
                stacklevel=2,
            )


def find_folders(root: Path, split: str | None, standard: Standard | None) -> Found | None:
    """Read class folders, or a folder of images; None where there is no image."""
    if not root.is_dir():
        return None
    top = _class_root(root, standard)
    listing = image_files(root, top / split if split and _has_folders(top / split) else top)
    paths = listing.images
    if not paths:
        return None
    listing.warn_of_unread(root)
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
        return Found(source, paths, None)
    if apart:
        return Found(source, paths, [part[1] for part in parts], [part[0] for part in parts])
    classes = [part[0] for part in parts]
    return Found(source, paths, classes, _listed_splits(root, top, classes, standard))


def image_files(root: Path, folder: Path) -> Listing:
    """What lies under a folder; links are followed, but never into a folder that they lie in."""
    found = Listing([], Counter())

    def walk(directory: Path, above: frozenset[str]) -> None:
        real = os.path.realpath(directory)
        if real in above:
            return
        with os.scandir(directory) as entries:
            here = [entry for entry in entries if not entry.name.startswith(".")]
        for entry in here:
            if entry.is_dir():
                walk(Path(entry.path), above | {real})
            elif _is_image(entry):
                found.images.append(_key(root, entry.path))
            else:
                found.others[Path(entry.name).suffix.lower()] += 1

    walk(folder, frozenset())
    found.images.sort(key=lambda path: path.split("/"))
    return found


def _is_image(entry: os.DirEntry[str]) -> bool:
    """Whether it is called an image; a link to nowhere is, so that it is named when it cannot be read."""
    there = entry.is_file() or (entry.is_symlink() and not Path(entry.path).exists())
    return there and "." + entry.name.rpartition(".")[2].lower() in EXTENSIONS


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
    return any(_is_image(entry) or (entry.is_dir() and image_files(top, Path(entry.path)).images) for entry in beside)


def _listed_splits(root: Path, top: Path, classes: list[str], standard: Standard | None) -> list[str] | None:
    """CIFAR-FS: the splits of ``splits/bertinetto/*.txt``, which lie beside ``data``."""
    folder = top.parent / "splits" / "bertinetto"
    if top == root or not folder.is_dir() or (standard is not None and standard.name != "cifar_fs"):
        return None
    lists = {split: folder / f"{split}.txt" for split in SPLITS}
    split_of = {name: split for split, path in lists.items() if path.is_file() for name in _words(path)}
    unknown = sorted(set(classes) - set(split_of))
    if unknown:
        raise DatasetError(
            f"{folder}: its lists do not name the class folder {unknown[0]!r} of {top}. Complete them, or remove it."
        )
    return [split_of[name] for name in classes]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").split()
    except (OSError, UnicodeError) as error:
        raise DatasetError(f"{path} cannot be read as a list of class names ({error}). Fetch it again.") from error
