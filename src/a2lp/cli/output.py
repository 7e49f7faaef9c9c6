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

_PADDING = 3  # beside each column of a table
_TITLES = 22  # titles of blocks are broken into lines of this width: "seconds per 1000 tasks"


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


def run_cells(
    what: str,
    cells: Sequence[Cell],
    store: RecordStore | None,
    *,
    limit: float | None = None,
    keep_going: bool = False,
) -> list[Record]:
    """Run cells under a progress bar, after a note on how many of them were done before."""
    done = 0 if store is None else sum(cell.key in store for cell in cells)
    if store is not None and done:
        note(f"note: {done} of {len(cells)} cells are in {store.folder} and are not run again.")
    with progress_bar(what) as progress:
        return run(cells, store, progress, limit=limit, keep_going=keep_going)


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
    console.print(Text(table.title, style="bold"))
    for part in _pieces(table, console.width):
        console.print(_rich(table, part))
    for note in table.notes:
        console.print(Text(note))


def _pieces(table: tables.Table, width: int) -> Iterator[slice]:
    """Columns that fit beside the labels, as many at a time as the width allows."""
    rows = [row for block in table.blocks for row in block.rows]
    labels = 2 + _label_width(table)  # and what is left and right of the table
    start, used = 0, labels
    for i, head in enumerate(table.columns):
        texts = [line for text in head for line in text.splitlines()] + [entries[i].text for _, entries in rows]
        wide = _PADDING + max(map(len, texts))
        if i > start and used + wide > width:
            yield slice(start, i)
            start, used = i, labels
        used += wide
    yield slice(start, len(table.columns))


def _label_width(table: tables.Table) -> int:
    titles = min(_TITLES, max(len(block.title) for block in table.blocks))
    return max([titles, *(2 + len(label) for block in table.blocks for label, _ in block.rows)])


def _rich(table: tables.Table, part: slice) -> RichTable:
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("", max_width=_label_width(table))
    for group, name in table.columns[part]:
        shown.add_column(f"{group}\n{name}" if group else name, justify="right", no_wrap=True)
    for block in table.blocks:
        shown.add_row(Text(block.title, style="italic"))
        for label, entries in block.rows:
            shown.add_row(f"  {label}", *(Text(e.text, style="bold" if e.best else "") for e in entries[part]))
        shown.add_section()
    return shown


def write_bench(store: RecordStore, cells: Sequence[Cell], records: Sequence[Record], baseline: str | None) -> None:
    """Write the table, as text and as rows, and the report beside the records."""
    from a2lp.bench.bench_tables import bench_rows, bench_table
    from a2lp.bench.comparison import compare
    from a2lp.bench.report import write_report

    standings = compare(cells, records)
    folder = store.folder.parent
    write_text(folder / "table.md", tables.to_markdown(bench_table(standings, baseline)) + "\n")
    write_text(folder / "table.csv", tables.to_csv(bench_rows(standings, baseline)) + "\n")
    try:
        with progress_bar("report") as progress:
            path = write_report(cells, records, baseline, store, progress)
    except MissingExtraError as error:
        note(f"note: no report.html was written: {error}")
    else:
        note(f"report: {path}")
