"""The progress bar of every command, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from rich import progress
from rich.console import Console

if TYPE_CHECKING:
    from a2lp.scale import Cluster

LINE_SECONDS = 10.0  # between lines where there is no terminal


@contextmanager
def bar_on_stderr() -> Iterator[tuple[Console, progress.Progress, progress.TaskID]]:
    """A console, a bar with counts and times on it, and the bar's only task; no bar if stderr is not a terminal."""
    console = Console(stderr=True, highlight=False)
    text, counts = progress.TextColumn("{task.description}"), progress.MofNCompleteColumn()
    columns = (text, progress.BarColumn(), counts, progress.TimeElapsedColumn(), progress.TimeRemainingColumn())
    bar = progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bar if console.is_terminal else nullcontext():  # rich 13 ends a bar that is disabled with an empty line
        yield console, bar, bar.add_task("", total=None)


@contextmanager
def progress_of_steps() -> Iterator[Callable[[str, int, int], None]]:
    """A function that takes the step, the amount done and the total: a bar for one step after the other.

    Where stderr is not a terminal, a line says every ten seconds how far it is.
    """
    with bar_on_stderr() as (console, bar, task):
        bar.update(task, description="starting")
        step, looked_up, lines = "", 0, _Lines()

        def report(what: str, done: int, total: int) -> None:
            nonlocal step, looked_up
            if what == "looking up":
                looked_up = total
            if what != step:
                step = what
                lines.start()
                bar.reset(task, total=total, description=what)
                if what == "embedding" and total:
                    console.print(f"{looked_up} images, {total} of them not in the cache", soft_wrap=True)
            bar.update(task, completed=done, total=total)
            if not console.is_terminal and (line := lines.next(what, done, total)):
                console.print(line, soft_wrap=True)

        yield report


def cluster_progress(
    what: str, unit: str, console: Console, bar: progress.Progress, task: progress.TaskID
) -> Callable[[int, int, int], None]:
    """A function that takes the amount done, the total and the number of workers, and shows them on the bar."""
    lines, shown = _Lines(), -1
    lines.start()

    def report(done: int, total: int, workers: int) -> None:
        nonlocal shown
        step = f"{what} on {_workers(workers)}"
        bar.update(task, description=step, completed=done, total=total)
        if not console.is_terminal:
            line = lines.next(f"{step}: {unit}", done, total)
            if line or workers != shown or done == total:
                console.print(line or f"{step}: {unit}: {done} of {total}", soft_wrap=True)
        shown = workers

    return report


@contextmanager
def cluster_for(scheduler: str | None, progress: Callable[[str, int, int], None]) -> Iterator[Cluster | None]:
    """The cluster that finds neighbours, if one is named; a step of ``progress`` shows its workers."""
    if scheduler is None:
        yield None
        return
    from a2lp.scale import Cluster

    def report(done: int, total: int, workers: int) -> None:
        progress(f"finding neighbours on {_workers(workers)}", done, total)

    with Cluster(scheduler, report) as cluster:
        yield cluster


def _workers(count: int) -> str:
    return f"{count} worker{'s' * (count != 1)}"


class _Lines:
    """A line on a step's progress now and then."""

    def start(self) -> None:
        """The step begins."""
        self._began = self._last = time.monotonic()

    def next(self, step: str, done: int, total: int) -> str | None:
        """A line, if it is time for one."""
        now = time.monotonic()
        if now - self._last < LINE_SECONDS or not 0 < done < total:
            return None
        self._last = now
        left = (now - self._began) * (total - done) / done
        return f"{step}: {done} of {total}, about {_duration(left)} left"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
