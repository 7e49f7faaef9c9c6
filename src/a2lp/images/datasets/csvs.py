"""Ravi and Larochelle's layout: ``images`` beside train.csv, val.csv and test.csv with the columns filename,label."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from a2lp.checks import shown
from a2lp.errors import DatasetError
from a2lp.files import check_file, read_text
from a2lp.images.datasets.folders import image_files
from a2lp.images.datasets.layouts import ImageTable, layout_error
from a2lp.images.datasets.sources import Files
from a2lp.images.datasets.splits import SPLITS, Standard

_EXPECTED = "a table with the columns filename,label (UTF-8 .csv)"


def find_csvs(root: Path, split: str | None, standard: Standard | None) -> ImageTable | None:
    """Read the images that are listed in the csv files of the root, or of ``split`` or ``splits`` in it."""
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
    files: list[str] = []
    classes: list[str] = []
    splits: list[str] = []
    for name in tables if split is None else [split]:
        for line, (filename, label) in enumerate(_rows(tables[name]), start=2):
            places = (f"images/{filename}", f"images/{label}/{filename}")
            file = next((place for place in places if place in present), None)
            if file is None:
                raise DatasetError(
                    f"{tables[name]}, line {line}: {root} has neither {shown(places[0])} nor {shown(places[1])}. "
                    "Fetch the missing images, or remove the line."
                )
            files.append(file)
            classes.append(label)
            splits.append(name)
    return ImageTable(Files(root, files), files, classes, splits)


def _is_table(path: Path) -> bool:
    if not path.is_file():
        return False
    check_file(path, _EXPECTED, error=DatasetError)
    with path.open("rb") as file:
        first = file.readline(1 << 16).decode("utf-8-sig", errors="replace")
    return {column.strip() for column in first.split(",")} >= {"filename", "label"}


def _rows(path: Path) -> list[tuple[str, str]]:
    try:
        table = csv.DictReader(io.StringIO(read_text(path, _EXPECTED, DatasetError), newline=""), skipinitialspace=True)
        table.fieldnames = [column.strip() for column in table.fieldnames or ()]
        rows = [((row["filename"] or "").strip(), (row["label"] or "").strip()) for row in table]
    except csv.Error as error:
        raise DatasetError(f"{path} cannot be read as {_EXPECTED}: {error}. Save it again.") from error
    for line, (filename, label) in enumerate(rows, start=2):
        if not filename or not label:
            raise DatasetError(
                f"{path}, line {line}: expected a filename and a label, found {shown(filename)}, {shown(label)}."
            )
    return rows
