"""``a2lp bench``: compare methods on the same tasks."""

from __future__ import annotations

from typing import Annotated

import typer

from a2lp.cli import options
from a2lp.cli.options import option

SAVE_HELP = "Write the tasks; with several shots or samplers, one FILE_1shot.npz and so on for each."
BASELINE_HELP = "Method that differences are taken to; lp if it runs, else the first; none for all."
LIMIT_HELP = "Stop a cell after so many seconds of prediction, and compare on the tasks that it did."


def bench(
    features: options.Features = "cub",
    methods: Annotated[str, option("Methods, or all that can run here; see `a2lp methods`.", "LIST|all")] = (
        "prototypical,imprinting,lp,a2lp"
    ),
    shots: options.Shots = "1,5",
    ways: options.Ways = 5,
    queries: options.Queries = 15,
    tasks: options.Tasks = 1000,
    sampler: Annotated[str, option(options.SAMPLER_HELP, "LIST")] = "balanced",
    preprocess: Annotated[str, option("Of own (each method's), l2, plc, cl2n, whiten and none.", "LIST")] = "own",
    seed: options.Seed = None,
    tasks_file: Annotated[str | None, option("Run exactly the tasks of this .npz file.", "FILE")] = None,
    save_tasks: Annotated[str | None, option(SAVE_HELP, "FILE")] = None,
    baseline: Annotated[str | None, option(BASELINE_HELP)] = None,
    limit_seconds: Annotated[float | None, option(LIMIT_HELP)] = None,
    set_: options.Settings = [],
    base: options.Base = None,
    engine: options.Engine = "auto",
    device: options.Device = "cpu",
    out: options.Out = None,
    scheduler: options.Scheduler = None,
    format: options.Format = "table",
) -> None:
    """Compare methods on the same tasks: accuracy, paired differences, ranks, seconds.

    Lists are separated by commas. With --format csv or json, stdout has that document alone. If a method fails, this is
    noted, and the others run.
    """
    options.require_name("format", format, options.FORMATS)
    names = options.names(methods, "--methods")

    from a2lp.bench.comparison import ALL, compare
    from a2lp.cli import output
    from a2lp.tasks.lists import TaskList

    saved = None if tasks_file is None else TaskList.load(tasks_file)
    if saved is not None:
        note = "decides the tasks; --shots, --ways, --queries, --tasks, --sampler and --seed do not apply."
        typer.echo(f"note: {tasks_file} {note}", err=True)
    with output.running("bench", scheduler) as (progress, cluster):
        found = compare(
            features,
            ALL if names == [ALL] else names,
            n_shot=options.whole_numbers(shots, "--shots"),
            n_way=ways,
            n_query=queries,
            n_tasks=tasks,
            sampler=options.names(sampler, "--sampler"),
            seed=seed,
            tasks=saved,
            preprocess=options.names(preprocess, "--preprocess"),
            params=options.settings(set_),
            base=base,
            baseline=baseline,
            limit=limit_seconds,
            engine=engine,
            device=device,
            out=out,
            save_tasks=save_tasks,
            progress=progress,
            cluster=cluster,
        )
    output.emit(format, found.rows, found.table)
    if found.report is not None:
        typer.echo(f"report: {found.report}", err=True)
