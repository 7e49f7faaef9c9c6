"""``a2lp bench``: the paper's comparison, on any features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a2lp.cli import options
from a2lp.errors import UnknownNameError

if TYPE_CHECKING:
    from a2lp.bench.protocol import Episodes
    from a2lp.features import FeatureSet


def bench(
    features: options.Features = "cub",
    methods: Annotated[str, typer.Option(help="Methods; see `a2lp methods`.", metavar="LIST")] = (
        "prototypical,imprinting,lp,a2lp"
    ),
    shots: options.Shots = "1,5",
    ways: options.Ways = 5,
    queries: options.Queries = 15,
    tasks: options.Tasks = 1000,
    sampler: options.Sampler = "balanced",
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
            help="Write the tasks; with several shots, one FILE_1shot.npz and so on for each.", metavar="FILE"
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Method that differences are taken to; lp if it runs, else the first.")
    ] = None,
    set_: options.Settings = [],  # noqa: B006  typer copies it
    base: options.Base = None,
    engine: options.Engine = "auto",
    device: options.Device = "cpu",
    out: options.Out = None,
    format: options.Format = "table",
) -> None:
    """Compare methods on the same tasks: accuracy, paired differences, seconds.

    Lists are separated by commas. With --format csv or json, stdout has that document alone.
    """
    style = options.known_format(format)
    chosen = options.names(methods, "--methods")
    settings = options.settings(set_, [*chosen, sampler])
    of_sampler = settings.pop(sampler, {})
    if baseline is not None and baseline not in chosen:
        raise UnknownNameError("baseline", baseline, chosen)

    from a2lp.bench import protocol, records, tables
    from a2lp.cli import output
    from a2lp.features import load, load_base

    store = None if out is None else records.RecordStore(out)
    vectors = load(features)
    if tasks_file is None:
        sizes: dict[str, Any] = {"n_way": ways, "n_query": queries, "n_tasks": tasks, "seed": seed, "own": of_sampler}
        each = options.whole_numbers(shots, "--shots")
        episodes = [protocol.draw_episodes(vectors, sampler=sampler, n_shot=n_shot, **sizes) for n_shot in each]
    else:
        episodes = [_from_file(vectors, tasks_file)]
    if save_tasks is not None:
        _save(episodes, Path(save_tasks))
    cells = protocol.plan(
        episodes,
        chosen,
        options.names(preprocess, "--preprocess"),
        settings=settings,
        base=None if base is None else load_base(base),
        engine=engine,
        device=device,
    )
    found = output.run_cells("bench", cells, store)
    against = tables.choose_baseline(chosen, baseline)
    table = tables.bench_table(found, against)
    output.emit(style, tables.bench_rows(found, against), table)
    if store is not None:
        output.write_bench(store, cells, found, against)


def _from_file(vectors: FeatureSet, path: str) -> Episodes:
    from a2lp.bench.protocol import given_episodes
    from a2lp.cli.output import note
    from a2lp.tasks.lists import TaskList

    tasks = TaskList.load(path)
    note(f"note: {path} decides the tasks; --shots, --ways, --queries, --tasks, --sampler and --seed do not apply.")
    return given_episodes(vectors, tasks)


def _save(episodes: list[Any], path: Path) -> None:
    for each in episodes:
        shots = f"_{each.tasks.n_shot}shot" if len(episodes) > 1 else ""
        each.tasks.save(path.with_name(f"{path.stem}{shots}{path.suffix or '.npz'}"))
