"""Which of the user's points to label next: what ``a2lp suggest`` does."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from a2lp.checks import require_whole
from a2lp.files import check_target, replacing, writing
from a2lp.labelling.labels import Task, Where, read_task
from a2lp.labelling.sources import Embedding, Progress, embed_points, find_points
from a2lp.labelling.tables import escaped
from a2lp.labelling.tool import check_not_labels
from a2lp.pool.session import Pool
from a2lp.pool.suggest import Suggestion


def suggest_files(
    source: Where,
    labels: Where | Sequence[Where],
    out: Where,
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
        As in ``a2lp.labelling.tool.open_task``.
    labels : str, Path or a sequence of them
        Those that exist: as in ``a2lp.labelling.labels.read_task``, but one class, or none, is enough.
    out : str or Path
        A .csv file: the point's key, ``label`` (empty) and ``why``.
    n : int
        How many points.
    force : bool
        Whether an existing file is replaced; one that labels are read from never is.
    seed : int
        Decides between points of equal gain.
    """
    require_whole("n", n, 1, "Ask for 20, say.")
    path = Path(out)
    check_not_labels(path, labels)
    check_target(path, (".csv",), "a list of suggestions", force=force)
    task = read_task(labels, find_points(source), need_choice=False)
    task = task.with_points(embed_points(task.points, how or Embedding(), progress))
    report = None if progress is None else partial(progress, "finding neighbours")
    pool = Pool(task.points.features, task.labels, seed=seed, progress=report)
    found = pool.suggest(n)
    with writing(path), replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([task.key, "label", "why"])
        for row, why in zip(found.rows.tolist(), found.why, strict=True):
            writer.writerow([escaped(task.keys[row]), "", why])
    return task, found
