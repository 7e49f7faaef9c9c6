"""Parts that the HTML pages of the bench share: the template, figures, and the provenance of the numbers."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from a2lp.bench.records import Record
from a2lp.errors import MissingExtraError


class Figure(NamedTuple):
    """A picture with a title, a caption and, if these do not describe it, an alternative text."""

    title: str
    caption: str
    svg: str
    alt: str = ""

    @property
    def source(self) -> str:
        """The picture as a data URI."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"


def render(**values: Any) -> str:
    """A self-contained page from the template, with its ``values``."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("the report", "jinja2", "report") from error
    text = (files("a2lp.bench") / "page.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(text).render(**values)


def provenance(records: Sequence[Record]) -> dict[str, str]:
    """When, by which software and on which machines some records were made, each distinct value once."""

    def distinct(texts: Iterable[str]) -> str:
        return "; ".join(dict.fromkeys(texts))

    dates = sorted(record.date[:10] for record in records)
    machines = [[r.hardware.get(name, "unknown") for name in ("cpu", "cores", "device")] for r in records]
    return {
        "records": str(len(records)),
        "made": " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "",
        "versions": distinct(", ".join(f"{k} {v}" for k, v in r.versions.items()) for r in records),
        "commit": distinct(r.commit or "unknown" for r in records),
        "hardware": distinct(f"{cpu}, {cores} cores, {device}" for cpu, cores, device in machines),
    }
