"""``a2lp classify``: label a handful, or name the classes, and get the rest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a2lp.cli.interrupts import interruptible
from a2lp.cli.options import option
from a2lp.cli.pool_options import Force, Labels, Names, Source, Text, takes_images
from a2lp.cli.progress import cluster_for, progress_of_steps

if TYPE_CHECKING:
    from a2lp.labelling.labelled import Labelled
    from a2lp.labelling.labels import Task
    from a2lp.pool.confidence import Estimate

IMAGES_KEPT = "embedded images are kept, and the same command continues from there"
DOUBT = 0.8
AUDIT = 50  # points that check names: within about 10 points of the accuracy
_MOST_CLASSES = 20
_MOST_SKIPPED = 20
_UNSEEN = 0.03  # share of points of kinds without a label that is worth a line
OUT_HELP = "What to write: .csv, .parquet, .jsonl, .json (Label Studio), or a folder with a subfolder for each class."
ABSTAIN_HELP = "Leave points with a lower confidence than this unlabelled, such as 0.8."
REJECT_HELP = "Leave this share of the points, those least like any class, unlabelled, such as 0.1."
TARGET_HELP = "Label as many points as this expected accuracy allows, such as 0.98; leave the others unlabelled."
REPORT_HELP = "Also write a page that shows what to check first, with a map of all points."
FOLDER_HELP = "Where stages of a large set are kept: a run that was ended goes on from there."
SCHEDULER_HELP = (
    "With --folder, more than 20,000 points find their neighbours on a Dask cluster: local:N for N processes here, the "
    "address of a scheduler (tcp://...), or its file."
)
METHOD_HELP = "auto (adapts to the labels), or one alone: lp, em, smoothed_lr, a2lp, logistic, knn, names."


@takes_images
def classify(
    source: Source,
    out: Annotated[str, option(OUT_HELP, "FILE|DIR")],
    labels: Labels = [],
    names: Names = None,
    text: Text = None,
    method: Annotated[str, option(METHOD_HELP, "NAME")] = "auto",
    abstain: Annotated[float | None, option(ABSTAIN_HELP, "P")] = None,
    reject: Annotated[float | None, option(REJECT_HELP, "SHARE")] = None,
    target: Annotated[float | None, option(TARGET_HELP, "SHARE")] = None,
    link: Annotated[bool, option("In folders, link to the images instead of copying them.", None, "--link")] = False,
    report: Annotated[Path | None, option(REPORT_HELP, "PAGE.html")] = None,
    force: Force = False,
    folder: Annotated[Path | None, option(FOLDER_HELP, "DIR")] = None,
    memory_limit: Annotated[float | None, option("Refuse a set that will take more memory than this.", "GIB")] = None,
    scheduler: Annotated[str | None, option(SCHEDULER_HELP, "WHERE")] = None,
    seed: Annotated[int, option("Seed of everything random.")] = 0,
    *,
    how: Any,
) -> None:
    """Label all images or vectors of SOURCE from a few labels, from the names of the classes, or from both.

    OUT has one row for each point: its key, label, confidence, second (the next most likely class), margin, reached,
    nearest (the most similar labelled example), given (whether the label is yours), how (how you chose the point) and
    novelty (high if it is unlike all classes). The same command continues an interrupted run; nothing is replaced
    without --force.
    """
    from a2lp.labelling import classify_files
    from a2lp.labelling.hints import suggest_command

    with interruptible(IMAGES_KEPT), progress_of_steps() as progress, cluster_for(scheduler, progress) as cluster:
        task, result = classify_files(
            source,
            labels,
            out,
            how,
            names=names,
            text=text,
            force=force,
            link=link,
            report=report,
            method=method,
            abstain=abstain,
            reject=reject,
            target=target,
            folder=folder,
            memory_limit=None if memory_limit is None else int(memory_limit * 2**30),
            seed=seed,
            progress=progress,
            cluster=cluster,
        )
    print_skipped(task)
    _print_summary(task, result, source, out, target)
    if report is not None:
        typer.echo(f"Report: {report}")
    given = result.table["given"]
    if not given.any():
        typer.echo(f"Next, label a random sample to check the accuracy{paths_again(source)}:")
        typer.echo(f"    {suggest_command(source, labels, how, names, text, '-n', str(AUDIT), '--audits', '1')}")
    elif not given.all():
        typer.echo(f"Next, choose points to label{paths_again(source)}:")
        typer.echo(f"    {suggest_command(source, labels, how, names, text)}")


def paths_again(source: str) -> str:
    """What a hint needs where the paths came on standard input."""
    return " (send the same paths again)" if source == "-" else ""


def print_skipped(task: Task) -> None:
    """List the images that were left out, with the reasons."""
    for key, reason in list(task.points.skipped.items())[:_MOST_SKIPPED]:
        typer.echo(f"skipped: {key}: {reason}", err=True)
    if len(task.points.skipped) > _MOST_SKIPPED:
        typer.echo(f"and {len(task.points.skipped) - _MOST_SKIPPED} more were skipped", err=True)


def _print_summary(task: Task, result: Labelled, source: str, out: str, target: float | None) -> None:
    """What was done, and how good it is."""
    from rich.console import Console

    from a2lp.checks import counted

    console = Console(highlight=False, markup=False, soft_wrap=True)
    columns, n = result.table, len(result)
    given, none = columns["given"], result.unlabelled
    new = ~given & ~none
    what = "point" if task.points.paths is None else "image"
    left = f", {none.sum()} left unlabelled" if none.any() else ""
    console.print(f"{source}: {counted(n, what)}, {given.sum()} labelled by you, {new.sum()} by a2lp{left} -> {out}")
    if given.all():
        return
    console.print(f"method {result.method}: {result.answer.reason}")
    console.print(_class_table(result, new))
    worth = result.assessment
    if none.any():
        console.print(_kept(result, new, target))
    if given.any():
        console.print(
            f"Expected accuracy on {'all ' * bool(none.any())}the {counted(n - given.sum(), 'point')} without your "
            f"label, estimated from your labels: {_interval(worth.of(~given))}."
        )
    else:
        console.print(
            f"Nothing was checked: there is no label. According to the confidence, {100 * worth.accuracy:.0f} % of the "
            "labels are right, but names can mislead with high confidence. Label a random sample to check them."
        )
    if worth.unseen >= _UNSEEN:
        console.print(
            f"About {100 * worth.unseen:.0f} % of them may belong to kinds that you have not labelled, and are wrong "
            "(the accuracy includes this). Label one of each kind that is missing."
        )
    doubtful = int((columns["confidence"][new] < DOUBT).sum())
    console.print(f"New labels that are doubtful (confidence below {DOUBT}): {doubtful}.")
    unreached = int((~columns["reached"]).sum())
    if unreached:
        console.print(f"Points that no label reaches through the graph, whose labels are probably wrong: {unreached}.")
    if len(rows := worth.mistakes):
        shown = ", ".join(f"{columns[result.key][row]} ({columns['label'][row]})" for row in rows[:5])
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        console.print(f"Your labels that disagree with their neighbours and may be mistakes: {shown}{more}")


def _kept(result: Labelled, new: Any, target: float | None) -> str:
    """What was labelled where not everything was, and how good that is."""
    from a2lp.checks import counted

    if not new.any():
        return "Nothing was labelled: no point has so high a confidence. Label more points, or lower the threshold."
    least = float(result.table["confidence"][new].min())
    chosen = "" if target is None else f" for an accuracy of {100 * target:g} %"
    return (
        f"{counted(new.sum(), 'point')} got a label{chosen}, with a confidence of {least:.2f} or more; expected "
        f"accuracy on these: {_interval(result.kept) if result.checked else 'not checked'}. "
        f"{result.unlabelled.sum()} stay unlabelled."
    )


def _interval(estimate: Estimate) -> str:
    accuracy, low, high = (f"{100 * share:.0f}" for share in estimate)
    return f"{accuracy} % (95 % interval {low} to {high} %)"


def _class_table(result: Labelled, new: Any) -> object:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("class", overflow="fold")
    for name in ("yours", "labelled", "confidence"):
        table.add_column(name, justify="right")
    columns, given = result.table, result.table["given"]
    classes = sorted(result.classes.tolist(), key=lambda name: -int((columns["label"] == name).sum()))
    for name in classes[:_MOST_CLASSES]:
        of = columns["label"] == name
        mean = f"{columns['confidence'][of & new].mean():.2f}" if (of & new).any() else ""
        table.add_row(Text(str(name)), str(int((of & given).sum())), str(int((of & new).sum())), mean)
    if len(classes) > _MOST_CLASSES:
        table.add_row(Text(f"and {len(classes) - _MOST_CLASSES} more classes"))
    if result.unlabelled.any():
        table.add_row(Text("(left unlabelled)"), "", str(int(result.unlabelled.sum())))
    return table
