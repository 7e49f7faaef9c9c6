"""Images in files: in folders of classes, in one folder without classes, or listed in the csv files of splits."""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections import Counter, deque
from pathlib import Path
from typing import NamedTuple

from a2lp.checks import counted, listed, shown
from a2lp.errors import A2LPWarning, DatasetError
from a2lp.files import check_file, read_text
from a2lp.images.datasets.decode import EXTENSIONS, UNREAD
from a2lp.images.datasets.layouts import ImageTable, layout_error
from a2lp.images.datasets.sources import Files
from a2lp.images.datasets.splits import SPLITS, Standard

# parents of the class folders in the archives of CUB and CIFAR-FS
_PARENTS = ("CUB_200_2011", "cifar100", "images", "data")
_TABLE = "a table with the columns filename,label (UTF-8 .csv)"


class Listing(NamedTuple):
    """The files under a folder."""

    images: list[str]  # sorted paths under the root that was given
    others: Counter[str]  # how many other files, by extension; hidden ones do not count
    repeated: list[str]  # links to folders that were listed already, which are not listed again

    def warn_of_unread(self, folder: Path) -> None:
        """Warn of images that were left out: in formats that are not read, or in folders that were listed already."""
        unread = {extension: count for extension, count in sorted(self.others.items()) if extension in UNREAD}
        left_out = []
        if unread:
            counts = ", ".join(f"{count} {extension}" for extension, count in unread.items())
            left_out.append(
                f"{folder}: {counted(sum(unread.values()), 'picture')} of a kind that is not read, left out: {counts}. "
                "Convert to JPEG or PNG."
            )
        if self.repeated:
            left_out.append(
                f"{folder}: {counted(len(self.repeated), 'link')} to folders that are listed already, left out: "
                f"{listed(self.repeated, 5)}. Copy the images if they should count twice."
            )
        for message in left_out:
            warnings.warn(message, A2LPWarning, stacklevel=2)


def find_folders(root: Path, split: str | None, standard: Standard | None) -> ImageTable | None:
    """Read class folders, or a folder of images; None where there are no images."""
    top = root
    for name in _PARENTS:  # step into CUB_200_2011/images and the like, unless other images lie beside it
        if (top / name).is_dir() and (standard is not None or not _has_images(top, without=name)):
            top /= name
    folder = top
    # CIFAR-100 has a class `train`, whose folder holds images and no folders
    if split and (top / split).is_dir() and any(map(_is_folder, _entries(top / split))):
        folder = top / split
    listing = image_files(root, folder)
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
            problem = f"Images that {what} folders with images: {count}. So it is not clear what the classes are."
            raise layout_error(root, problem, standard)
    source = Files(root, paths)
    if flat:
        return ImageTable(source, paths, None)
    if apart:
        return ImageTable(source, paths, [part[1] for part in parts], [part[0] for part in parts])
    classes = [part[0] for part in parts]
    return ImageTable(source, paths, classes, _listed_splits(root, top, classes, standard))


