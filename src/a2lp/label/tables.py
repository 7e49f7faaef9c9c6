"""Tables of labels as people write them: .csv, .tsv and .parquet, with a column that names the point."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from a2lp.checks import listed
from a2lp.errors import InputError, MissingExtraError

KEYS = ("path", "file", "id", "index")
TABLES = (".csv", ".tsv", ".parquet")


class Row(NamedTuple):
    """A line of a table: where it is, the point it names, and the label, None where there is none."""

    where: str
    key: str
    label: str | None


def read_table(path: Path) -> tuple[str, list[Row]]:
    """The name of the key's column, and the rows that name a point."""
    if not path.is_file():
        raise InputError(
            f"the labels {path} do not exist. Give a table ({', '.join(TABLES)}) with the columns path,label, or a "
            "folder that holds a folder of examples for each class."
        )
    if path.suffix.lower() not in TABLES:
        raise InputError(
            f"{path} has the extension {path.suffix!r}; labels are read from {', '.join(TABLES)}, or a folder."
        )
    read = _read_parquet if path.suffix.lower() == ".parquet" else _read_csv
    try:
        names, lines = read(path)
    except (MissingExtraError, InputError):
        raise
    except Exception as error:  # the reader's own for a damaged file, a wrong encoding, missing permission
        reason = " ".join(str(error).split())[:160].rstrip(".")
        raise InputError(
            f"{path} cannot be read as a table ({type(error).__name__}: {reason}). Save it again."
        ) from error
    key = next((name for name in KEYS if name in names), None)
    if key is None or "label" not in names:
        raise InputError(
            f"{path} has the columns {listed(names)}; expected `label` and one of {listed(KEYS)}. Name them so in the "
            "first line."
        )
    return key, _rows(path, lines, names.index(key), names.index("label"))


def _rows(path: Path, lines: Sequence[tuple[str, Sequence[Any]]], key: int, label: int) -> list[Row]:
    rows = [Row(where, _text(cells[key]) or "", _text(cells[label])) for where, cells in lines]
    # as everywhere in this library, -1 is never a class
    rows = [row._replace(label=None if row.label == "-1" else row.label) for row in rows]
    for row in rows:
        if not row.key and row.label is not None:
            raise InputError(
                f"{path}, {row.where}: the class {row.label!r} has no example there, since the line names no point. "
                "Name one, or remove the line."
            )
    return [row for row in rows if row.key]


def _text(value: Any) -> str | None:
    """A cell as text; None where it is empty."""
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # whole numbers beside an empty cell are floats in many tables
    return str(value).strip() or None


def _read_csv(path: Path) -> tuple[list[str], list[tuple[str, list[str]]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = file.readline()
        file.seek(0)
        # spreadsheets write semicolons in half of the world
        reader = csv.reader(file, delimiter=max(",;\t", key=header.count), strict=True)
        lines = [(f"line {reader.line_num}", cells) for cells in reader if cells]
    names = [name.strip().lower() for name in lines[0][1]] if lines else []
    for where, cells in lines:
        if len(cells) != len(names):
            raise InputError(
                f"{path}, {where}, has {len(cells)} cells and the first line {len(names)}; all lines need the same. "
                "Put text that has commas in quotes."
            )
    return names, lines[1:]


def _read_parquet(path: Path) -> tuple[list[str], list[tuple[str, tuple[Any, ...]]]]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("reading .parquet files", "pyarrow", "label") from error
    with pyarrow.parquet.ParquetFile(path) as file:
        table = file.read()
    columns = [column.to_pylist() for column in table.columns]
    return [name.lower() for name in table.column_names], [
        (f"row {row}", cells) for row, cells in enumerate(zip(*columns, strict=True))
    ]
