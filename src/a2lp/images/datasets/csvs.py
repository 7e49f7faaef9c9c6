"""Ravi and Larochelle's layout: ``images`` beside train.csv, val.csv and test.csv with the columns filename,label."""

from __future__ import annotations

import csv
from pathlib import Path

from a2lp.errors import DatasetError
from a2lp.images.datasets.folders import image_files
from a2lp.images.datasets.found import Found, layout_error
from a2lp.images.datasets.sources import Files
from a2lp.images.datasets.splits import SPLITS, Standard

_COLUMNS = {"filename", "label"}


def find_csvs(root: Path, split: str | None, standard: Standard | None) -> Found | None:
    """Read the images that the csv files of the root, or of ``split`` or ``splits`` in it, list."""
    tables = _tables(root)
    if not tables:
        return None
    if split is not None and split not in tables:
        raise layout_error(root, f"there is {_names(tables)}, but no {split}.csv.", standard)
    if not (root / "images").is_dir():
        raise layout_error(root, f"there is {_names(tables)}, but no folder `images`.", standard)
    there = set(image_files(root, root / "images").images)
    files: list[str] = []
    classes: list[str] = []
    splits: list[str] = []
    for name in tables if split is None else [split]:
        for line, (filename, label) in enumerate(_rows(tables[name]), start=2):
            places = (f"images/{filename}", f"images/{label}/{filename}")
            file = next((place for place in places if place in there), None)
            if file is None:
                raise DatasetError(
                    f"{tables[name]}, line {line}: there is neither {places[0]} nor {places[1]} in {root}. "
                    "Fetch the missing images, or remove the line."
                )
            files.append(file)
            classes.append(label)
            splits.append(name)
    return Found(Files(root, files), files, classes, splits)


def _tables(root: Path) -> dict[str, Path]:
    for folder in (root, root / "split", root / "splits"):
        tables = {name: folder / f"{name}.csv" for name in SPLITS if _is_table(folder / f"{name}.csv")}
        if tables:
            return tables
    return {}


def _is_table(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        return {column.strip() for column in next(csv.reader(file), [])} >= _COLUMNS


def _rows(path: Path) -> list[tuple[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file, skipinitialspace=True)
            table.fieldnames = [column.strip() for column in table.fieldnames or ()]
            rows = [((row["filename"] or "").strip(), (row["label"] or "").strip()) for row in table]
    except (csv.Error, UnicodeError) as error:
        raise DatasetError(f"{path} cannot be read as a table with the columns filename,label ({error}).") from error
    for line, (filename, label) in enumerate(rows, start=2):
        if not filename or not label:
            raise DatasetError(f"{path}, line {line}: expected a filename and a label, found {filename!r}, {label!r}.")
    return rows


def _names(tables: dict[str, Path]) -> str:
    return ", ".join(path.name for path in tables.values())
