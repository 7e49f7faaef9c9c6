"""Which points the user has labelled: in tables, or in folders named by class.

Labels that do not fit the points are refused by name before anything is computed.
"""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.arrays import NDArray
from a2lp.checks import counted, listed, shown
from a2lp.errors import A2LPWarning, InputError
from a2lp.files import exists
from a2lp.labelling.class_folders import by_content, class_folders, digest
from a2lp.labelling.sources import Points
from a2lp.labelling.tables import EXPECTED, TABLES, Row, holds_labels, read_table
from a2lp.pool.unseen import HOW

Where = str | Path


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """Points, some of them labelled.

    Attributes
    ----------
    points : Points
        Those of the source; after them, examples in class folders that are not images of the source.
    labels : array (n,) of object
        Class names; None where a point has no label.
    key : str
        What the user calls a point: ``path``, ``file``, ``id``, or ``index`` for rows of vectors.
    how : array (n,) of object
        How each label was chosen, one of ``a2lp.pool.unseen.HOW``; other words in tables count as "".
    """

    points: Points
    labels: NDArray
    key: str
    how: NDArray

    def __repr__(self) -> str:
        given = sum(label is not None for label in self.labels)
        return f"Task({self.points!r}, {given} labelled: {len(self.classes)} classes)"

    @property
    def keys(self) -> Sequence[Any]:
        """The points' keys as tables have them: rows where the user's labels name rows."""
        return range(len(self.points)) if self.key == "index" else self.points.keys

    @property
    def classes(self) -> list[str]:
        """The classes, sorted."""
        return sorted({label for label in self.labels if label is not None})

    def with_points(self, points: Points) -> Task:
        """The task with other points, embedded ones without those that were skipped."""
        row_of = {key: row for row, key in enumerate(self.points.keys)}
        rows = [row_of[key] for key in points.keys]
        return replace(self, points=points, labels=self.labels[rows], how=self.how[rows])


def read_labels(where: Where | Sequence[Where], keys: Sequence[str]) -> NDArray:
    """Labels (n,) of the points of these keys, from tables; None where there is none."""
    return read_task(where, Points(tuple(keys))).labels


def read_task(where: Where | Sequence[Where], points: Points, *, need_choice: bool = True) -> Task:
    """The labels of points.

    Parameters
    ----------
    where : str, Path or a sequence of them
        Tables (.csv, .tsv, .parquet) with a column ``label`` (``class``, ``category``) and one of ``path``, ``file``,
        ``filename``, ``image``, ``id`` and ``index`` (the row, from 0); rows without a label are ignored, and so are
        predictions in tables of ``a2lp classify`` (``given`` is false). Or folders that hold a folder of examples for
        each class: the images of the source themselves, links to them, copies of them, or other images, which then join
        the points. Empty: no labels.
    points : Points
        What can be labelled.
    need_choice : bool
        Whether fewer than two classes are refused.

    Raises
    ------
    InputError
        For points that are not there, contradictory labels, classes without an example, and, if ``need_choice``, fewer
        than two classes.
    """
    found = _Labels(points)
    places = [where] if isinstance(where, str | Path) else list(where)
    if "" in places:  # an unset variable of a shell; as a path it would be the current folder
        raise InputError("labels have an empty name; expected a table or a folder. Name one, or leave the option out.")
    for place in map(Path, places):
        if place.is_dir():
            _add_folders(found, place)
        else:
            _add_table(found, place)
    task = found.task()
    _warn_of_similar(task.classes)
    if need_choice:
        check_classes(task.labels, " and ".join(map(str, places)))
    return task


def check_classes(labels: NDArray, where: str) -> None:
    """Refuse labels of fewer than two classes."""
    classes = sorted({label for label in labels if label is not None})
    if len(classes) < 2:
        found = f"only the class {shown(classes[0])}" if classes else "no point"
        raise InputError(f"{where} labels {found}; at least two classes need an example each. Label some more points.")


def check_not_labels(out: Where, labels: Sequence[Where]) -> None:
    """Refuse to write over the user's own labels."""
    same = any(Path(out).resolve() == Path(where).resolve() for where in labels)
    if same or (exists(out) and Path(out).is_file() and holds_labels(Path(out))):
        raise InputError(
            f"{out} holds your labels and is never replaced, not even with --force. Choose another name for the output."
        )


class _Labels:
    """Labels as they are read, each with the place where it was found."""

    def __init__(self, points: Points) -> None:
        self.points = points
        self.keys = list(points.keys)
        self.paths = None if points.paths is None else list(points.paths)
        self.key = ""
        self._found: dict[int, tuple[str, str]] = {}
        self._how: dict[int, str] = {}

    def add(self, row: int, label: str, place: str, how: str = "") -> None:
        """Label a point; another label for the same point is refused."""
        self._how[row] = self._how.get(row) or how
        known, first = self._found.setdefault(row, (label, place))
        if known != label:
            raise InputError(
                f"{shown(self.keys[row])} is labelled {shown(known)} ({first}) and {shown(label)} ({place}), which "
                "contradict each other. Keep the one that is right."
            )

    def task(self) -> Task:
        """All points, with the labels that were found."""
        labels, how = (np.full(len(self.keys), none, dtype=object) for none in (None, ""))
        for row, (label, _) in self._found.items():
            labels[row], how[row] = label, self._how[row] if self._how[row] in HOW else ""
        points = replace(self.points, keys=tuple(self.keys), paths=None if self.paths is None else tuple(self.paths))
        return Task(points, labels, self.key or self._usual_key(), how)

    def _usual_key(self) -> str:
        numbered = self.keys == [str(row) for row in range(len(self.keys))]
        return "path" if self.paths is not None else "index" if numbered else "id"


