"""What is given back to the user: tables of all labels as ``a2lp classify`` writes them, and the user's own labels."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from a2lp.labelling.tables import escaped
from a2lp.serve.board import Board
from a2lp.serve.jobs import Export
from a2lp.serve.state import ACCEPTED, REJECTED, UNSEEN, YOURS, Mark

FORMATS = {
    "csv": (".csv", "text/csv; charset=utf-8"),
    "parquet": (".parquet", "application/vnd.apache.parquet"),
    "jsonl": (".jsonl", "application/jsonl"),
    "label-studio": (".json", "application/json"),
}


def request(board: Board, ticket: int, path: Path, key: str) -> Export:
    """What the solver needs to write a table: beside the usual columns, where each label comes from.

    ``source`` is yours, accepted (seen), accepted_unseen, rejected (none of the classes) or predicted; ``how`` tells
    how the point was chosen, ``labelled_at`` when; ``shown`` and ``shown_confidence`` are what the page had predicted
    at that moment, and ``event`` is the line of the log.
    """
    columns: dict[str, list[Any]] = {
        name: [] for name in ("source", "how", "labelled_at", "shown", "shown_confidence", "event")
    }
    labels: list[str | None] = []
    keep: list[bool] = []
    for row in range(len(board)):
        mark = board.labels.marks.get(row)
        for column, value in zip(columns.values(), _columns(board, mark), strict=True):
            column.append(value)
        keep.append(mark is not None and mark.kind in (UNSEEN, REJECTED))
        labels.append(_name(board, mark.code) if mark is not None and mark.kind == UNSEEN else None)
    return Export(ticket, board.job(), str(path), key, columns, labels, keep)


def own_labels(board: Board, key: str) -> bytes:
    """The user's own and accepted labels as a table that ``a2lp classify --labels`` reads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([key, "label", "source", "how", "labelled_at"])
    for row in sorted(board.labels.marks):
        mark = board.labels.marks[row]
        if mark.kind in (YOURS, ACCEPTED):
            name = _name(board, mark.code)
            writer.writerow([escaped(board.keys[row]), escaped(name), mark.kind, mark.how, _time(mark.t)])
    return text.getvalue().encode()


def _columns(board: Board, mark: Mark | None) -> tuple[Any, ...]:
    if mark is None:
        return ("predicted", "", None, None, None, None)
    shown = None if mark.shown is None else _name(board, mark.shown)
    return (mark.kind, mark.how, _time(mark.t), shown, mark.confidence, mark.seq)


def _name(board: Board, code: int) -> str:
    classes = board.labels.classes
    return classes[classes[code].root].name


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
