"""Tables of labels as people write them: .csv, .tsv and .parquet, with a column that names the point."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from a2lp.checks import listed, shown
from a2lp.errors import InputError, MissingExtraError
from a2lp.files import TEXT_BYTES, check_file, reading
from a2lp.npz import check_growth

KEYS = ("path", "file", "filename", "image", "id", "index")
LABELS = ("label", "class", "category")
TABLES = (".csv", ".tsv", ".parquet")
EXPECTED = f"a table ({', '.join(TABLES)})"
_GIVEN = "given"  # a column of the tables that ``a2lp classify`` writes: false for its predictions
_FORMULA = re.compile(r"[=+\-@\t\r]")  # a spreadsheet may run cells that begin so


class Row(NamedTuple):
    """A row of a table: its place in the file, the point's key, and the label, None where there is none."""

    place: str
    key: str
    label: str | None


class Table(NamedTuple):
    """The rows of a table that name a point.

    Attributes
    ----------
    key : str
        The name of the column that names the points.
    rows : list of Row
    predictions : int
        How many labels are predictions of a2lp (``given`` is false); they count as no label.
    """

    key: str
    rows: list[Row]
    predictions: int


def read_table(path: Path) -> Table:
    """Read a table of labels."""
    check_file(path, f"{EXPECTED} with the columns path,label", error=InputError)
    if path.suffix.lower() not in TABLES:
        raise InputError(
            f"{path} has the extension {path.suffix!r}; labels are read from {', '.join(TABLES)}, or a folder."
        )
    remedy = "Save it again, for example as CSV with UTF-8."
    with reading(path, EXPECTED, most=TEXT_BYTES, remedy=remedy, error=InputError):
        names, lines = (_read_parquet if path.suffix.lower() == ".parquet" else _read_csv)(path)
        names = [name.strip().lower() for name in names]
        key = next((name for name in KEYS if name in names), None)
        label = next((name for name in LABELS if name in names), None)
        if key is None or label is None:
            raise InputError(
                f"the columns are {listed(names)}; expected one of {listed(LABELS)} and one of {listed(KEYS)}. Name "
                "them in the first line."
            )
        return Table(key, *_rows(lines, names.index(key), names.index(label), _place(names, _GIVEN)))


def escaped(value: Any) -> Any:
    """A cell of a CSV file that no spreadsheet runs as a formula: text that could be one gets an apostrophe."""
    if isinstance(value, str) and _FORMULA.match(value) and not _is_number(value):
        return f"'{value}"
    return value


def unescaped(text: str) -> str:
    """A cell of a CSV file without the apostrophe of ``escaped``."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def _place(names: Sequence[str], name: str) -> int | None:
    return names.index(name) if name in names else None


def _rows(lines: Sequence[tuple[str, Sequence[Any]]], key: int, label: int, given: int | None) -> tuple[list[Row], int]:
    rows, predictions = [], 0
    for place, cells in lines:
        name, value = _text(cells[key]) or "", _text(cells[label])
        if value == "-1":  # as everywhere in this library, -1 is never a class
            value = None
        if value is not None and given is not None and (_text(cells[given]) or "").lower() in ("false", "0"):
            value, predictions = None, predictions + 1
        if not name and value is not None:
            raise InputError(
                f"{place}: the class {shown(value)} has no example there, since the line names no point. Name one, or "
                "remove the line."
            )
        if name:
            rows.append(Row(place, name, value))
    return rows, predictions


def _text(value: Any) -> str | None:
    """A cell as text; None where it is empty."""
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # whole numbers beside an empty cell are floats in many tables
    return str(value).strip() or None


def _decoded(data: bytes) -> str:
    """Text in the encodings that spreadsheets write: UTF-8, UTF-16, or the Windows code page."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252")


def _read_csv(path: Path) -> tuple[Sequence[str], list[tuple[str, Sequence[Any]]]]:
    text = _decoded(path.read_bytes())
    separator = re.match(r'"?sep=(.)"?\r?\n', text)  # Excel's way to name the separator
    first = text[separator.end() :].partition("\n")[0] if separator else text.partition("\n")[0]
    # spreadsheets write semicolons in half of the world
    delimiter = separator[1] if separator else max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    lines: list[tuple[str, Sequence[Any]]] = [
        (f"line {reader.line_num}", [unescaped(cell) for cell in cells]) for cells in reader if cells
    ]
    lines = lines[1:] if separator else lines
    names = lines[0][1] if lines else []
    for place, cells in lines:
        if len(cells) < len(names):
            raise InputError(
                f"{place} has {len(cells)} cells and the first line {len(names)}. Add the missing ones; they may be "
                "empty."
            )
    return names, lines[1:]  # cells beyond the first line's are somebody's notes


def _read_parquet(path: Path) -> tuple[Sequence[str], list[tuple[str, Sequence[Any]]]]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("reading .parquet files", "pyarrow", "label") from error
    from a2lp.features.parquet_files import claimed_bytes

    used = {*KEYS, *LABELS, _GIVEN}
    with pyarrow.parquet.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if name.lower() in used]
        check_growth(claimed_bytes(file.metadata, set(names)), path.stat().st_size)
        columns = [column.to_pylist() for column in file.read(columns=names).columns]
    return names, [(f"row {row}", cells) for row, cells in enumerate(zip(*columns, strict=True))]
