"""``a2lp suggest``: which points to label next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a2lp.cli.classify import IMAGES_KEPT, paths_again, print_skipped
from a2lp.cli.interrupts import interruptible
from a2lp.cli.options import option
from a2lp.cli.pool_options import Force, Labels, Names, Source, Text, takes_images
from a2lp.cli.progress import progress_of_steps

if TYPE_CHECKING:
    from a2lp.labelling.labels import Task
    from a2lp.pool.suggest import Suggestion

INTO_HELP = (
    "Your table of labels, a .csv or .tsv: lines to fill in are appended, and nothing else in it changes. It is "
    "created if it does not exist."
)
SHEET_HELP = "Also write a page with the pictures, and fields for their labels."
AUDITS_HELP = (
    "The share that is drawn at random, once there are labels or names. Such points make the estimate of the accuracy "
    "reliable."
)


@takes_images
def suggest(
    source: Source,
    into: Annotated[Path | None, option(INTO_HELP, "FILE")] = None,
    labels: Labels = [],
    names: Names = None,
    text: Text = None,
    out: Annotated[Path | None, option("A new table to fill in, a .csv.", "FILE")] = None,
    sheet: Annotated[Path | None, option(SHEET_HELP, "PAGE.html")] = None,
    n: Annotated[int, option("How many points.", "N", "-n")] = 20,
    audits: Annotated[float, option(AUDITS_HELP, "SHARE")] = 0.1,
    force: Force = False,
    seed: Annotated[int, option("Seed of all random choices.")] = 0,
    *,
    how: Any,
) -> None:
    """Choose the images or vectors of SOURCE to label next, with or without labels so far.

    The table has a line for each of them, with its key, an empty label for you to fill in, and why it was chosen. Lines
    without a label are ignored.
    """
    from a2lp.labelling import suggest_files
    from a2lp.labelling.hints import classify_command, sheet_table

    with interruptible(IMAGES_KEPT), progress_of_steps() as progress:
        task, found = suggest_files(
            source,
            labels,
            how,
            names=names,
            text=text,
            into=into,
            out=out,
            sheet=sheet,
            n=n,
            audits=audits,
            force=force,
            seed=seed,
            progress=progress,
        )
    print_skipped(task)
    _print_suggestions(task, found)
    tables = [*labels, *(str(path) for path in (into, out) if path is not None)]
    if into is not None or out is not None:
        typer.echo(f"Next: fill in the column label of {into or out}, then{paths_again(source)}")
        typer.echo(f"    {classify_command(source, tables, how, names, text)}")
        if sheet is None and task.points.paths is not None:
            typer.echo("To see the pictures and type beside them, add --sheet sheet.html.")
    if sheet is not None:
        saved = sheet_table(sheet)
        typer.echo(
            f"{'Or' if into or out else 'Next:'} open {sheet}, type the labels and save them here as {saved}, then"
        )
        typer.echo(f"    {classify_command(source, [*tables, saved], how, names, text)}")


def _print_suggestions(task: Task, found: Suggestion) -> None:
    for row, why in zip(found.rows.tolist(), found.why, strict=True):
        typer.echo(f"{task.keys[row]}\t{why}")
    if count := found.how.count("audit"):
        typer.echo(f"{count} of them were drawn at random, to check the accuracy; the table marks them as audit.")
    if found.expected is None:
        typer.echo("There is no forecast of the gain yet, since there are no labels.")
    else:
        gain = f"{100 * found.expected:.1f} points (a rough forecast)"
        typer.echo(f"Labels of these {len(found.rows)} should raise the accuracy on the rest by about {gain}.")
