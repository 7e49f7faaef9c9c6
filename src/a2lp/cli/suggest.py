"""``a2lp suggest``: which points to label next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from a2lp.cli.classify import (
    Backbone,
    Cache,
    Device,
    Labels,
    OnCorrupt,
    Source,
    View,
    Weights,
    explaining_interruptions,
    progress_bar,
)

if TYPE_CHECKING:
    from a2lp.labelling.labels import Task
    from a2lp.pool.suggest import Suggestion


def suggest(
    source: Source,
    out: Annotated[Path, typer.Option(help="The table to write, a .csv.", metavar="FILE")],
    labels: Labels = [],  # noqa: B006  typer copies it
    n: Annotated[int, typer.Option("-n", help="How many points.", metavar="N")] = 20,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
    backbone: Backbone = "efficientnet_lite0",
    weights: Weights = None,
    view: View = None,
    device: Device = "auto",
    on_corrupt: OnCorrupt = "refuse",
    cache: Cache = None,
    seed: Annotated[int, typer.Option(help="Decides between points of equal value.")] = 0,
) -> None:
    """Choose the images or vectors of SOURCE to label next, with or without labels so far.

    OUT gets a line for each: its key, an empty label for you to fill in, and why it was chosen. Filled in, it can be
    given to --labels.
    """
    from a2lp.labelling import Embedding, suggest_files

    how = Embedding(backbone, weights, view, device, on_corrupt, cache)
    with explaining_interruptions(), progress_bar() as progress:
        task, found = suggest_files(source, labels, out, how, n=n, force=force, seed=seed, progress=progress)
    for key in task.points.skipped:
        typer.echo(f"skipped, since it cannot be read: {key}", err=True)
    _print_suggestions(task, found, out)


def _print_suggestions(task: Task, found: Suggestion, out: Path) -> None:
    for row, why in zip(found.rows.tolist(), found.why, strict=True):
        typer.echo(f"{task.keys[row]}\t{why}")
    count = len(found.rows)
    if found.expected is None:
        typer.echo("There is no forecast of their effect yet: without labels, the number of classes is unknown.")
    else:
        points = f"{100 * found.expected:.1f} points"
        typer.echo(f"These {count} should raise the accuracy on the rest by about {points}, a rough forecast.")
    typer.echo(f"Next: fill in the column label of {out}, and add `--labels {out}` to the command.")
