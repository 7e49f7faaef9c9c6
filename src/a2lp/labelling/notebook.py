"""Results in a notebook: a sentence and a short table, with pictures where there are images."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from a2lp.labelling.pages import thumbnail

_SIDE = 64  # pixels of a picture


class Line(NamedTuple):
    """A line of the table, and its image."""

    cells: Sequence[Any]
    path: Path | None


def html_table(words: str, columns: Sequence[str], lines: Sequence[Line]) -> str:
    """A sentence and a table as HTML; everything in it is escaped."""
    if not lines:
        return f"<p>{escape(words)}</p>"
    pictures = any(line.path is not None for line in lines)
    head = "".join(f"<th>{escape(name)}</th>" for name in ([""] if pictures else []) + list(columns))
    body = ""
    for line in lines:
        cells = "".join(f"<td>{escape(str(cell))}</td>" for cell in line.cells)
        body += f"<tr>{_picture(line.path) if pictures else ''}{cells}</tr>"
    return f"<p>{escape(words)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _picture(path: Path | None) -> str:
    source = "" if path is None else thumbnail(path, _SIDE)
    return f'<td><img src="{source}" alt=""></td>' if source else "<td></td>"
