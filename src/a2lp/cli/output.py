"""Results of the bench in the terminal: a progress bar on stderr, a table on stdout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from a2lp.bench import tables
from a2lp.bench.protocol import Cell
from a2lp.bench.run import Progress
from a2lp.cli.interrupts import interruptible
from a2lp.cli.progress import bar_on_stderr, cluster_progress
from a2lp.scale import Cluster

_KEPT = "with --out, finished cells are kept, and the same command continues from there"
_PADDING = 3  # beside each column of a table
_TITLES = 22  # titles of sections are broken into lines of this width: "seconds per 1000 tasks"


@contextmanager
def running(what: str, scheduler: str | None) -> Iterator[tuple[Progress, Cluster | None]]:
    """A bar on stderr for the tasks of one cell after the other, and a cluster, if one is named, with a bar for it."""
    with interruptible(_KEPT), bar_on_stderr() as (console, bar, task):

        def report(cell: Cell, done: int) -> None:
            n_tasks = len(cell.episodes.tasks)
            if done == 0:
                bar.reset(task, total=n_tasks, description=f"{what}: {cell.label}")
            bar.update(task, completed=done)
            if done == n_tasks and not console.is_terminal:  # a log file
                typer.echo(f"{what}: {cell.label}: {done} tasks done", err=True)

        if scheduler is None:
            yield report, None
            return
        with Cluster(scheduler, cluster_progress(what, "blocks", console, bar, task)) as cluster:
            yield report, cluster


def emit(style: str, rows: Sequence[tables.FlatRow], table: tables.Table) -> None:
    """Print a result in one of the formats."""
    if style == "table":
        print_table(table)
    elif style in ("json", "csv"):
        typer.echo(tables.to_json(rows) if style == "json" else tables.to_csv(rows))
    else:
        typer.echo(tables.to_markdown(table) if style == "markdown" else tables.to_latex(table))


def print_table(table: tables.Table) -> None:
    """Print a table in the terminal, in as many pieces as its width needs, with its notes and commands."""
    console = Console()
    console.print(Text(table.title, style="bold"))
    rows = [row for section in table.sections for row in section.rows]
    titles = min(_TITLES, max(len(section.title) for section in table.sections))
    label_width = max([titles, *(2 + len(row.label) for row in rows)])
    start, used = 0, 2 + label_width  # with the margins
    for i, head in enumerate(table.columns):
        texts = [line for text in head for line in text.splitlines()] + [row.entries[i].text for row in rows]
        width = _PADDING + max(map(len, texts))
        if i > start and used + width > console.width:
            console.print(_rich_table(table, slice(start, i), label_width))
            start, used = i, 2 + label_width
        used += width
    console.print(_rich_table(table, slice(start, len(table.columns)), label_width))
    for text in table.notes:
        console.print(Text(text))
    for what, command in table.commands:
        typer.echo(f"– {what}:\n    {command}")  # not wrapped, so that it can be copied


def _rich_table(table: tables.Table, columns: slice, label_width: int) -> RichTable:
    rich_table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    rich_table.add_column("", max_width=label_width)
    for group, name in table.columns[columns]:
        rich_table.add_column(f"{group}\n{name}" if group else name, justify="right", no_wrap=True)
    for section in table.sections:
        rich_table.add_row(Text(section.title, style="italic"))
        for row in section.rows:
            entries = (Text(entry.text, style="bold" if entry.best else "") for entry in row.entries[columns])
            rich_table.add_row(f"  {row.label}", *entries)
        rich_table.add_section()
    return rich_table
