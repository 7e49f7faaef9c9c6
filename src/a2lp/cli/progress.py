"""The progress bar of every command, on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress
from rich.console import Console


@contextmanager
def bar_on_stderr() -> Iterator[tuple[Console, progress.Progress, progress.TaskID]]:
    """A console, a bar with counts and times on it, and the bar's only task; no bar if stderr is not a terminal."""
    console = Console(stderr=True, highlight=False)
    text, counts = progress.TextColumn("{task.description}"), progress.MofNCompleteColumn()
    columns = (text, progress.BarColumn(), counts, progress.TimeElapsedColumn(), progress.TimeRemainingColumn())
    with progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield console, bar, bar.add_task("", total=None)
