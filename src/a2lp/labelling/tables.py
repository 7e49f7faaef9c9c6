"""Tables of labels as people write them: .csv, .tsv and .parquet, with a column that names the point."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from a2lp.checks import counted, listed, shown
from a2lp.errors import A2LPError, InputError
from a2lp.features.parquet_files import arrow
from a2lp.features.parquet_footer import claimed_bytes
from a2lp.files import TEXT_BYTES, check_file, exists, extension, reading, replacing, writing
from a2lp.npz import check_growth

KEYS = ("path", "file", "filename", "image", "id", "index")
LABELS = ("label", "class", "category")
TABLES = (".csv", ".tsv", ".parquet")
EXPECTED = f"a table ({', '.join(TABLES)})"
_GIVEN = "given"  # a column of the tables that ``a2lp classify`` writes: false for its predictions
_HOW = "how"  # a column that tells how a point was chosen; see ``a2lp.pool.unseen``
_FORMULA = re.compile(r"[=+\-@\t\r]")  # a spreadsheet may run cells that begin with one of these


class Row(NamedTuple):
    """A row of a table: its place in the file, the point's key, its label (None: none), and how it was chosen."""

    place: str
    key: str
    label: str | None
    how: str = ""


class Table(NamedTuple):
    """The rows of a table that name a point.

    Attributes
    ----------
    key : str
        The name of the column that names the points.
    rows : list of Row
    predictions : int
        How many labels are predictions of a2lp (``given`` is false); they count as no label.
    ours : bool
        Whether a2lp wrote the table: it has a column ``given``.
    added : int
        How many labels of such a table were added to it since: ``given`` is empty.
    """

    key: str
    rows: list[Row]
    predictions: int
    ours: bool
    added: int


def read_table(path: Path) -> Table:
    """Read a table of labels."""
    check_file(path, f"{EXPECTED} with the columns path,label", error=InputError)
    if path.suffix.lower() not in TABLES:
        raise InputError(
            f"{path} {extension(path)}; labels are read from {', '.join(TABLES)}, or a folder. Save it as CSV."
        )
    remedy = "Save it again, for example as CSV with UTF-8."
    with reading(path, EXPECTED, most=TEXT_BYTES, remedy=remedy, error=InputError):
        names, lines = (_read_parquet if path.suffix.lower() == ".parquet" else _read_csv)(path)
        names = [name.strip().lower() for name in names]
        for place, line in lines:
            if any(str(cell).strip() for cell in line[len(names) :]):  # a label with a comma would lose its end
                raise InputError(
                    f"{place} has {len(line)} cells, and the first line names {counted(len(names), 'column')}. Put a "
                    'label that has the delimiter in it in quotes, as in "auk, young".'
                )
        key = next((name for name in KEYS if name in names), None)
        label = next((name for name in LABELS if name in names), None)
        if key is None or label is None:
            raise InputError(
                f"the columns are {listed(names)}; expected one of {listed(LABELS)} and one of {listed(KEYS)}. Name "
                "them in the first line."
            )
        cells = [_Cells(place, dict(zip(names, line, strict=False))) for place, line in lines]
        rows = [row for one in cells if (row := one.row(key, label)) is not None]
        predictions = sum(one.is_prediction(label) for one in cells)
        added = sum(one.text(label) is not None and one.text(_GIVEN) is None for one in cells)
        return Table(key, rows, predictions, _GIVEN in names, added)


def is_output(path: Path) -> bool:
    """Whether a file is a table that ``a2lp classify`` wrote."""
    try:
        return read_table(path).ours
    except A2LPError:
        return False


def holds_labels(path: Path) -> bool:
    """Whether a file is a table with labels that a2lp did not write: the user's own work."""
    try:
        table = read_table(path)
    except A2LPError:
        return False
    return table.added > 0 if table.ours else any(row.label is not None for row in table.rows)


def lines_to_fill_in(path: Path) -> set[str]:
    """The points of lines that ``append_rows`` has added to a table and that have no label yet."""
    return {row.key for row in read_table(path).rows if row.label is None and row.how}