def image_files(root: Path, folder: Path) -> Listing:
    """List the files under a folder. Links to folders are followed, but no folder is listed twice."""
    listing = Listing([], Counter(), [])
    folders, links = deque([folder]), deque[Path]()
    seen: set[str] = set()
    while folders or links:
        directory = folders.popleft() if folders else links.popleft()  # a folder's own name comes before a link to it
        real = os.path.realpath(directory)
        if real in seen:
            listing.repeated.append(_key(root, directory))
            continue
        seen.add(real)
        for entry in _entries(directory):
            if _is_folder(entry):
                (links if entry.is_symlink() else folders).append(Path(entry.path))
            elif _is_image(entry):
                listing.images.append(_key(root, Path(entry.path)))
            else:
                listing.others[Path(entry.name).suffix.lower()] += 1
    listing.images.sort(key=lambda path: path.split("/"))
    return listing


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder, sorted by name, without hidden ones."""
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError as error:
        raise DatasetError(f"{folder} cannot be read: {error.strerror}. Check its permissions.") from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _is_image(entry: os.DirEntry[str]) -> bool:
    """Whether it has the name of an image; broken links count, so that reading them gives an error."""
    try:
        present = entry.is_file() or (entry.is_symlink() and not Path(entry.path).exists())
    except OSError:
        present = True
    return present and "." + entry.name.rpartition(".")[2].lower() in EXTENSIONS


def _has_images(folder: Path, without: str) -> bool:
    """Whether a folder has images, apart from its entry ``without``."""
    return any(
        _is_image(entry) or (_is_folder(entry) and image_files(folder, Path(entry.path)).images)
        for entry in _entries(folder)
        if entry.name != without
    )


def _key(root: Path, path: Path) -> str:
    key = path.relative_to(root).as_posix()
    try:
        key.encode()
    except UnicodeError:
        raise DatasetError(f"the file {str(path)!r} has a name that is not UTF-8. Rename it.") from None
    return key


def _listed_splits(root: Path, top: Path, classes: list[str], standard: Standard | None) -> list[str] | None:
    """CIFAR-FS: the splits of ``splits/bertinetto/*.txt``, which lie beside ``data``."""
    folder = top.parent / "splits" / "bertinetto"
    if top == root or not folder.is_dir() or (standard is not None and standard.name != "cifar_fs"):
        return None
    split_of = {
        name: split
        for split in SPLITS
        if (folder / f"{split}.txt").is_file()
        for name in read_text(folder / f"{split}.txt", "a list of class names", DatasetError).split()
    }
    unknown = sorted(set(classes) - set(split_of))
    if unknown:
        raise DatasetError(
            f"{folder}: its lists do not name the class folder {shown(unknown[0])} of {top}. Add it, or remove it."
        )
    return [split_of[name] for name in classes]


def find_csvs(root: Path, split: str | None, standard: Standard | None) -> ImageTable | None:
    """Read the images that are listed in train.csv, val.csv and test.csv, as Ravi and Larochelle keep them."""
    for folder in (root, root / "split", root / "splits"):
        tables = {name: folder / f"{name}.csv" for name in SPLITS if _is_table(folder / f"{name}.csv")}
        if tables:
            break
    else:
        return None
    names = ", ".join(path.name for path in tables.values())
    if split is not None and split not in tables:
        raise layout_error(root, f"there is {names}, but no {split}.csv.", standard)
    if not (root / "images").is_dir():
        raise layout_error(root, f"there is {names}, but no folder `images`.", standard)
    present = set(image_files(root, root / "images").images)
    rows: list[tuple[str, str, str]] = []
    for name in tables if split is None else [split]:
        for line, (filename, label) in enumerate(_rows(tables[name]), start=2):
            places = (f"images/{filename}", f"images/{label}/{filename}")
            file = next((place for place in places if place in present), None)
            if file is None:
                raise DatasetError(
                    f"{tables[name]}, line {line}: {root} has neither {shown(places[0])} nor {shown(places[1])}. "
                    "Fetch the missing images, or remove the line."
                )
            rows.append((file, label, name))
    files, classes, splits = ([row[i] for row in rows] for i in range(3))
    return ImageTable(Files(root, files), files, classes, splits)


def _is_table(path: Path) -> bool:
    if not path.is_file():
        return False
    check_file(path, _TABLE, error=DatasetError)
    with path.open("rb") as file:
        first = file.readline(1 << 16).decode("utf-8-sig", errors="replace")
    return {column.strip() for column in first.split(",")} >= {"filename", "label"}


def _rows(path: Path) -> list[tuple[str, str]]:
    try:
        table = csv.DictReader(io.StringIO(read_text(path, _TABLE, DatasetError), newline=""), skipinitialspace=True)
        table.fieldnames = [column.strip() for column in table.fieldnames or ()]
        rows = [((row["filename"] or "").strip(), (row["label"] or "").strip()) for row in table]
    except csv.Error as error:
        raise DatasetError(f"{path} cannot be read as {_TABLE}: {error}. Save it again.") from error
    for line, (filename, label) in enumerate(rows, start=2):
        if not filename or not label:
            raise DatasetError(
                f"{path}, line {line}: expected a filename and a label, found {shown(filename)}, {shown(label)}."
            )
    return rows
