"""Which of the user's points to label next: what ``a2lp suggest`` does."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from a2lp.checks import require_whole
from a2lp.errors import InputError
from a2lp.files import check_target, exists, write_text
from a2lp.labelling.hints import classify_command, sheet_table
from a2lp.labelling.inputs import read_inputs
from a2lp.labelling.labels import Task, Where, check_not_labels
from a2lp.labelling.names import read_named_task
from a2lp.labelling.pages import render, require_jinja2, thumbnail
from a2lp.labelling.sources import Embedding, Progress, embed_points, find_points
from a2lp.labelling.suggested import Suggested
from a2lp.labelling.tables import append_rows, is_output, lines_to_fill_in
from a2lp.pool.session import Pool
from a2lp.pool.suggest import Suggestion, check_amounts

_SIDE = 320  # pixels of a picture on the sheet


def suggest(
    embeddings: Any,
    labels: Any = None,
    n: int = 20,
    *,
    classes: Any = None,
    prototypes: Any = None,
    audits: float = 0.0,
    keys: Sequence[Any] | None = None,
    key: str = "key",
    embedding: Embedding | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    device: str = "auto",
) -> Suggested:
    """Choose the points to label next.

    Parameters
    ----------
    embeddings, labels, classes, prototypes, keys, key, embedding, progress, device
        As in ``a2lp.label``; labels of a single class, or no labels, are enough.
    n : int
        How many points.
    audits : float
        The share that is drawn at random, as in ``a2lp.Pool.suggest``.
    seed : int
        Seed of the audits and of the choice between points of equal gain.

    Returns
    -------
    Suggested
        The points, the most valuable first.

    Examples
    --------
    >>> import a2lp
    >>> digits = a2lp.load("digits")
    >>> found = a2lp.suggest(digits.features, n=2)
    >>> found.rows.shape, found.expected
    ((2,), None)
    >>> few = {row: digits.labels[row] for row in found}  # your part
    >>> len(a2lp.suggest(digits.features, few))
    20
    """
    check_amounts(n, audits)
    require_whole("seed", seed, 0, "Leave it out, or take 0.")
    named = {"classes": classes, "prototypes": prototypes}
    given = read_inputs(
        embeddings, labels, keys, key, embedding or Embedding(device=device), progress, need_choice=False, **named
    )
    found = given.pool("auto", seed, progress, device=device).suggest(n, audits)
    return Suggested.of(found, given.names, given.column, given.paths)


def suggest_files(
    source: Where,
    labels: Where | Sequence[Where] = (),
    how: Embedding | None = None,
    *,
    names: Where | None = None,
    text: Where | None = None,
    into: Where | None = None,
    out: Where | None = None,
    sheet: Where | None = None,
    n: int = 20,
    audits: float = 0.0,
    force: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Task, Suggestion]:
    """Choose the points to label next, and list them in a table with an empty column for their labels.

    What cannot be read or written is refused before anything is computed.

    Parameters
    ----------
    source, how, progress
        As in ``a2lp.labelling.open_task``.
    labels : str, Path or a sequence of them
        Those that exist: as in ``a2lp.labelling.labels.read_task``, but one class, or none, is enough.
    names, text
        As in ``a2lp.labelling.classify_files``.
    into : str or Path, optional
        A .csv or .tsv file of labels, which exist already or will: lines are added to it, and nothing in it changes.
        Its labels are used, too.
    out : str or Path, optional
        A .csv file to write: the point's key, ``label`` (empty), ``how`` and ``why``.
    sheet : str or Path, optional
        An .html page with pictures of the points and fields to type their labels into.
    n : int
        How many points.
    audits : float
        The share of them that is drawn at random, as in ``a2lp.Pool.suggest``.
    force : bool
        Whether existing files are replaced; one that holds the user's labels never is.
    seed : int
        Decides between points of equal gain, and draws the audits.
    """
    check_amounts(n, audits)
    require_whole("seed", seed, 0, "Leave it out, or take 0.")
    tables = [labels] if isinstance(labels, str | Path) else list(labels)
    filled = [*tables, *(table for table in (into, out) if table is not None)]  # what will hold labels
    if into is None and out is None and sheet is None:
        raise InputError(
            "the suggestions would be written nowhere. Add --into labels.csv, a table that gets a line for each, or "
            "--sheet PAGE.html, a page with pictures, or --out FILE, a new table (in Python: into, sheet, out)."
        )
    if into is not None:
        tables = [*tables, into] if exists(into) else tables
        check_target(into, (".csv", ".tsv"), "a table of labels", force=True)
        if exists(into) and is_output(Path(into)):
            raise InputError(
                f"{into} is an output of a2lp, which has a line for every point already. Give it as labels (--labels), "
                "and name a table of your own to add lines to."
            )
    waiting = set() if into is None or not exists(into) else lines_to_fill_in(Path(into))
    if out is not None:
        check_not_labels(out, tables)
        check_target(out, (".csv",), "a list of suggestions", force=force)
    if sheet is not None:
        require_jinja2("the sheet")
        check_target(sheet, (".html", ".htm"), "the sheet", force=force)
    how = how or Embedding()
    task, named = read_named_task(tables, find_points(source), names, text, how, need_choice=False)
    task = task.with_points(embed_points(task.points, how, progress))
    report = None if progress is None else partial(progress, "finding neighbours")
    known = {} if named is None else named.embedded(how).arguments
    options: dict[str, Any] = {"how": task.how, "seed": seed, "progress": report, "device": how.device}
    pool = Pool(task.points.features, task.labels, **options, **known)
    found = pool.suggest(n, audits)
    if sheet is not None:
        classes = task.classes if named is None else sorted(named.classes)
        command = classify_command(source, [*filled, sheet_table(sheet)], how, names, text)
        write_text(Path(sheet), _sheet(task, found, source, Path(sheet), classes, command))
    keys = [str(task.keys[row]) for row in found.rows]
    rows = list(zip(keys, found.how, found.why, strict=True))
    if into is not None:
        append_rows(Path(into), task.key, [row for row in rows if row[0] not in waiting])
    if out is not None:
        append_rows(Path(out), task.key, rows, new=True)
    return task, found


class _Card(NamedTuple):
    key: str
    how: str
    why: str
    picture: str


def _sheet(task: Task, found: Suggestion, source: Where, sheet: Path, classes: Sequence[str], command: str) -> str:
    """The page of pictures and fields."""
    paths = task.points.paths
    cards = [
        _Card(str(task.keys[row]), how, why, "" if paths is None else thumbnail(paths[row], _SIDE))
        for row, how, why in zip(found.rows.tolist(), found.how, found.why, strict=True)
    ]
    values: dict[str, Any] = {
        "title": str(source),
        "cards": cards,
        "audits": any(card.how == "audit" for card in cards),
        "classes": classes,
        "column": task.key,
        "download": sheet_table(sheet),
        "command": command,
        "store": hashlib.sha256("\n".join(card.key for card in cards).encode()).hexdigest()[:16],
    }
    return render("sheet.html.jinja", **values)
