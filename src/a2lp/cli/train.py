"""``a2lp train``: pre-training on base classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer
from rich import progress
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from a2lp.cli.interrupts import interruptible
from a2lp.cli.options import option
from a2lp.errors import InputError

if TYPE_CHECKING:
    from a2lp.images.training import Evaluation, Report

CHECKPOINT_KEPT = "the same command continues from the last checkpoint, if there is one"
_BARS = "▁▂▃▄▅▆▇█"
COMMIT_HELP = "The commit of the code, for the record; by default that of the checkout that a2lp runs from."


def train(
    config: Annotated[str, typer.Argument(help="The configuration: JSON, as in configs/.", metavar="CONFIG")],
    data: Annotated[str, option("The dataset's folder.", "DIR")],
    out: Annotated[str, option("Folder for weights, log and record; a killed run continues there.", "DIR")],
    minutes: Annotated[float | None, option("Length of the schedule, instead of CONFIG's.")] = None,
    epochs: Annotated[float | None, option("Likewise, in epochs.")] = None,
    device: Annotated[str, option("auto, cpu or cuda.")] = "auto",
    workers: Annotated[int | None, option("Threads that decode images; one for each core.")] = None,
    commit: Annotated[str | None, option(COMMIT_HELP, "HASH")] = None,
) -> None:
    """Train a backbone on base classes, and keep the weights that are best on validation classes."""
    if minutes is not None and epochs is not None:
        raise InputError(f"--minutes {minutes} and --epochs {epochs}: only one can set the length. Give one.")

    from a2lp.images import training
    from a2lp.images.datasets import load

    settings = training.TrainConfig.read(config)
    if minutes is not None or epochs is not None:
        settings = settings.with_length(minutes=minutes, epochs=epochs)
    base, val = (load(data, split, dataset=settings.dataset) for split in ("train", "val"))
    with interruptible(CHECKPOINT_KEPT), _display(settings.name) as report:
        result = training.train(
            settings, base, val, out, device=device, workers=workers, commit=commit, progress=report
        )
    chosen = result.record["views"][str(result.view)]
    typer.echo(
        f"{result.weights}: {chosen['one']:.2f} / {chosen['five']:.2f} at 1 and 5 shots on validation classes, "
        f"view {result.view}, {result.record['seconds']:.0f} s"
    )
    of = "" if settings.dataset is None else f" --dataset {settings.dataset}"
    with_ = f"--backbone {settings.backbone} --weights {result.weights} --out test.npz"
    typer.echo(f"next: a2lp embed {data}{of} --split test {with_}", err=True)


@contextmanager
def _display(name: str) -> Iterator[Callable[[Report], None]]:
    """A bar and the validation curve on a terminal; elsewhere a line for each evaluation."""
    console = Console(stderr=True)
    times = progress.TimeElapsedColumn(), progress.TimeRemainingColumn()
    text = progress.TextColumn("{task.description}")
    bar = progress.Progress(text, progress.BarColumn(), progress.TaskProgressColumn(), *times)
    task = bar.add_task(name, total=1.0)
    evaluations: list[Evaluation] = []
    live = Live(bar, console=console, transient=True) if console.is_terminal else None

    def report(given: Report) -> None:
        if given.evaluation is not None:
            evaluations.append(given.evaluation)
        if live is None:
            if given.note is not None or given.evaluation is not None:
                typer.echo(f"{name}: {given.note or evaluations[-1]}", err=True)
            return
        speed = f", {given.images / given.seconds:,.0f} images/s" if given.seconds else ""
        bar.update(task, completed=given.done, description=f"{name}: {given.note or 'training'}{speed}")
        live.update(Group(bar, Text(curve(evaluations))))

    with nullcontext() if live is None else live:
        yield report
    if live is not None:
        console.print(Text(curve(evaluations)))


def curve(evaluations: Sequence[Evaluation]) -> str:
    """The validation curve in two lines of bars, with the latest numbers."""
    known = [(found.one_shot, found.five_shot) for found in evaluations if found.one_shot is not None]
    if not known:
        return str(evaluations[-1]) if evaluations else ""
    rows = []
    for shots, values in zip((1, 5), zip(*known, strict=True), strict=True):
        low, high = min(values), max(values)
        heights = [round((value - low) / (high - low or 1) * (len(_BARS) - 1)) for value in values]
        rows.append(f"{shots}-shot {''.join(_BARS[h] for h in heights)} {values[-1]:.2f} (best {high:.2f})")
    return "\n".join(rows)
