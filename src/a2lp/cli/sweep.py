"""``a2lp sweep``: parameters on a grid, chosen on validation classes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from a2lp.cli import options


def sweep(
    grid: Annotated[
        list[str], typer.Option(help="A parameter and its values; may be repeated.", metavar="PARAM=VALUE,VALUE")
    ],
    method: Annotated[str, typer.Option(help="Whose parameters; see `a2lp methods`.")] = "a2lp",
    features: options.Features = "cub",
    classes: Annotated[
        str,
        typer.Option(
            help="validation: those of the set, or of the file beside it, or a fixed half of the classes. "
            "all: every class; the result is then no test result.",
            metavar="validation|all",
        ),
    ] = "validation",
    shots: options.Shots = "1,5",
    ways: options.Ways = 5,
    queries: options.Queries = 15,
    tasks: options.Tasks = 200,
    sampler: options.Sampler = "balanced",
    preprocess: Annotated[str, typer.Option(help="One of own (the method's), l2, plc, cl2n, whiten and none.")] = "own",
    seed: options.Seed = 0,
    set_: options.Settings = [],  # noqa: B006  typer copies it
    base: options.Base = None,
    engine: options.Engine = "auto",
    device: options.Device = "cpu",
    out: options.Out = None,
    format: options.Format = "table",
) -> None:
    """Try a method's parameters on a grid, and rank them by mean accuracy over the numbers of shots."""
    style = options.known_format(format)
    varied = options.grid(grid)
    settings = options.settings(set_, [method, sampler])

    from a2lp.bench import classes as classes_
    from a2lp.bench import protocol, records, tables
    from a2lp.cli import output

    store = None if out is None else records.RecordStore(out, ("sweep.md",))
    vectors, sentence = classes_.tuning_set(features, classes)
    sizes: dict[str, Any] = {
        "n_way": ways,
        "n_query": queries,
        "n_tasks": tasks,
        "seed": seed,
        "own": settings.get(sampler),
    }
    each = options.whole_numbers(shots, "--shots")
    cells = protocol.plan_sweep(
        [protocol.draw_episodes(vectors, sampler=sampler, n_shot=n_shot, **sizes) for n_shot in each],
        method,
        varied,
        params=protocol.named(preprocess) | settings.get(method, {}),
        base=options.base_statistics(base, features),
        engine=engine,
        device=device,
    )
    found = output.run_cells("sweep", cells, store)
    table = tables.sweep_table(found, list(varied))
    output.emit(style, tables.sweep_rows(found, list(varied)), table)
    output.note(sentence)
    if store is not None:
        text = f"{tables.to_markdown(table)}\n\n{sentence}\n"
        records.write_text(store.folder.parent / "sweep.md", text)
