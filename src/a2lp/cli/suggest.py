"""``a2lp suggest``: which points to label next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from a2lp.cli.classify import (
    Backbone,
    Cache,
    Device,
    OnCorrupt,
    Source,
    View,
    Weights,
    progress_bar,
    saying_how_to_go_on,
)

if TYPE_CHECKING:
    from a2lp.label.tool import Task
    from a2lp.pool.suggest import Suggestion


def suggest(
    source: Source,
    out: Annotated[Path, typer.Option(help="The table to write, a .csv.", metavar="FILE")],
    labels: Annotated[
        str | None,
        typer.Option(
            help="The labels there are, as for classify; none, and the typical points come first.", metavar="FILE|DIR"
        ),
    ] = None,
    n: Annotated[int, typer.Option("-n", help="How many points.", metavar="N")] = 20,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT where it exists.")] = False,
    backbone: Backbone = "efficientnet_lite0",
    weights: Weights = None,
    view: View = None,
    device: Device = "auto",
    on_corrupt: OnCorrupt = "refuse",
    cache: Cache = None,
    seed: Annotated[int, typer.Option(help="Decides between points that are worth the same.")] = 0,
) -> None:
    """Say which images or vectors of SOURCE to label next, from no label on.

    OUT gets a line for each: its key, an empty label for you to fill in, and why it was chosen. Filled in, it can be
    given to --labels.
    """
    from a2lp.label.sources import Embedding
    from a2lp.label.suggest import suggest_files

    how = Embedding(backbone, weights, view, device, on_corrupt, cache)
    with saying_how_to_go_on(), progress_bar() as progress:
        task, found = suggest_files(source, labels, out, how, n=n, force=force, seed=seed, progress=progress)
    for key in task.skipped:
        typer.echo(f"skipped, since it cannot be read: {key}", err=True)
    _print_suggestions(task, found, out)


def _print_suggestions(task: Task, found: Suggestion, out: Path) -> None:
    for row, why in zip(found.rows.tolist(), found.why, strict=True):
        typer.echo(f"{task.keys[row]}\t{why}")
    count = len(found.rows)
    if found.expected is None:
        typer.echo("What they will bring depends on how many classes there are, which no label tells yet.")
    else:
        points = f"{100 * found.expected:.1f} points"
        typer.echo(f"These {count} should raise the accuracy on the rest by about {points}, a rough forecast.")
    typer.echo(f"Next: fill in the column label of {out} and add its lines to your labels.")
