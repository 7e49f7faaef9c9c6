"""What the command line brings along: labels of the user's tables, and names of classes."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from a2lp.errors import InputError
from a2lp.files import read_text
from a2lp.serve.commands import read_name
from a2lp.serve.state import Labels


def lines(labels: Labels, imported: Sequence[tuple[str, str, str]], names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Lines for classes that do not exist yet, and for labels of points that no line has ever named.

    Each line must be applied before the next is asked for.
    """
    for name in names:
        if labels.code_of(name) >= len(labels.classes):
            yield _line("class", label=name, **{"class": labels.code_of(name)})
    groups: dict[tuple[str, str], list[str]] = {}
    for key, label, how in imported:
        row = labels.row_of.get(key)
        if row is not None and not labels.is_known(row):
            groups.setdefault((label, how), []).append(key)
    for (label, how), keys in groups.items():
        yield _line("import", keys=keys, label=label, how=how, **{"class": labels.code_of(label)})


def read_names(path: Path) -> list[str]:
    """Names of classes from a text file, one a line."""
    found = [
        read_name(line) for line in read_text(path, "names of classes, one a line", InputError).splitlines() if line
    ]
    if not found:
        raise InputError(f"{path} is empty; expected names of classes, one a line.")
    return list(dict.fromkeys(found))


def _line(op: str, **more: Any) -> dict[str, Any]:
    return {"t": round(time.time(), 3), "id": secrets.token_hex(8), "op": op, **more}
