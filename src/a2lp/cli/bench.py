"""``a2lp bench``: the paper's comparison, on any features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a2lp.cli import options
from a2lp.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from a2lp.bench.protocol import Episodes
    from a2lp.features import FeatureSet

ALL = "all"


def bench(
    features: options.Features = "cub",
    methods: Annotated[
        str, typer.Option(help="Methods, or all that can run here; see `a2lp methods`.", metavar="LIST|all")
    ] = "prototypical,imprinting,lp,a2lp",
    shots: options.Shots = "1,5",
    ways: options.Ways = 5,
    queries: options.Queries = 15,
    tasks: options.Tasks = 1000,
    sampler: options.Samplers = "balanced",
    preprocess: Annotated[
        str, typer.Option(help="Of own (each method's), l2, plc, cl2n, whiten and none.", metavar="LIST")
    ] = "own",
    seed: options.Seed = 0,
    tasks_file: Annotated[
        str | None, typer.Option(help="Run exactly the tasks of this .npz file.", metavar="FILE")
    ] = None,
    save_tasks: Annotated[
        str | None,
        typer.Option(
            help="Write the tasks; with several shots or samplers, one FILE_1shot.npz and so on for each.",
            metavar="FILE",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="Method that differences are taken to; lp if it runs, else the first; of all, none."),
    ] = None,
    limit_seconds: Annotated[
        float | None,
        typer.Option(help="Stop a cell after so many seconds of prediction, and compare on the tasks that it did."),
    ] = None,
    set_: options.Settings = [],  # noqa: B006  typer copies it
    base: options.Base = None,
    engine: options.Engine = "auto",
    device: options.Device = "cpu",
    out: options.Out = None,
    format: options.Format = "table",
) -> None:
    """Compare methods on the same tasks: accuracy, paired differences, ranks, seconds.

    Lists are separated by commas. With --format csv or json, stdout has that document alone. A method that fails is
    noted, and the others go on.
    """
    style = options.known_format(format)
    asked = options.names(methods, "--methods")
    samplers = options.names(sampler, "--sampler")

    from a2lp.bench import bench_tables, comparison, protocol, records
    from a2lp.cli import output
    from a2lp.features import load
    from a2lp.methods.registry import methods as registered

    names = list(registered()) if asked == [ALL] else asked
    settings = options.settings(set_, [*names, *samplers])
    if baseline is not None and baseline not in names:
        raise UnknownNameError("baseline", baseline, names)
    if limit_seconds is not None and not limit_seconds > 0:
        raise InputError(f"--limit-seconds {limit_seconds} must be positive. Leave it out for no limit.")
    store = None if out is None else records.RecordStore(out, ("table.md", "table.csv", "report.html"))
    vectors = load(features)
    if tasks_file is None:
        sizes: dict[str, Any] = {"n_way": ways, "n_query": queries, "n_tasks": tasks, "seed": seed}
        episodes = [
            protocol.draw_episodes(vectors, sampler=one, n_shot=n_shot, own=settings.get(one), **sizes)
            for one in samplers
            for n_shot in options.whole_numbers(shots, "--shots")
        ]
    else:
        episodes = [_from_file(vectors, tasks_file)]
    if save_tasks is not None:
        _save(episodes, Path(save_tasks))
    statistics = options.base_statistics(base, features)
    preprocessings = options.names(preprocess, "--preprocess")
    if asked == [ALL]:
        names, left_out = protocol.all_that_run(preprocessings, settings, statistics)
        for sentence in left_out:
            output.note(f"note: {sentence}")
    cells = protocol.plan(
        episodes, names, preprocessings, settings=settings, base=statistics, engine=engine, device=device
    )
    found = output.run_cells("bench", cells, store, limit=limit_seconds, keep_going=True)
    standings = comparison.compare(cells, found)
    against = baseline if asked == [ALL] else bench_tables.choose_baseline(names, baseline)
    output.emit(style, bench_tables.bench_rows(standings, against), bench_tables.bench_table(standings, against))
    if store is not None:
        output.write_bench(store, cells, found, against)


def _from_file(vectors: FeatureSet, path: str) -> Episodes:
    from a2lp.bench.protocol import given_episodes
    from a2lp.cli.output import note
    from a2lp.tasks.lists import TaskList

    tasks = TaskList.load(path)
    note(f"note: {path} decides the tasks; --shots, --ways, --queries, --tasks, --sampler and --seed do not apply.")
    return given_episodes(vectors, tasks)


def _save(episodes: list[Episodes], path: Path) -> None:
    several = len({each.config["sampler"] for each in episodes}) > 1
    for each in episodes:
        sampler = f"_{each.config['sampler']}" if several else ""
        shots = f"_{each.tasks.n_shot}shot" if len(episodes) > 1 else ""
        each.tasks.save(path.with_name(f"{path.stem}{sampler}{shots}{path.suffix or '.npz'}"))
