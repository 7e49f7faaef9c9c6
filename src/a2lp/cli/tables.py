"""``a2lp tables``: the paper's tables, with our numbers from records."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from a2lp.errors import UnknownNameError

if TYPE_CHECKING:
    from a2lp.bench.placing import Shelf

FORMATS = ("terminal", "markdown", "latex", "html")
TABLES = ("1", "2", "3", "all")
RESULTS = "results"

Records = Annotated[
    str | None,
    typer.Option(
        help=f"Folder of an earlier --out; {RESULTS} where there is one, else published numbers alone.", metavar="DIR"
    ),
]


def tables(
    records: Records = None,
    table: Annotated[str, typer.Option(help="1, 2, 3 or all.", metavar="NUMBER")] = "all",
    format: Annotated[
        str, typer.Option(help="What is printed: terminal, markdown, latex or html.", metavar="NAME")
    ] = "terminal",
    trace: Annotated[bool, typer.Option("--trace", help="List the record of every number of ours instead.")] = False,
) -> None:
    """Print the paper's tables: published numbers, and beside them ours, from records.

    A cell of ours without a record is a dash, and the command that would fill it is below the table.
    """
    for kind, name, known in (("table", table, TABLES), ("format", format, FORMATS)):
        if name not in known:
            raise UnknownNameError(kind, name, known)

    from a2lp.bench import paper_report, paper_tables
    from a2lp.cli.output import emit

    folder = records or (RESULTS if Path(RESULTS).is_dir() else None)
    shelf = _shelf(folder)
    numbers = (1, 2, 3) if table == "all" else (int(table),)
    built = [paper_tables.build(number, shelf, folder or RESULTS) for number in numbers]
    if trace:
        typer.echo("\n".join(line for one in built for line in paper_tables.trace(one)))
    elif format == "html":
        typer.echo(paper_report.tables_page(built, shelf))
    elif format == "markdown":
        typer.echo("\n\n".join(map(paper_tables.to_markdown, built)))
    elif format == "latex":
        typer.echo("\n\n".join(map(paper_tables.to_latex, built)))
    else:
        for one in built:
            plain = one.plain
            narrow = tuple((group.replace("ImageNet", "\nImageNet"), name) for group, name in plain.columns)
            emit("table", [], dataclasses.replace(plain, columns=narrow))
            notes = [*one.notes, *(f"{paper_tables.DASH} {what}:\n    {command}" for what, command in one.commands)]
            typer.echo("\n".join(notes) + "\n")


def _shelf(folder: str | None) -> Shelf:
    """The records of a folder in their places; a note says which have none."""
    from a2lp.bench.placing import place, read_records
    from a2lp.cli.output import note

    shelf = place([] if folder is None else read_records(Path(folder)))
    for reason, count in shelf.left_out.items():
        note(f"note: {count} of the records of {folder} are not in the tables: {reason}.")
    return shelf
