"""``a2lp sweep``: parameters on a grid, chosen on validation classes."""

from __future__ import annotations

from typing import Annotated

import typer

from a2lp.cli import options
from a2lp.cli.options import option

CLASSES_HELP = (
    "validation: those of the set, or of the file beside it, or a fixed half of the classes. all: every class; the "
    "result is then not a test result."
)


def sweep(
    grid: Annotated[list[str], option("A parameter and its values; may be repeated.", "PARAM=VALUE,VALUE")],
    method: Annotated[str, option("The method; see `a2lp methods`.")] = "a2lp",
    features: options.Features = "cub",
    classes: Annotated[str, option(CLASSES_HELP, "validation|all")] = "validation",
    shots: options.Shots = "1,5",
    ways: options.Ways = 5,
    queries: options.Queries = 15,
    tasks: options.Tasks = 200,
    sampler: Annotated[str, option(options.SAMPLER_HELP)] = "balanced",
    preprocess: Annotated[str, option("One of own (the method's), l2, plc, cl2n, whiten and none.")] = "own",
    seed: options.Seed = None,
    set_: options.Settings = [],
    base: options.Base = None,
    engine: options.Engine = "auto",
    device: options.Device = "cpu",
    out: options.Out = None,
    scheduler: options.Scheduler = None,
    format: options.Format = "table",
) -> None:
    """Try a method's parameters on a grid, and rank them by mean accuracy over the numbers of shots."""
    options.require_name("format", format, options.FORMATS)
    values = options.grid(grid)

    from a2lp.bench import sweep
    from a2lp.cli import output

    with output.running("sweep", scheduler) as (progress, cluster):
        found = sweep(
            method,
            values,
            features,
            classes=classes,
            n_shot=options.whole_numbers(shots, "--shots"),
            n_way=ways,
            n_query=queries,
            n_tasks=tasks,
            sampler=sampler,
            seed=seed,
            preprocess=preprocess,
            params=options.settings(set_),
            base=base,
            engine=engine,
            device=device,
            out=out,
            progress=progress,
            cluster=cluster,
        )
    output.emit(format, found.rows, found.table)
    typer.echo(found.classes, err=True)