def append_rows(path: Path, key: str, rows: Sequence[tuple[str, str, str]], *, new: bool = False) -> None:
    """Add lines with an empty label to a CSV file; nothing in it changes, except that missing columns are added.

    Parameters
    ----------
    path : Path
        A .csv or .tsv file; it is made if it does not exist.
    key : str
        The name of the column of keys, for a new file.
    rows : sequence of (key, how, why)
    new : bool
        Whether to replace a file that exists.
    """
    columns, text, encoding, end = [key, "label", _HOW, "why"], "", "utf-8", "\n"
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    if exists(path) and not new:
        old, encoding = _decoded(path.read_bytes())
        delimiter, start = _delimiter(old)
        end = "\r\n" if "\r\n" in old else "\n"
        first, _, rest = old[start:].partition("\n")
        header = next(csv.reader([first], delimiter=delimiter))
        names = [name.strip().lower() for name in header]
        added = [name for name in columns[2:] if name not in names]
        columns = names + added
        text = old[:start] + _line([*header, *added], delimiter, end) + rest
        text += "" if not rest or text.endswith("\n") else end
    else:
        text = _line(columns, delimiter, end)
    for name, how, why in rows:
        cells = {next(c for c in columns if c in KEYS): escaped(name), _HOW: how, "why": why}
        text += _line([cells.get(column, "") for column in columns], delimiter, end)
    try:
        data = text.encode(encoding)
    except UnicodeEncodeError:
        data = text.encode("utf-8-sig")
    with writing(path), replacing(path) as temporary:
        temporary.write_bytes(data)


def _line(cells: Sequence[str], delimiter: str, end: str) -> str:
    made = io.StringIO()
    csv.writer(made, delimiter=delimiter, lineterminator=end).writerow(cells)
    return made.getvalue()


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


class _Cells(NamedTuple):
    """The cells of a line by column, and the line's place in the file."""

    place: str
    cells: dict[str, Any]

    def text(self, column: str) -> str | None:
        """A cell as text; None where it is empty."""
        value = self.cells.get(column)
        if value is None or value != value:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # whole numbers beside an empty cell are floats in many tables
        return str(value).strip() or None

    def is_prediction(self, label: str) -> bool:
        """Whether the label is one that a2lp has predicted."""
        return (self.text(_GIVEN) or "").lower() in ("false", "0") and self.text(label) is not None

    def row(self, key: str, label: str) -> Row | None:
        """The point and its label; None where the line names no point."""
        name, value = self.text(key), self.text(label)
        if value == "-1" or self.is_prediction(label):  # as everywhere in this library, -1 is never a class
            value = None
        if name is None and value is not None:
            raise InputError(
                f"{self.place}: the class {shown(value)} has no example there, since the line names no point. Name "
                "one, or remove the line."
            )
        return None if name is None else Row(self.place, name, value, (self.text(_HOW) or "").lower())


def _decoded(data: bytes) -> tuple[str, str]:
    """Text in the encodings that spreadsheets write (UTF-8, UTF-16, or the Windows code page), and the encoding."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16"), "utf-16"
    for encoding in ("utf-8-sig" if data.startswith(codecs.BOM_UTF8) else "utf-8", "cp1252"):
        with suppress(UnicodeDecodeError):
            text = data.decode(encoding)
            if "\0" not in text:
                return text, encoding
    raise InputError("expected text, found binary data, such as a spreadsheet (.xlsx). Save it as CSV with UTF-8.")


def _delimiter(text: str) -> tuple[str, int]:
    """The delimiter of a CSV file, and where its first line starts: after Excel's ``sep=;``, if that is there."""
    separator = re.match(r'"?sep=(.)"?\r?\n', text)
    if separator:
        return separator[1], separator.end()
    # in many countries, spreadsheets write semicolons
    return max(",;\t", key=text.partition("\n")[0].count), 0


def _read_csv(path: Path) -> tuple[Sequence[str], list[tuple[str, Sequence[Any]]]]:
    text, _ = _decoded(path.read_bytes())
    delimiter, start = _delimiter(text)
    skipped = text[:start].count("\n")
    reader = csv.reader(io.StringIO(text[start:], newline=""), delimiter=delimiter, strict=True)
    lines: list[tuple[str, Sequence[Any]]] = [
        (f"line {skipped + reader.line_num}", [unescaped(cell) for cell in cells]) for cells in reader if cells
    ]
    return (lines[0][1] if lines else []), lines[1:]


def _read_parquet(path: Path) -> tuple[Sequence[str], list[tuple[str, Sequence[Any]]]]:
    parquet = arrow("reading .parquet files").parquet
    used = {*KEYS, *LABELS, _GIVEN, _HOW}
    with parquet.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if name.lower() in used]
        check_growth(claimed_bytes(path, set(names)), path.stat().st_size)
        columns = [column.to_pylist() for column in file.read(columns=names).columns]
    return names, [(f"row {row}", cells) for row, cells in enumerate(zip(*columns, strict=True))]
