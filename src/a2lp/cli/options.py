"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from a2lp.errors import InputError, UnknownNameError

FORMATS = ("table", "markdown", "latex", "csv", "json")


def option(help: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    """``typer.Option`` with its help and metavar first."""
    return typer.Option(*names, help=help, metavar=metavar, **more)


Features = Annotated[str, option("A bundled set (cub, cifar_fs, digits) or a feature file.", "NAME|FILE")]
Shots = Annotated[str, option("Labelled examples per class.", "LIST")]
Ways = Annotated[int, option("Classes of a task.")]
Queries = Annotated[int, option("Queries per class; for dirichlet and k_eff, on average.")]
Tasks = Annotated[int, option("How many tasks.")]
SAMPLER_HELP = "How tasks are drawn: balanced, dirichlet, k_eff, semi_supervised or authors."
Seed = Annotated[int | None, option("Seed of the tasks; 0 by default, or the published one of authors.dataset.")]
Settings = Annotated[
    list[str], option("A parameter of a method or sampler; may be repeated.", "NAME.PARAM=VALUE", "--set")
]
BASE_HELP = (
    "Features of the base classes, or their statistics, for cl2n, whiten and methods that need them; bundled sets have "
    "their own."
)
Base = Annotated[str | None, option(BASE_HELP, "NAME|FILE")]
Engine = Annotated[str, option("Engine of the methods that have one.")]
Device = Annotated[str, option("cpu (NumPy), torch (torch on the CPU), or cuda.")]
Out = Annotated[str | None, option("Folder for records, table and report; an interrupted run continues.", "DIR")]
SCHEDULER_HELP = (
    "Run on a Dask cluster: local:N for N processes here, the address of a scheduler (tcp://...), or its file."
)
Scheduler = Annotated[str | None, option(SCHEDULER_HELP, "WHERE")]
Format = Annotated[str, option("What is printed: table, markdown, latex, csv or json.", "NAME")]


def names(text: str, option: str) -> list[str]:
    """A comma-separated list, each name once."""
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise InputError(f"{option} {_shown(text)} is an empty list. Give at least one value, separated by commas.")
    return found


def whole_numbers(text: str, option: str) -> list[int]:
    """A comma-separated list of whole numbers."""
    found = names(text, option)
    for part in found:
        if not re.fullmatch(r"[0-9]+", part):
            raise InputError(f"{option} has {_shown(part)}, which is not a whole number. Write it as in {option} 1,5.")
    return [int(part) for part in found]


def settings(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``a2lp.steps=200`` and the like, as parameters by name."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = re.fullmatch(r"([\w-]+)\.(\w+)=(.+)", text)
        if not match:
            raise InputError(f"--set {_shown(text)} is not NAME.PARAM=VALUE. Write it as in --set a2lp.steps=200.")
        found.setdefault(match[1], {})[match[2]] = _value(match[3])
    return found


def grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """``alpha=0.5,0.8`` and the like, as values for each parameter."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        match = re.fullmatch(r"(\w+)=(.+)", text)
        if not match:
            raise InputError(f"--grid {_shown(text)} is not PARAM=VALUE,VALUE. Write it as in --grid alpha=0.5,0.8.")
        values = _value(f"({match[2]},)")
        found[match[1]] = list(values) if isinstance(values, tuple) else names(match[2], "--grid")
    return found


def require_name(kind: str, name: str, known: Iterable[str]) -> None:
    """As ``a2lp.checks.require_name``, without loading NumPy."""
    if name not in known:
        raise UnknownNameError(kind, name, known)


def _shown(text: str) -> str:
    from a2lp.checks import shown  # loads NumPy, which --help does without

    return shown(text)


def _value(text: str) -> Any:
    """A Python literal, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
