"""What the server asks the solver for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Job:
    """Labels to answer for.

    Attributes
    ----------
    seq : int
        The log's last line.
    rows : list of int
        Labelled points.
    codes : list of int
        Their classes by number.
    how : list of str
        How each was chosen: "", "random", "suggested" or "audit".
    names : dict of int to str
        The classes.
    passed : list of int
        Points that must not be suggested: rejected and accepted ones.
    """

    seq: int
    rows: list[int]
    codes: list[int]
    how: list[str]
    names: dict[int, str]
    passed: list[int]


@dataclass(frozen=True)
class Export:
    """A request to write a table of all labels for a job's labels; ``states`` has the page's own columns by name."""

    ticket: int
    job: Job
    path: str
    key: str
    states: dict[str, list[Any]]
    labels: list[str | None]
    keep: list[bool]
