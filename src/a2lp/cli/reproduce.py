"""``a2lp reproduce``: all cells of the paper's tables for which there are features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from a2lp.cli import options
from a2lp.cli.options import option

DATA_HELP = "Folder of feature files such as cub_resnet12_test.npz, beside the bundled sets; may be repeated."
OUT_HELP = "Folder for records, tables and report; an interrupted run continues."


def reproduce(
    data: Annotated[list[Path] | None, option(DATA_HELP, "DIR")] = None,
    out: Annotated[str, option(OUT_HELP, "DIR")] = "results",
    tasks: options.Tasks = 1000,
    scheduler: options.Scheduler = None,
) -> None:
    """Run every cell of the paper's tables for which there are features, then write the tables and a report.

    Files are named after dataset (mini, tiered, cifar_fs, cub), network and split, or have these in their `about`.
    """
    from a2lp.bench import reproduce
    from a2lp.cli.output import running

    with running("reproduce", scheduler) as (progress, cluster):
        found = reproduce(data or (), out, n_tasks=tasks, progress=progress, cluster=cluster)
    count = len(found.records)
    typer.echo(f"{count} cells are in {out}: see reproduction.html there, or `a2lp tables --records {out}`.")
