"""From the user's files to the user's files: what ``a2lp classify`` does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from a2lp.files import replacing, writing
from a2lp.labelling.classify import check_options, label
from a2lp.labelling.inputs import embed_task
from a2lp.labelling.labelled import Labelled
from a2lp.labelling.labels import Task, Where, check_not_labels, read_task
from a2lp.labelling.names import read_named_task
from a2lp.labelling.outputs import check_output, write_output
from a2lp.labelling.report import check_report, render_report
from a2lp.labelling.sources import Embedding, Progress, find_points


def open_task(
    source: Where, labels: Where | Sequence[Where], how: Embedding | None = None, progress: Progress | None = None
) -> Task:
    """The points of a source with the labels that tables or class folders give them.

    Parameters
    ----------
    source, labels
        As in ``a2lp.labelling.open_source`` and ``a2lp.labelling.labels.read_task``; labels are checked before
        any image is embedded.
    how : Embedding, optional
        For images.
    progress : callable, optional
        Called with the number of images embedded.
    """
    return embed_task(read_task(labels, find_points(source)), how or Embedding(), progress)


def classify_files(
    source: Where,
    labels: Where | Sequence[Where],
    out: Where,
    how: Embedding | None = None,
    *,
    names: Where | None = None,
    text: Where | None = None,
    force: bool = False,
    link: bool = False,
    report: Where | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Task, Labelled]:
    """Label the points of a source from a few labels, the names of the classes, or both, and write all labels.

    What cannot be read, used or written is refused before anything is computed. A run that is killed leaves what was
    there before, and vectors in the cache: the same call continues from there.

    Parameters
    ----------
    source, labels, how, progress
        As in ``open_task``; labels may be empty where classes are named.
    names : str or Path, optional
        A text file with the names of the classes, one a line; by default those that come with the vectors.
    text : str or Path, optional
        A file of the names' vectors, as ``a2lp.labelling.names.read_vectors`` reads it. Without it, they are those of
        the source, or the backbone makes them.
    out, force, link
        As in ``a2lp.labelling.outputs.write_output``; a table that labels are read from is never replaced.
    report : str or Path, optional
        A page to write about the labels, as in ``a2lp.labelling.report.write_report``.
    **options
        As in ``a2lp.label``: ``method``, ``abstain``, ``reject``, ``target``, ``seed``, ``folder``,
        ``memory_limit``, ``cluster``.
    """
    checked = ("method", "abstain", "reject", "target", "seed")
    check_options(**{name: value for name, value in options.items() if name in checked})
    check_not_labels(out, [labels] if isinstance(labels, str | Path) else labels)
    how = how or Embedding()
    task, named = read_named_task(labels, find_points(source), names, text, how)
    root = Path(source) if Path(source).is_dir() else None
    classes = task.classes if named is None else named.classes
    check_output(out, force=force, classes=classes, link=link, paths=task.points.paths, source=root)
    if report is not None:
        check_report(report, force=force)
    task = embed_task(task, how, progress, named=named is not None)
    options |= {"how": task.how, "keys": task.keys, "key": task.key, "progress": progress, "device": how.device}
    options |= {} if named is None else named.embedded(how).arguments
    result = label(task.points.features, task.labels, **options)
    paths = task.points.paths
    result = replace(result, paths=paths, source=str(source))
    with ExitStack() as stack:  # the page gets its name just after the labels, so that a kill leaves both or none
        if report is not None:
            seed = options.get("seed", 0)
            page = render_report(result, title=str(source), paths=paths, seed=seed, progress=progress)
            stack.enter_context(writing(report))
            stack.enter_context(replacing(Path(report))).write_text(page, encoding="utf-8")
        write_output(result, out, force=force, link=link, paths=paths, source=root)
    return task, result
