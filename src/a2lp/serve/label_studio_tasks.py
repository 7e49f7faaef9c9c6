"""Label Studio's tasks, labelling interfaces and annotations: which point, which classes, which choice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit


class Interface(NamedTuple):
    """What a labelling interface calls its choices: the tag's name, what it is about, and the values."""

    from_name: str = "choice"
    to_name: str = "image"
    choices: tuple[str, ...] = ()


class Finder:
    """Finds the point of a task: by ``data.key``, or by a file name in its data."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._row_of = {key: row for row, key in enumerate(keys)}
        names: dict[str, int | None] = {}
        for row, key in enumerate(keys):
            name = key.rpartition("/")[2]
            names[name] = None if name in names else row  # a name that two files have decides nothing
        self._by_name = names

    def __call__(self, task: Any) -> int | None:
        """The row of a task's point; None if the source has none."""
        data = task.get("data") if isinstance(task, dict) else None
        if not isinstance(data, dict):
            return None
        if (row := self._row_of.get(str(data.get("key")))) is not None:
            return row
        for value in data.values():
            if isinstance(value, str) and (row := self._by_address(value)) is not None:
                return row
        return None

    def _by_address(self, address: str) -> int | None:
        try:
            parts = urlsplit(address)
        except ValueError:
            return None
        # files that Label Studio serves from a folder are named in ?d=
        path = next(iter(parse_qs(parts.query).get("d", [])), unquote(parts.path)).replace("\\", "/")
        pieces = path.strip("/").split("/")
        for start in range(len(pieces)):
            if (row := self._row_of.get("/".join(pieces[start:]))) is not None:
                return row
        name = re.sub(r"^[0-9a-f]{8}-", "", pieces[-1])  # which it puts before the names of uploaded files
        return next((row for one in (pieces[-1], name) if (row := self._by_name.get(one)) is not None), None)


class _Reader(HTMLParser):
    """Reads a labelling interface; unlike an XML parser it expands no entities of the document's own."""

    def __init__(self) -> None:
        super().__init__()
        self.names: tuple[str, str] | None = None
        self.choices: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "choices" and self.names is None:
            self.names, self._inside = (given.get("name", "choice"), given.get("toname", "image")), True
        elif tag == "choice" and self._inside:
            self.choices.append(given.get("value", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "choices":
            self._inside = False


def read_interface(schema: Any) -> Interface | None:
    """The first choices of a labelling interface; None if it has none."""
    if not isinstance(schema, str):
        return None
    reader = _Reader()
    reader.feed(schema)
    return None if reader.names is None else Interface(*reader.names, tuple(reader.choices))


def chosen(result: Any) -> str | None:
    """The class that an annotation chose; None if it chose none."""
    for part in dicts(result):
        value = part.get("value")
        choices = value.get("choices") if isinstance(value, dict) else None
        if part.get("type") == "choices" and isinstance(choices, list) and choices and isinstance(choices[0], str):
            return choices[0]
    return None


def dicts(values: Any) -> list[dict[str, Any]]:
    """The objects of a JSON list; none where it is something else."""
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
