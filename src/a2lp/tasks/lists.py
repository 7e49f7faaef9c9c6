"""Lists of tasks as row numbers of a feature file, kept in .npz so that anyone can rerun the same tasks."""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.errors import FeatureFileError, InputError, ShapeError
from a2lp.tasks.batch import TaskBatch

Rows = np.ndarray[Any, Any]

REQUIRED = ("support", "support_labels", "query", "query_labels")


@dataclass(frozen=True, eq=False)
class TaskList:
    """Which rows of a feature file make up each task, and the query labels to score the answers with.

    Parameters
    ----------
    support, query : int array (t, s), (t, q)
        Row numbers in the feature file. The two share no row within a task.
    support_labels, query_labels : int array (t, s), (t, q)
        Labels 0..N-1 within the task; every class is in every support.
    unlabelled : int array (t, u), optional
        Rows that join the graph and are not scored.
    about : dict
        How the tasks were drawn: ``sampler``, ``n_way``, ``n_shot``, ``n_query``, ``seed``, ``redraws``, ...
        JSON values only.

    Examples
    --------
    >>> from a2lp.tasks.lists import TaskList
    >>> tasks = TaskList([[0, 5]], [[0, 1]], [[6, 1, 7]], [[1, 0, 1]])
    >>> tasks
    TaskList(1 tasks: 2 ways, 1 shots, 3 query, 0 unlabelled)
    """

    support: Rows
    support_labels: Rows
    query: Rows
    query_labels: Rows
    unlabelled: Rows | None = None
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (*REQUIRED, "unlabelled"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _integers(name, value))
        _check_shapes(self)
        _check_labels(self)
        _check_disjoint(self)

    def __repr__(self) -> str:
        q = self.query.shape[1]
        u = 0 if self.unlabelled is None else self.unlabelled.shape[1]
        sizes = f"{self.n_way} ways, {self.n_shot} shots, {q} query, {u} unlabelled"
        return f"TaskList({len(self)} tasks: {sizes})"

    def __len__(self) -> int:
        return int(self.support.shape[0])

    def __getitem__(self, tasks: slice) -> TaskList:
        """Some of the tasks, as a list of their own; at least one must be left."""
        parts = {name: getattr(self, name)[tasks] for name in REQUIRED}
        if self.unlabelled is not None:
            parts["unlabelled"] = self.unlabelled[tasks]
        return TaskList(**parts, about=self.about)

    @property
    def n_way(self) -> int:
        """Classes of a task, N."""
        return int(self.support_labels.max()) + 1

    @property
    def n_shot(self) -> int:
        """Labelled examples per class; where classes differ, their mean rounded down."""
        return int(self.support.shape[1]) // self.n_way

    def check(self, n_rows: int, name: str = "the feature file") -> None:
        """Raise InputError unless every row number is one of a feature file of ``n_rows`` rows."""
        rows = [self.support, self.query] + ([] if self.unlabelled is None else [self.unlabelled])
        last = max(int(r.max(initial=0)) for r in rows)
        if last >= n_rows:
            raise InputError(
                f"the task list refers to row {last} but {name} has {n_rows} rows: it was drawn from another "
                "feature file. Use the features it was drawn from, or draw new tasks."
            )

    def batch(self, features: np.ndarray[Any, Any]) -> TaskBatch:
        """Gather the vectors of these tasks from ``features`` (N, d); float16 becomes float32.

        This copies every vector of every task: take a slice of the list first where memory is short.
        """
        if features.ndim != 2:
            raise ShapeError(
                f"features has shape {features.shape}; it must have two axes, (rows, d): one vector a row."
            )
        self.check(len(features))
        unlabelled = None if self.unlabelled is None else features[self.unlabelled]
        return TaskBatch(features[self.support], self.support_labels, features[self.query], unlabelled)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the list to an .npz file."""
        path = Path(path)
        arrays = {name: getattr(self, name) for name in REQUIRED} | {"about": np.array(json.dumps(self.about))}
        if self.unlabelled is not None:
            arrays["unlabelled"] = self.unlabelled
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file:
                np.savez_compressed(file, **arrays)
            temporary.replace(path)
        except OSError as error:
            raise FeatureFileError(
                f"cannot write the task list '{path}': {error.strerror or error}. Choose a file name in a "
                "folder that exists and can be written to."
            ) from error
        finally:
            with contextlib.suppress(OSError):  # it is gone if all went well
                temporary.unlink()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TaskList:
        """Read a list from an .npz file; keys that are not a part of it are ignored."""
        arrays = _read_npz(Path(path))
        missing = [name for name in REQUIRED if name not in arrays]
        if missing:
            raise FeatureFileError(
                f"'{path}' has no {', '.join(missing)}, so it is not a task list. Give an .npz file with "
                f"{', '.join(REQUIRED)}."
            )
        try:
            about = _read_about(arrays.pop("about", None))
            return cls(**arrays, about=about)
        except InputError as error:
            raise type(error)(f"'{path}': {error}") from error


def _read_npz(path: Path) -> dict[str, Rows]:
    """The arrays of a task list that a file has, without ever unpickling."""
    try:
        with path.open("rb") as file:  # np.load would leave a broken file open
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is a single array")
            return {name: archive[name] for name in (*REQUIRED, "unlabelled", "about") if name in archive}
    except FileNotFoundError as error:
        raise FeatureFileError(
            f"there is no file '{path}'. Check the name, or save a task list there first."
        ) from error
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise FeatureFileError(
            f"'{path}' is not an .npz file of plain arrays: damaged, or of another format. Give a task list "
            f"that a2lp saved, or an .npz file with {', '.join(REQUIRED)}."
        ) from error
    except OSError as error:
        raise FeatureFileError(
            f"cannot read '{path}': {error.strerror or error}. Give a task list (.npz) that you may read."
        ) from error


def _read_about(value: Rows | None) -> dict[str, Any]:
    if value is None:
        return {}
    try:
        about = json.loads(str(value))
    except ValueError:
        about = None
    if not isinstance(about, dict):
        raise InputError(
            f"'about' is {str(value)[:40]!r}; it must be a JSON object in a string. Leave it out, or mend it."
        )
    return about


def _integers(name: str, value: Any) -> Rows:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ShapeError(
            f"{name} is ragged; every task has the same sizes. Split it, one list for each size."
        ) from error
    if array.ndim != 2 or (array.size == 0 and name != "unlabelled"):
        raise ShapeError(f"{name} has shape {array.shape}; it must be (tasks, points), at least one of each.")
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} holds {array.dtype} values; row numbers and labels are integers. Convert it first.")
    array = array.astype(np.int64)
    if array.min(initial=0) < 0:
        raise InputError(f"{name} holds {array.min()}; row numbers and labels count from 0. Renumber them.")
    return array


def _check_shapes(tasks: TaskList) -> None:
    for name in ("support", "query"):
        rows, labels = getattr(tasks, name), getattr(tasks, f"{name}_labels")
        if rows.shape != labels.shape:
            raise ShapeError(f"{name} has shape {rows.shape} and {name}_labels {labels.shape}; give each row a label.")
    for name in ("query", "unlabelled"):
        rows = getattr(tasks, name)
        if rows is not None and len(rows) != len(tasks):
            raise ShapeError(f"support has {len(tasks)} tasks and {name} has {len(rows)}; give both the same tasks.")


def _check_labels(tasks: TaskList) -> None:
    """Every task's support has every class 0..N-1, and its queries have no other."""
    n_way = tasks.n_way
    each = tasks.support_labels + n_way * np.arange(len(tasks))[:, None]
    shots = np.bincount(each.ravel(), minlength=n_way * len(tasks)).reshape(-1, n_way)
    if not shots.all():
        task, label = np.argwhere(shots == 0)[0]
        raise InputError(
            f"support_labels go up to {n_way - 1}, but task {task} has no support of class {label}. Number "
            "each task's classes from 0 without gaps; split lists whose tasks differ in number of classes."
        )
    if tasks.query_labels.max() >= n_way:
        task, column = np.argwhere(tasks.query_labels >= n_way)[0]
        raise InputError(
            f"query_labels[{task}, {column}] is {tasks.query_labels[task, column]}, but the support has "
            f"classes 0 to {n_way - 1} only. Drop that query, or add support of its class."
        )


def _check_disjoint(tasks: TaskList) -> None:
    """No row plays two parts in one task: a query that is also support would be a leak."""
    parts = [(name, getattr(tasks, name)) for name in ("support", "query", "unlabelled")]
    present = [(name, rows) for name, rows in parts if rows is not None]
    span = 1 + max(int(rows.max(initial=0)) for _, rows in present)
    first_of_task = span * np.arange(len(tasks))[:, None]
    for i, (name, rows) in enumerate(present):
        for other, other_rows in present[i + 1 :]:
            shared = np.isin(other_rows + first_of_task, rows + first_of_task)
            if shared.any():
                task, column = np.argwhere(shared)[0]
                raise InputError(
                    f"row {other_rows[task, column]} is both {name} and {other} of task {task}; the parts of "
                    "a task must not share rows. Draw the tasks again without replacement."
                )
