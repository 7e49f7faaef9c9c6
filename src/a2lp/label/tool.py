"""From the user's files to the user's files: what ``a2lp classify`` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.checks import listed
from a2lp.errors import InputError
from a2lp.label.classify import Labelled, check_options, label
from a2lp.label.labels import Given, check_classes, read_given
from a2lp.label.outputs import check_output, write_output
from a2lp.label.report import check_report, write_report
from a2lp.label.sources import Embedding, Pool, Progress, embed_points, find_points

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Task:
    """What a user wants labelled.

    Attributes
    ----------
    pool : Pool
        The points and their vectors.
    labels : array (n,) of object
        Class names; None where a point has no label.
    key : str
        What the user calls a point: ``path``, ``file``, ``id`` or ``index``.
    skipped : tuple of str
        Images that cannot be read and were left out.
    """

    pool: Pool
    labels: NDArray
    key: str
    skipped: tuple[str, ...] = ()

    @property
    def keys(self) -> Sequence[Any]:
        """What tables call the points: their keys, or their rows where the user's labels do so."""
        return range(len(self.pool.keys)) if self.key == "index" else self.pool.keys


def open_task(
    source: str | Path, labels: str | Path, how: Embedding | None = None, progress: Progress | None = None
) -> Task:
    """The points of a source with the labels that a table or class folders give them.

    Parameters
    ----------
    source, labels
        As in ``a2lp.label.sources.find_points`` and ``a2lp.label.labels.read_given``; labels are checked before any
        image is embedded.
    how : Embedding, optional
        For images.
    progress : callable, optional
        Told how many images are embedded.
    """
    return _embedded(read_given(labels, find_points(source)), str(labels), how or Embedding(), progress)


def classify_files(
    source: str | Path,
    labels: str | Path,
    out: str | Path,
    how: Embedding | None = None,
    *,
    force: bool = False,
    link: bool = False,
    report: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Task, Labelled]:
    """Label the points of a source from a few labels, and write all of them.

    What cannot be read, used or written is refused before anything is computed. A run that is killed leaves what was
    there before, and vectors in the cache: the same call goes on from there.

    Parameters
    ----------
    source, labels, how, progress
        As in ``open_task``.
    out, force, link
        As in ``a2lp.label.outputs.write_output``.
    report : str or Path, optional
        A page to write about the labels, as in ``a2lp.label.report.write_report``.
    **options
        As in ``a2lp.label``: ``method``, ``abstain``, ``reject``, ``seed``.
    """
    check_options(**{name: value for name, value in options.items() if name != "seed"})
    given = read_given(labels, find_points(source))
    root = Path(source) if Path(source).is_dir() else None
    classes = sorted({name for name in given.labels if name is not None})
    check_output(out, force=force, classes=classes, paths=given.points.paths, source=root)
    if report is not None:
        check_report(report, force=force)
    task = _embedded(given, str(labels), how or Embedding(), progress)
    result = label(task.pool.x, task.labels, keys=task.keys, key=task.key, progress=progress, **options)
    write_output(result, out, force=force, link=link, paths=task.pool.paths, source=root)
    if report is not None:
        seed = int(options.get("seed", 0))
        write_report(result, report, title=str(source), paths=task.pool.paths, force=force, seed=seed)
    return task, result


def _embedded(given: Given, where: str, how: Embedding, progress: Progress | None) -> Task:
    """The task of labelled points, without the images that were skipped."""
    pool = embed_points(given.points, how, progress)
    kept = given.labels[pool.rows]
    lost = sorted(set(given.labels) - set(kept) - {None})
    if lost:
        raise InputError(
            f"no example of the class {listed(lost, 5)} in {where} can be read, so the class would be lost. Replace "
            "the damaged images, or label others."
        )
    check_classes(kept, where)
    skipped = np.setdiff1d(np.arange(len(given.labels)), pool.rows)
    return Task(pool, kept, given.key, tuple(given.points.keys[row] for row in skipped))
