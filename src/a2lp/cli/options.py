"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a2lp.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from a2lp.features import BaseStatistics

FORMATS = ("table", "markdown", "latex", "csv", "json")

Features = Annotated[
    str, typer.Option(help="A bundled set (cub, cifar_fs, digits) or a feature file.", metavar="NAME|FILE")
]
Shots = Annotated[str, typer.Option(help="Labelled examples per class.", metavar="LIST")]
Ways = Annotated[int, typer.Option(help="Classes of a task.")]
Queries = Annotated[
    int, typer.Option(help="Queries per class; the dirichlet and k_eff samplers take ways x queries in all.")
]
Tasks = Annotated[int, typer.Option(help="How many tasks.")]
Sampler = Annotated[str, typer.Option(help="Who draws the tasks: balanced, dirichlet, k_eff or semi_supervised.")]
Samplers = Annotated[
    str, typer.Option(help="Who draws the tasks: balanced, dirichlet, k_eff or semi_supervised.", metavar="LIST")
]
Seed = Annotated[int, typer.Option(help="Seed of the tasks.")]
Settings = Annotated[
    list[str],
    typer.Option("--set", help="A parameter of a method or sampler; may be repeated.", metavar="NAME.PARAM=VALUE"),
]
Base = Annotated[
    str | None,
    typer.Option(
        help="Features of the base classes, or their statistics, for cl2n, whiten and methods that need them; "
        "bundled sets bring theirs.",
        metavar="NAME|FILE",
    ),
]
Engine = Annotated[str, typer.Option(help="Engine of the methods that have one.")]
Device = Annotated[str, typer.Option(help="cpu (NumPy), torch (torch on the CPU), or cuda.")]
Out = Annotated[
    str | None,
    typer.Option(help="Folder for records, table and report; a run that was interrupted goes on.", metavar="DIR"),
]
Format = Annotated[str, typer.Option(help="What is printed: table, markdown, latex, csv or json.", metavar="NAME")]


def names(text: str, option: str) -> list[str]:
    """A comma-separated list, each name once."""
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise InputError(f"{option} is {text!r}, an empty list. Give at least one value, separated by commas.")
    return found


def whole_numbers(text: str, option: str) -> list[int]:
    """A comma-separated list of whole numbers."""
    found = names(text, option)
    for part in found:
        if not re.fullmatch(r"[0-9]+", part):
            raise InputError(f"{option} has {part!r}, which is not a whole number. Give them as in {option} 1,5.")
    return [int(part) for part in found]


def settings(texts: Sequence[str], known: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``a2lp.steps=200`` and the like, as parameters for each name."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = re.fullmatch(r"([\w-]+)\.(\w+)=(.+)", text)
        if not match:
            raise InputError(f"--set {text!r} is not NAME.PARAM=VALUE. Write it as in --set a2lp.steps=200.")
        name, param, value = match.groups()
        if name not in known:
            raise UnknownNameError("name in --set:", name, known)
        found.setdefault(name, {})[param] = _value(value)
    return found


def grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """``alpha=0.5,0.8`` and the like, as values for each parameter."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        match = re.fullmatch(r"(\w+)=(.+)", text)
        if not match:
            raise InputError(f"--grid {text!r} is not PARAM=VALUE,VALUE. Write it as in --grid alpha=0.5,0.8.")
        values = _value(f"({match[2]},)")
        found[match[1]] = list(values) if isinstance(values, tuple) else names(match[2], "--grid")
    if not found:
        raise InputError("a sweep needs something to vary. Give it at least one --grid, such as --grid alpha=0.5,0.8.")
    return found


def base_statistics(base: str | None, features: str) -> BaseStatistics | None:
    """Statistics of the base classes: those that were named, else those that a bundled set brings."""
    from a2lp.features import load_base
    from a2lp.features.bundled import BUNDLED, base_of

    if base is not None:
        return load_base(base)
    return base_of(features) if features in BUNDLED else None


def known_format(name: str) -> str:
    """The name, if it is one of the formats."""
    if name not in FORMATS:
        raise UnknownNameError("format", name, FORMATS)
    return name


def _value(text: str) -> Any:
    """A Python literal, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
