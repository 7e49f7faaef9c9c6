"""What the HTML pages of the bench share: templates, pictures, and where the numbers come from."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from a2lp.bench.records import Record
from a2lp.errors import MissingExtraError


class Figure(NamedTuple):
    """A picture with a title and a caption; ``alt`` describes it where it cannot be seen."""

    title: str
    caption: str
    svg: str
    alt: str

    @property
    def source(self) -> str:
        """The picture as an address that needs no file."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"


def render(template: str, **values: Any) -> str:
    """A self-contained page from one of the package's templates."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("the report", "jinja2", "report") from error
    text = (files("a2lp.bench") / template).read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(text).render(**values)


def provenance(records: Sequence[Record]) -> dict[str, str]:
    """When, by which software and on which machines some records were made; every one that differs is named."""
    dates = sorted(record.date[:10] for record in records)
    return {
        "records": str(len(records)),
        "made": " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "",
        "versions": _distinct(", ".join(f"{k} {v}" for k, v in r.versions.items()) for r in records),
        "commit": _distinct(r.commit or "unknown" for r in records),
        "hardware": _distinct(_machine(r) for r in records),
    }


def _machine(record: Record) -> str:
    cpu, cores, device = (record.hardware.get(name, "unknown") for name in ("cpu", "cores", "device"))
    return f"{cpu}, {cores} cores, {device}"


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))
