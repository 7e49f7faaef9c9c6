"""``a2lp doctor``: the machine, the engines, and whether they compute correct results."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from a2lp.cli.options import option, require_name

if TYPE_CHECKING:
    from a2lp.doctor import Report


def doctor(
    ways: Annotated[int, option("Classes of a task.")] = 5,
    shots: Annotated[int, option("Labelled examples per class.")] = 1,
    queries: Annotated[int, option("Queries per class.")] = 15,
    dims: Annotated[int, option("Length of a vector.")] = 640,
    format: Annotated[str, option("What is printed: table or json.", "NAME")] = "table",
) -> None:
    """Examine this machine, report which engine a task would run on and why, and test each engine.

    Every engine of every method with an inner loop is compared with the simplest one, in float64, on a few small random
    tasks. The first run compiles the kernels and takes a minute. The exit code is 1 if an engine is wrong.
    """
    require_name("format", format, ("table", "json"))

    from a2lp.doctor import examine

    with Console(stderr=True).status("") as status:
        report = examine(ways, shots, queries, dims, progress=status.update)
    if format == "json":
        lists = {name: [row._asdict() for row in getattr(report, name)] for name in ("choices", "checks")}
        typer.echo(json.dumps(report._asdict() | lists | {"passed": report.passed}, indent=1))
    else:
        _print(report)
    if not report.passed:
        raise typer.Exit(1)


def _print(report: Report) -> None:
    from a2lp.doctor import STEPS

    console, machine = Console(highlight=False), report.machine
    facts = {
        "processor": f"{machine['cpu']}, {machine['cores']} cores",
        "vectors": f"{machine['vectors']} (fused_cpu)",
        "GPU": machine["gpu"] or "none that torch sees",
        **{name: found or "not installed" for name, found in report.versions.items()},
    }
    console.print(_rows(facts.items()))
    shape = "{ways}-way {shots}-shot, {queries} queries a class, {dims} dimensions, float32".format(**report.task)
    console.print(Text(f"\nEngine for {shape}", style="bold"))
    chosen = ((one.arrays, f"{one.engine}: {one.reason}" if one.engine else one.reason) for one in report.choices)
    console.print(_rows(chosen))
    console.print(Text("\nCompiled kernels", style="bold"))
    console.print(_rows(report.kernels.items()))
    title = f"Each engine against the plainest one: largest difference of probabilities after {STEPS} steps"
    console.print(Text(f"\n{title}", style="bold"))
    table = Table(" method", "engine", "arrays", "difference", "seconds", "", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns[:5]:
        column.no_wrap = True
    for column in table.columns[3:5]:
        column.justify = "right"
    for check in report.checks:
        verdict, style = ("passed", "green") if check.passed else ("FAILED", "bold red")
        table.add_row(
            f" {check.method}",
            check.engine,
            f"{check.arrays}, {check.precision}",
            "" if check.difference is None else f"{check.difference:.1e}",
            f"{check.seconds:.2f}",
            Text(f"{verdict}: {check.note}" if check.note else verdict, style=style),
        )
    console.print(table)
    failed, tried = sum(not check.passed for check in report.checks), len(report.checks)
    console.print(Text(f"{failed} of {tried} failed" if failed else f"all {tried} passed", style="bold"))


def _rows(pairs: Iterable[tuple[str, str]]) -> Table:
    """Names and texts in two columns, wrapped to the width of the terminal."""
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=10, no_wrap=True)
    table.add_column()
    for name, text in pairs:
        table.add_row(Text(f" {name}"), Text(text))
    return table
