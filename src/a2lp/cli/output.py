"""What commands show: a progress bar and notes on stderr, a table on stdout."""

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
from a2lp.bench.records import Record, RecordStore, write_text
from a2lp.bench.run import Progress, run
from a2lp.cli.progress import bar_on_stderr
from a2lp.errors import MissingExtraError

_ENTRY_WIDTH = 14  # "78.93 ±0.79" and its padding


def note(text: str) -> None:
    """Say something beside the result."""
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


def run_cells(what: str, cells: Sequence[Cell], store: RecordStore | None) -> list[Record]:
    """Run cells under a progress bar, after a note on how many of them were done before."""
    done = 0 if store is None else sum(cell.key in store for cell in cells)
    if store is not None and done:
        note(f"note: {done} of {len(cells)} cells are in {store.folder} and are not run again.")
    with progress_bar(what) as progress:
        return run(cells, store, progress)


def emit(style: str, rows: Sequence[tables.Row], table: tables.Table) -> None:
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
        _print(table, Console())


def _print(table: tables.Table, console: Console) -> None:
    """The table in the terminal, in as many pieces as its width asks for."""
    label_width = 2 + max(len(label) for block in table.blocks for label, _ in block.rows)
    at_once = max(1, (console.width - label_width - 4) // _ENTRY_WIDTH)
    console.print(Text(table.title, style="bold"))
    for start in range(0, len(table.columns), at_once):
        console.print(_rich(table, slice(start, start + at_once)))


def _rich(table: tables.Table, part: slice) -> RichTable:
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("")
    for group, name in table.columns[part]:
        shown.add_column(f"{group}\n{name}" if group else name, justify="right", no_wrap=True)
    for block in table.blocks:
        shown.add_row(Text(block.title, style="italic"))
        for label, entries in block.rows:
            shown.add_row(f"  {label}", *(Text(e.text, style="bold" if e.best else "") for e in entries[part]))
        shown.add_section()
    return shown


def write_bench(store: RecordStore, cells: Sequence[Cell], records: Sequence[Record], baseline: str) -> None:
    """Write the table and the report beside the records."""
    from a2lp.bench.report import write_report

    write_text(store.folder.parent / "table.md", tables.to_markdown(tables.bench_table(records, baseline)) + "\n")
    try:
        with progress_bar("report") as progress:
            path = write_report(cells, records, baseline, store, progress)
    except MissingExtraError as error:
        note(f"note: no report.html was written: {error}")
    else:
        note(f"report: {path}")
