"""``a2lp tables``: the paper's tables, with our numbers from records."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from a2lp.cli.options import option, require_name

RESULTS = "results"
RECORDS_HELP = f"Folder of an earlier --out; {RESULTS} where there is one, else published numbers alone."


def tables(
    records: Annotated[str | None, option(RECORDS_HELP, "DIR")] = None,
    table: Annotated[str, option("1, 2, 3 or all.", "NUMBER")] = "all",
    format: Annotated[str, option("What is printed: terminal, markdown, latex or html.", "NAME")] = "terminal",
    trace: Annotated[bool, option("List the record of each of our numbers instead.", None, "--trace")] = False,
) -> None:
    """Print the paper's tables: the published numbers, and ours from records.

    A cell without a record is shown as a dash; the command that measures it is printed below the table.
    """
    require_name("table", table, ("1", "2", "3", "all"))
    require_name("format", format, ("terminal", "markdown", "latex", "html"))

    from a2lp.bench import paper_report, paper_tables
    from a2lp.bench.paper_records import select_records
    from a2lp.bench.records import read_records
    from a2lp.bench.tables import to_latex, to_markdown
    from a2lp.cli.output import print_table

    folder = records or (RESULTS if Path(RESULTS).is_dir() else None)
    ours = select_records([] if folder is None else read_records(folder))
    for reason, count in ours.left_out.items():
        typer.echo(f"note: {count} of the records of {folder} are not in the tables: {reason}.", err=True)
    numbers = paper_tables.NUMBERS if table == "all" else (int(table),)
    made = [paper_tables.paper_table(number, ours, folder or RESULTS) for number in numbers]
    if trace:
        typer.echo("\n".join(line for one in made for line in paper_tables.trace(one)))
    elif format == "html":
        typer.echo(paper_report.tables_page(made, ours))
    elif format == "terminal":
        for one in made:
            narrow = tuple((group.replace("ImageNet", "\nImageNet"), name) for group, name in one.columns)
            print_table(dataclasses.replace(one, columns=narrow))
            typer.echo()
    else:
        typer.echo("\n\n".join(map(to_markdown if format == "markdown" else to_latex, made)))
