"""``a2lp meta-train``: the trained part of a method, from features of base classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from a2lp.cli.options import whole_numbers
from a2lp.cli.progress import bar_on_stderr

if TYPE_CHECKING:
    from a2lp.meta.training import Look


def meta_train(
    method: Annotated[str, typer.Argument(help="sib, sib_e3bm, tpn_learned, can or dpgn.", metavar="METHOD")],
    features: Annotated[str, typer.Option(help="Labelled features of the base classes.", metavar="NAME|FILE")],
    out: Annotated[
        Path, typer.Option(help="The .safetensors file to write; a run that was killed goes on.", metavar="FILE")
    ],
    val: Annotated[
        str | None,
        typer.Option(
            help="Features of validation classes, to keep the weights that are best there; else the last are kept.",
            metavar="NAME|FILE",
        ),
    ] = None,
    shots: Annotated[
        str, typer.Option(help="Labelled examples per class; steps take them by turns.", metavar="LIST")
    ] = "1,5",
    ways: Annotated[int, typer.Option(help="Classes of an episode.")] = 5,
    queries: Annotated[int, typer.Option(help="Queries per class.")] = 15,
    spread: Annotated[
        float,
        typer.Option(
            help="How much of a base class's distance to the mean of all is kept; a backbone that was trained on "
            "them holds them too far apart. 1 leaves them alone."
        ),
    ] = 0.6,
    steps: Annotated[int | None, typer.Option(help="Steps of the optimiser.", show_default="the method's")] = None,
    batch: Annotated[int | None, typer.Option(help="Episodes of a step.", show_default="the method's")] = None,
    lr: Annotated[float | None, typer.Option(help="The rate at the start.", show_default="the method's")] = None,
    looks: Annotated[int, typer.Option(help="How often to validate and to write a checkpoint.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the start and of the episodes.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE where it is of another run.")] = False,
) -> None:
    """Train the part of a method that is learned from base classes.

    Use the result with --set METHOD.weights=FILE in bench, or with a2lp.create(METHOD, weights=FILE).
    """
    from a2lp.features import load
    from a2lp.meta.training import MetaConfig, train

    config = MetaConfig.of(
        method,
        shots=tuple(whole_numbers(shots, "--shots")),
        ways=ways,
        queries=queries,
        spread=spread,
        steps=steps,
        batch=batch,
        lr=lr,
        looks=looks,
        seed=seed,
    )
    with bar_on_stderr() as (console, bar, task):
        bar.update(task, total=config.steps, description=method)

        def report(step: int, look: Look | None) -> None:
            bar.update(task, completed=step)
            if look is not None:
                console.print(f"{method}: {_line(look)}", markup=False, soft_wrap=True)

        base, validation = load(features), None if val is None else load(val)
        found = train(config, base, out, val=validation, force=force, progress=report)
    chosen = [look for look in found if look.best][-1]
    typer.echo(f"{out}: {_line(chosen)}")


def _line(look: Look) -> str:
    """One look in words."""
    accuracies = "" if look.accuracies is None else ", " + " / ".join(f"{value:.2f}" for value in look.accuracies)
    seen = f"{accuracies} on validation classes" if accuracies else ""
    return f"step {look.step}, loss {look.loss:.4f}{seen}{' (best)' if look.best else ''}"
