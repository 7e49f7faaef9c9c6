"""Which points the user has labelled: a table, or folders named by class.

Whatever does not fit the points is refused by name before anything is computed: a wrong label costs more than the
minute that it takes to mend the list.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.checks import listed
from a2lp.errors import InputError
from a2lp.label.sources import Points
from a2lp.label.tables import TABLES, Row, read_table

NDArray = np.ndarray[Any, Any]

# folders of what is yet to be labelled, beside those of the classes
UNLABELLED = frozenset({"unlabelled", "unlabeled"})


@dataclass(frozen=True, eq=False)
class Given:
    """Labels of points.

    Attributes
    ----------
    labels : array (n,) of object
        Class names; None where a point has no label.
    points : Points
        Those of the source; after them, examples in class folders that are no images of the source.
    key : str
        What the user calls the points: ``path``, ``file``, ``id`` or, for vectors, ``index``, as in the table.
    """

    labels: NDArray
    points: Points
    key: str


def read_labels(where: str | Path, keys: Sequence[str]) -> NDArray:
    """Labels (n,) of the points of these keys, from a table; None where there is none."""
    return read_given(where, Points(tuple(keys))).labels


def read_given(where: str | Path, points: Points, *, need_choice: bool = True) -> Given:
    """The labels of points.

    Parameters
    ----------
    where : str or Path
        A table (.csv, .tsv, .parquet) with a column ``label`` and one of ``path``, ``file``, ``id`` and ``index`` (the
        row, from 0); rows without a label say nothing. Or a folder that holds a folder of examples for each class: the
        images of the source themselves, links to them, copies of them, or other images, which then join the points.
    points : Points
        What can be labelled.
    need_choice : bool
        Whether fewer than two classes are refused.

    Raises
    ------
    InputError
        For points that are not there, labels that are given twice or contradict each other, classes without an
        example, and, unless that is allowed, fewer than two classes.
    """
    path = Path(where)
    given = _from_folders(path, points) if path.is_dir() else _from_table(path, points)
    if need_choice:
        check_classes(given.labels, str(where))
    return given


def check_classes(labels: NDArray, where: str) -> None:
    """Refuse labels that leave no choice."""
    classes = sorted({label for label in labels if label is not None})
    if len(classes) < 2:
        found = f"only the class {classes[0]!r}" if classes else "no point"
        raise InputError(f"{where} labels {found}; at least two classes need an example each. Label some more points.")


class _Labels:
    """Labels as they come in, each with the place where it was found."""

    def __init__(self, where: Path, keys: Sequence[str]) -> None:
        self._where, self._keys = where, keys
        self._found: dict[int, tuple[str, str]] = {}

    def add(self, row: int, label: str, place: str, once: bool = False) -> None:
        """Label a point, unless it has another label or, if that is asked for, the same one."""
        known, first = self._found.setdefault(row, (label, place))
        if known != label:
            raise InputError(
                f"{self._where}: {self._keys[row]!r} is labelled {known!r} ({first}) and {label!r} ({place}), which "
                "contradict each other. Keep the one that is right."
            )
        if once and first != place:
            raise InputError(
                f"{self._where}: {self._keys[row]!r} is labelled {label!r} twice ({first} and {place}). Remove one."
            )

    def array(self) -> NDArray:
        """The labels of all keys, None where there is none."""
        labels = np.full(len(self._keys), None, dtype=object)
        for row, (label, _) in self._found.items():
            labels[row] = label
        return labels


def _from_table(path: Path, points: Points) -> Given:
    column, rows = read_table(path)
    place_of = _by_index(path, rows, len(points.keys)) if column == "index" else _by_key(path, rows, points)
    labels = _Labels(path, points.keys)
    for row in rows:
        if row.label is not None:
            labels.add(place_of[row.key], row.label, row.where, once=True)
    return Given(labels.array(), points, "path" if column == "index" and points.paths is not None else column)


def _by_index(path: Path, rows: Iterable[Row], n: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        if not (row.key.isascii() and row.key.isdigit() and int(row.key) < n):
            raise InputError(
                f"{path}, {row.where}: index {row.key!r} is no row of the source, whose {n} rows are 0 to {n - 1}. "
                "Correct it, or remove the line."
            )
        found[row.key] = int(row.key)
    return found


def _by_key(path: Path, rows: Sequence[Row], points: Points) -> dict[str, int]:
    """Rows by key as the source has it; for images, also by any path that leads to the same file."""
    row_of = {key: row for row, key in enumerate(points.keys)}
    unknown = [row.key for row in rows if row.key not in row_of]
    if unknown and points.paths is not None:
        real = {os.path.realpath(file): row for row, file in enumerate(points.paths)}
        for key in unknown:
            for base in (path.parent, Path()):
                row = real.get(os.path.realpath(base / key))
                row_of |= {} if row is None else {key: row}
        unknown = [key for key in unknown if key not in row_of]
    if unknown:
        near = _near(unknown[0], points.keys)
        hint = f"Did you mean {near!r}? " if near else f"The source has {listed(points.keys, 3)}. "
        raise InputError(
            f"{path} names {len(unknown)} of its {len(rows)} points as the source does not: {listed(unknown, 5)}. "
            f"{hint}Correct these, or remove their lines."
        )
    return row_of


def _near(key: str, keys: Sequence[str]) -> str | None:
    """The key that was probably meant: of the same file name, or spelt alike."""
    name = key.replace("\\", "/").rpartition("/")[2]
    same = [other for other in keys if other.rpartition("/")[2] == name]
    # difflib compares with each key in turn, which takes seconds beyond some thousands
    return next(iter(same or difflib.get_close_matches(key, keys[:5000], n=1)), None)


def _from_folders(folder: Path, points: Points) -> Given:
    if points.paths is None:
        raise InputError(
            f"{folder} is a folder, and the source holds vectors, not images. Give the labels as a table "
            f"({', '.join(TABLES)}) with the columns id,label or index,label."
        )
    files = _class_folders(folder)
    keys, paths = list(points.keys), list(points.paths)
    labels = _Labels(folder, keys)
    real = {os.path.realpath(path): row for row, path in enumerate(paths)}
    apart = [file for file, _ in files if os.path.realpath(file) not in real]
    rows_of = _by_content(paths, {file.stat().st_size for file in apart})
    for file, name in files:
        row = real.get(os.path.realpath(file))
        rows = rows_of[_digest(file)] if row is None else [row]
        if not rows:  # an example from elsewhere
            rows.append(len(keys))
            keys.append(file.as_posix())
            paths.append(file)
        for row in rows:
            labels.add(row, name, str(file))
    return Given(labels.array(), Points(tuple(keys), tuple(paths)), "path")


def _class_folders(folder: Path) -> list[tuple[Path, str]]:
    """The images in the class folders of a folder, each with its class."""
    from a2lp.images.datasets.folders import image_files

    inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    classes = [path for path in inside if path.name.lower() not in UNLABELLED]
    if not classes:
        raise InputError(
            f"{folder} holds no folders; as labels, it must hold one for each class, such as {folder / 'cat'}, with "
            "examples in it. Or give a table with the columns path,label."
        )
    found = {path: image_files(folder, path)[0] for path in classes}
    empty = [path.name for path, files in found.items() if not files]
    if empty:
        raise InputError(
            f"{folder}: there is no image of the class {listed(empty, 5)}. Put at least one into each class folder, or "
            "remove the folder."
        )
    return [(folder / file, path.name) for path, files in found.items() for file in files]


def _by_content(paths: Sequence[Path], sizes: set[int]) -> dict[str, list[int]]:
    """The rows of the files that have one of these sizes, by what is in them; the others need no reading."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, path in enumerate(paths if sizes else ()):
        if path.stat().st_size in sizes:
            rows[_digest(path)].append(row)
    return rows


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
