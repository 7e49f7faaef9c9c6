"""``a2lp doctor``: the machine, the engines, and whether they compute what they should."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a2lp.errors import UnknownNameError

if TYPE_CHECKING:
    from rich.console import Console

    from a2lp.doctor import Report

FORMATS = ("table", "json")


def doctor(
    ways: Annotated[int, typer.Option(help="Classes of a task.")] = 5,
    shots: Annotated[int, typer.Option(help="Labelled examples per class.")] = 1,
    queries: Annotated[int, typer.Option(help="Queries per class.")] = 15,
    dims: Annotated[int, typer.Option(help="Length of a vector.")] = 640,
    format: Annotated[str, typer.Option(help="What is printed: table or json.", metavar="NAME")] = "table",
) -> None:
    """Look at this machine, say which engine a task would run on and why, and try each engine.

    Every engine of every method with an inner loop is compared with the plainest one, in float64, on a few small random
    tasks. The first run compiles the kernels and takes a minute. The exit code is 1 if an engine is wrong.
    """
    if format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)

    from rich.console import Console

    from a2lp.doctor import examine

    with Console(stderr=True).status("") as status:
        report = examine(ways, shots, queries, dims, progress=status.update)
    if format == "json":
        typer.echo(json.dumps(_plain(report), indent=1))
    else:
        _print(report, Console(highlight=False))
    if not report.passed:
        raise typer.Exit(1)


def _plain(report: Report) -> dict[str, Any]:
    lists = {name: [row._asdict() for row in getattr(report, name)] for name in ("choices", "checks")}
    return report._asdict() | lists | {"passed": report.passed}


def _print(report: Report, console: Console) -> None:
    from rich.text import Text

    from a2lp.doctor import STEPS

    machine, task = report.machine, report.task
    facts = {
        "processor": f"{machine['cpu']}, {machine['cores']} cores",
        "vectors": f"{machine['vectors']} (fused_cpu)",
        "GPU": machine["gpu"] or "none that torch sees",
        **{name: found or "not installed" for name, found in report.versions.items()},
    }
    console.print(_rows(facts.items()))
    shape = "{ways}-way {shots}-shot, {queries} queries a class, {dims} dimensions, float32".format(**task)
    console.print(Text(f"\nEngine for {shape}", style="bold"))
    chosen = ((one.arrays, f"{one.engine}: {one.reason}" if one.engine else one.reason) for one in report.choices)
    console.print(_rows(chosen))
    console.print(Text("\nCompiled kernels", style="bold"))
    console.print(_rows(report.kernels.items()))
    title = f"Each engine against the plainest one: largest difference of probabilities after {STEPS} steps"
    console.print(Text(f"\n{title}", style="bold"))
    console.print(_checks(report))
    failed, tried = sum(not check.passed for check in report.checks), len(report.checks)
    console.print(Text(f"{failed} of {tried} failed" if failed else f"all {tried} passed", style="bold"))


def _rows(pairs: Any) -> Any:
    """Names and what is said of each, broken to the width of the screen."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=10, no_wrap=True)
    table.add_column()
    for name, text in pairs:
        table.add_row(Text(f" {name}"), Text(text))
    return table


def _checks(report: Report) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in (" method", "engine", "arrays"):
        table.add_column(name, no_wrap=True)
    table.add_column("difference", justify="right", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("")
    verdicts = {True: ("passed", "green"), False: ("FAILED", "bold red")}
    for check in report.checks:
        verdict, style = verdicts[check.passed]
        table.add_row(
            f" {check.method}",
            check.engine,
            f"{check.arrays}, {check.precision}",
            "" if check.difference is None else f"{check.difference:.1e}",
            f"{check.seconds:.2f}",
            Text(f"{verdict}: {check.note}" if check.note else verdict, style=style),
        )
    return table
