"""``a2lp reproduce``: all cells of the paper's tables that the features at hand allow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from a2lp.cli import options


def reproduce(
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of feature files such as cub_resnet12_test.npz, beside the bundled sets; may be repeated.",
            metavar="DIR",
        ),
    ] = None,
    out: Annotated[
        str,
        typer.Option(help="Folder for records, tables and report; a run that was interrupted goes on.", metavar="DIR"),
    ] = "results",
    tasks: options.Tasks = 1000,
) -> None:
    """Run every cell of the paper's tables that the features allow, then write the tables and a report.

    Files are named after dataset (mini, tiered, cifar_fs, cub), network and split, or say these in their `about`.
    """
    from a2lp.bench import paper_tables, records
    from a2lp.bench.paper_report import report_page
    from a2lp.bench.placing import place, read_records
    from a2lp.bench.reproduce import find_features, plan_cells
    from a2lp.cli import output
    from a2lp.errors import MissingExtraError

    found = find_features(data or [])
    for sentence in found.passed_over:
        output.note(f"note: passed over: {sentence}")
    store = records.RecordStore(out, ("tables.md", "tables.tex", "reproduction.html"))
    for one, features in found.sets.items():
        output.note(f"{one.title}: {features.name}, {len(features)} vectors of {features.n_classes} classes")
        output.run_cells(one.title, plan_cells(features, tasks), store)

    shelf = place(read_records(Path(out)))
    built = [paper_tables.build(number, shelf, out) for number in (1, 2, 3)]
    for name, write in (("tables.md", paper_tables.to_markdown), ("tables.tex", paper_tables.to_latex)):
        records.write_text(Path(out) / name, "\n\n".join(map(write, built)) + "\n")
    try:
        records.write_text(Path(out) / "reproduction.html", report_page(shelf, out))
    except MissingExtraError as error:
        output.note(f"note: no reproduction.html was written: {error}")
    typer.echo(
        f"{len(shelf.records)} cells are in {out}: see reproduction.html there, or `a2lp tables --records {out}`."
    )
