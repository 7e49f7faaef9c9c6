"""What the commands of the bench show: a progress bar and notes on stderr, a table on stdout."""

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
from a2lp.cli.progress import bar_on_stderr

_PADDING = 3  # beside each column of a table
_TITLES = 22  # titles of sections are broken into lines of this width: "seconds per 1000 tasks"


def note(text: str) -> None:
    """Print something that is not part of the result."""
    typer.echo(text, err=True)


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """A bar on stderr for the tasks of one cell after the other."""
    with bar_on_stderr() as (console, bar, task):

        def report(cell: Cell, done: int) -> None:
            if done == 0:
                bar.reset(task, total=len(cell.episodes.tasks), description=f"{what}: {cell.label}")
            bar.update(task, completed=done)
            if done == len(cell.episodes.tasks) and not console.is_terminal:  # a log, not a screen
                note(f"{what}: {cell.label}: {done} tasks done")

        yield report


def emit(style: str, rows: Sequence[tables.FlatRow], table: tables.Table) -> None:
    """Print a result in one of the formats."""
    if style == "json":
        typer.echo(tables.to_json(rows))
    elif style == "csv":
        typer.echo(tables.to_csv(rows))
    elif style == "markdown":
        typer.echo(tables.to_markdown(table))
    elif style == "latex":
        typer.echo(tables.to_latex(table))
    else:
        print_table(table)


def print_table(table: tables.Table) -> None:
    """Print a table in the terminal, in as many pieces as its width needs, with its notes and commands."""
    console = Console()
    console.print(Text(table.title, style="bold"))
    for part in _pieces(table, console.width):
        console.print(_rich(table, part))
    for text in table.notes:
        console.print(Text(text))
    for what, command in table.commands:
        typer.echo(f"– {what}:\n    {command}")  # not wrapped, so that it can be copied


def _pieces(table: tables.Table, width: int) -> Iterator[slice]:
    """Columns that fit beside the labels, as many at a time as the width allows."""
    rows = [row for section in table.sections for row in section.rows]
    labels = 2 + _label_width(table)  # and what is left and right of the table
    start, used = 0, labels
    for i, head in enumerate(table.columns):
        texts = [line for text in head for line in text.splitlines()] + [row.entries[i].text for row in rows]
        wide = _PADDING + max(map(len, texts))
        if i > start and used + wide > width:
            yield slice(start, i)
            start, used = i, labels
        used += wide
    yield slice(start, len(table.columns))


def _label_width(table: tables.Table) -> int:
    titles = min(_TITLES, max(len(section.title) for section in table.sections))
    return max([titles, *(2 + len(row.label) for section in table.sections for row in section.rows)])


def _rich(table: tables.Table, part: slice) -> RichTable:
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("", max_width=_label_width(table))
    for group, name in table.columns[part]:
        shown.add_column(f"{group}\n{name}" if group else name, justify="right", no_wrap=True)
    for section in table.sections:
        shown.add_row(Text(section.title, style="italic"))
        for row in section.rows:
            shown.add_row(f"  {row.label}", *(Text(e.text, style="bold" if e.best else "") for e in row.entries[part]))
        shown.add_section()
    return shown