def _add_table(found: _Labels, path: Path) -> None:
    if not exists(path) and not path.suffix:
        raise InputError(
            f"there is no folder {path}. Give {EXPECTED} with the columns path,label, or a folder that holds a folder "
            "of examples for each class."
        )
    key, rows, predictions, *_ = read_table(path)
    row_of = _by_index(path, rows, len(found.keys)) if key == "index" else _by_key(path, rows, found)
    for row in rows:
        if row.label is not None:
            found.add(row_of[row.key], row.label, f"{path}, {row.place}", row.how)
    found.key = found.key or ("path" if key == "index" and found.paths is not None else key)
    if predictions:
        warnings.warn(
            f"{path}: {predictions} of its labels are predictions of a2lp (given is false) and were not used as yours.",
            A2LPWarning,
            stacklevel=2,
        )


def _by_index(path: Path, rows: Iterable[Row], n: int) -> dict[str, int]:
    row_of: dict[str, int] = {}
    for row in rows:
        if not (re.fullmatch("[0-9]{1,18}", row.key) and int(row.key) < n):
            raise InputError(
                f"{path}, {row.place}: index {shown(row.key)} is no row of the source, which has {counted(n, 'row')}, "
                f"from 0 to {n - 1}. Correct it, or remove the line."
            )
        row_of[row.key] = int(row.key)
    return row_of


def _by_key(path: Path, rows: Sequence[Row], found: _Labels) -> dict[str, int]:
    """Rows by key; for images, also by any path that leads to the same file."""
    row_of = {key: row for row, key in enumerate(found.keys)}
    unknown = [row.key for row in rows if row.key not in row_of]
    if unknown and found.paths is not None:
        real = {os.path.realpath(file): row for row, file in enumerate(found.paths)}
        for key in unknown:
            row = _by_path(key, path.parent, row_of, real)
            row_of |= {} if row is None else {key: row}
        unknown = [key for key in unknown if key not in row_of]
    if unknown:
        near = _near(unknown[0], found.keys)
        hint = f"Did you mean {shown(near)}? " if near else f"The source has {listed(found.keys, 3)}. "
        raise InputError(
            f"{path}: {len(unknown)} of its {len(rows)} points are not in the source: {listed(unknown, 5)}. "
            f"{hint}Correct these, or remove their lines."
        )
    return row_of


def _by_path(key: str, folder: Path, row_of: dict[str, int], real: dict[str, int]) -> int | None:
    """The row of an image by a path from the table's folder or the current one, or a path on another computer."""
    if "\0" in key:
        return None
    name = re.sub(r"^(\./)+", "", key.replace("\\", "/"))
    if name in row_of:
        return row_of[name]
    for base in (folder, Path()):
        if (row := real.get(os.path.realpath(base / name))) is not None:
            return row
    if not re.match(r"([A-Za-z]:)?/", name):
        return None
    parts = name.split("/")  # an absolute path from another computer: the longest end of it that is a key
    return next((row_of[end] for i in range(1, len(parts)) if (end := "/".join(parts[i:])) in row_of), None)


def _near(key: str, keys: Sequence[str]) -> str | None:
    """The key that was probably meant: of the same file name, or with a similar spelling."""
    name = key.replace("\\", "/").rpartition("/")[2]
    same = [other for other in keys if other.rpartition("/")[2] == name]
    # difflib compares with each key in turn, which takes seconds beyond some thousands
    return next(iter(same or difflib.get_close_matches(key[:200], keys[:5000], n=1)), None)


def _add_folders(found: _Labels, folder: Path) -> None:
    if found.paths is None:
        raise InputError(
            f"{folder} is a folder, and the source holds vectors, not images. Give the labels as a table "
            f"({', '.join(TABLES)}) with the columns id,label or index,label."
        )
    files = class_folders(folder)
    real = {os.path.realpath(path): row for row, path in enumerate(found.paths)}
    copies = [file for file, _ in files if os.path.realpath(file) not in real]
    rows_of = by_content(found.paths, {file.stat().st_size for file in copies})
    for file, name in files:
        row = real.get(os.path.realpath(file))
        rows = rows_of[digest(file)] if row is None else [row]
        if not rows:  # an example from elsewhere
            rows.append(len(found.keys))
            found.keys.append(file.as_posix())
            found.paths.append(file)
        for row in rows:
            found.add(row, name, str(file))
    found.key = found.key or "path"


def _warn_of_similar(classes: Sequence[str]) -> None:
    """Warn of classes whose names differ by case or blanks only."""
    spellings: dict[str, list[str]] = defaultdict(list)
    for name in classes:
        spellings["".join(name.split()).casefold()].append(name)
    if similar := [" and ".join(map(shown, names)) for names in spellings.values() if len(names) > 1]:
        warnings.warn(
            f"the classes {'; '.join(similar[:5])} differ by case or blanks only and are taken as different. If they "
            "are the same, spell them alike.",
            A2LPWarning,
            stacklevel=3,
        )
