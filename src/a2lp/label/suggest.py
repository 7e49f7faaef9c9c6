"""Which of the user's points to label next: what ``a2lp suggest`` does."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.checks import require_whole
from a2lp.errors import InputError
from a2lp.files import replacing
from a2lp.label.labels import Given, read_given
from a2lp.label.sources import Embedding, Points, Progress, embed_points, find_points
from a2lp.label.tool import Task
from a2lp.pool.suggest import Suggestion, suggest

NDArray = np.ndarray[Any, Any]


def suggest_files(
    source: str | Path,
    labels: str | Path | None,
    out: str | Path,
    how: Embedding | None = None,
    *,
    n: int = 20,
    force: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Task, Suggestion]:
    """Write a table of the points to label next, with an empty column for their labels.

    What cannot be read or written is refused before anything is computed.

    Parameters
    ----------
    source, how, progress
        As in ``a2lp.label.tool.open_task``.
    labels : str or Path, optional
        Those that there are: a table or class folders, as in ``a2lp.label.labels.read_given``, but one class, or none,
        is enough.
    out : str or Path
        A .csv file: the point's key, ``label`` (empty) and ``why``.
    n : int
        How many points.
    force : bool
        Whether a file that is there is replaced.
    seed : int
        Decides between points that are worth the same.
    """
    require_whole("n", n, 1, "Ask for 20, say.")
    path = Path(out)
    _check(path, force)
    points = find_points(source)
    given = _unlabelled(points) if labels is None else read_given(labels, points, need_choice=False)
    pool = embed_points(given.points, how or Embedding(), progress)
    skipped = np.setdiff1d(np.arange(len(given.labels)), pool.rows)
    task = Task(pool, given.labels[pool.rows], given.key, tuple(given.points.keys[row] for row in skipped))
    told = None if progress is None else partial(progress, "finding neighbours")
    found = suggest(pool.x, task.labels, n, seed=seed, progress=told)
    _write(task, found, path)
    return task, found


def _unlabelled(points: Points) -> Given:
    numbered = points.keys == tuple(map(str, range(len(points.keys))))
    key = "path" if points.paths is not None else "index" if numbered else "id"
    return Given(np.full(len(points.keys), None, dtype=object), points, key)


def _check(path: Path, force: bool) -> None:
    if path.suffix.lower() != ".csv":
        raise InputError(f"{path} has the extension {path.suffix!r}; suggestions are written as .csv. Rename it.")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no directory {path.parent}. Create it first.")
    if path.is_dir():
        raise InputError(f"{path} is a directory; expected the name of a file to write. Choose another name.")
    if path.exists() and not force:
        raise InputError(f"{path} exists already. Choose another name, or replace it with --force.")


def _write(task: Task, found: Suggestion, path: Path) -> None:
    try:
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([task.key, "label", "why"])
            writer.writerows([task.keys[row], "", why] for row, why in zip(found.rows.tolist(), found.why, strict=True))
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}). Check the directory's permissions and its space."
        ) from error
