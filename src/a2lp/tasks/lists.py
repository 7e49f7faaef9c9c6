"""Lists of tasks as row numbers of a feature file, saved as .npz so that the same tasks can be run again."""

from __future__ import annotations

import copy
import itertools
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from a2lp import npz
from a2lp.arrays import NDArray
from a2lp.checks import shown
from a2lp.errors import FeatureFileError, InputError, ShapeError
from a2lp.files import parse_json, reading, replacing, writing
from a2lp.tasks.batch import TaskBatch

Rows = NDArray

_REQUIRED = ("support", "support_labels", "query", "query_labels")
_EXPECTED = "a task list (.npz)"
_MOST = 2**40  # rows of a feature file; with more, row numbers of all tasks together may not fit into 64 bits


@dataclass(frozen=True, eq=False)
class TaskList:
    """The rows of a feature file that make up each task, and the query labels, to evaluate predictions.

    Parameters
    ----------
    support, query : int array (t, s), (t, q)
        Row numbers in the feature file. The two share no row within a task.
    support_labels, query_labels : int array (t, s), (t, q)
        Labels 0..N-1 within the task; every class is in every support, unless there are ``classes``.
    unlabelled : int array (t, u), optional
        Further unlabelled rows, which are not scored.
    classes : int array (t, N), optional
        The class of each label in the feature file, by which the vectors of its name are found. With it, tasks may have
        no support, (t, 0).
    about : dict
        How the tasks were drawn, in JSON values: ``sampler``, ``n_way``, ``n_shot``, ``n_query``, ``seed``, ...

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
    classes: Rows | None = None

    def __post_init__(self) -> None:
        may_be_empty = ("unlabelled",) if self.classes is None else ("unlabelled", "support", "support_labels")
        for name in (*_REQUIRED, "unlabelled", "classes"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _integers(name, value, name in may_be_empty))
        _check_shapes(self)
        _check_labels(self)
        _check_disjoint(self)

    def __repr__(self) -> str:
        u = 0 if self.unlabelled is None else self.unlabelled.shape[1]
        sizes = f"{self.n_way} ways, {self.n_shot} shots, {self.query.shape[1]} query, {u} unlabelled"
        return f"TaskList({len(self)} tasks: {sizes})"

    def __len__(self) -> int:
        return int(self.support.shape[0])

    def __getitem__(self, tasks: slice) -> TaskList:
        """Some of the tasks as a list, not validated again."""
        if not len(self.support[tasks]):
            raise InputError(f"{tasks} leaves none of the {len(self)} tasks; a list has at least one. Choose others.")
        part = copy.copy(self)
        for name in (*_REQUIRED, "unlabelled", "classes"):
            rows = getattr(self, name)
            object.__setattr__(part, name, None if rows is None else rows[tasks])
        return part

    @property
    def n_way(self) -> int:
        """Classes of a task, N."""
        return int(self.support_labels.max()) + 1 if self.classes is None else int(self.classes.shape[1])

    @property
    def n_shot(self) -> int:
        """Labelled examples per class; where classes differ, their mean rounded down."""
        return int(self.support.shape[1]) // self.n_way

    @property
    def _parts(self) -> dict[str, Rows]:
        """The row numbers of each part of the tasks."""
        parts = {"support": self.support, "query": self.query, "unlabelled": self.unlabelled}
        return {name: rows for name, rows in parts.items() if rows is not None}

    def check(self, n_rows: int, name: str = "the feature file") -> None:
        """Raise InputError unless every row number is below ``n_rows``, the rows of a feature file."""
        last = max(int(rows.max(initial=0)) for rows in self._parts.values())
        if last >= n_rows:
            raise InputError(
                f"the task list refers to row {last} but {name} has {n_rows} rows: it was drawn from another "
                "feature file. Use the features it was drawn from, or draw new tasks."
            )

    def batch(self, features: NDArray, text: NDArray | None = None) -> TaskBatch:
        """Copy the vectors of these tasks from ``features`` (N, d); float16 becomes float32.

        With ``text``, one vector for each class of the feature file, tasks have their classes' names.
        """
        if features.ndim != 2:
            raise ShapeError(f"features has shape {features.shape}; it must have two axes, (rows, d). Reshape it.")
        self.check(len(features))
        unlabelled = None if self.unlabelled is None else features[self.unlabelled]
        arrays = (features[self.support], self.support_labels, features[self.query], unlabelled)
        if text is None or self.classes is None:
            return TaskBatch(*arrays)
        if int(self.classes.max()) >= len(text):
            raise InputError(
                f"the task list refers to class {self.classes.max()}, and text has {len(text)} rows: one for each "
                "class of the feature file. Use the features it was drawn from, or draw new tasks."
            )
        return TaskBatch(*arrays, prototypes=text[self.classes], classes=np.arange(self.n_way))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the list to an .npz file; a file of that name is replaced."""
        path = Path(path)
        arrays = {name: getattr(self, name) for name in _REQUIRED} | {"about": np.array(json.dumps(self.about))}
        for name in ("unlabelled", "classes"):
            arrays |= {} if getattr(self, name) is None else {name: getattr(self, name)}
        remedy = "Choose a file name in a folder that exists and can be written to."
        with writing(path, remedy, FeatureFileError), replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TaskList:
        """Read a list from an .npz file; other arrays in it are ignored."""
        path = Path(path)
        arrays: dict[str, Any] = npz.read(path, _EXPECTED, _REQUIRED, ["unlabelled", "about", "classes"])
        with reading(path, _EXPECTED):
            about = parse_json(arrays.pop("about").tolist(), "`about`") if "about" in arrays else {}
            if not isinstance(about, dict):
                raise InputError(f"`about` is {shown(about)}; it must be a JSON object. Leave it out, or correct it.")
            return cls(**arrays, about=about)


def _integers(name: str, value: Any, may_be_empty: bool) -> Rows:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{name} is ragged; all tasks must have the same size. Split it by size.") from error
    if array.ndim != 2 or (array.size == 0 and not may_be_empty):
        raise ShapeError(f"{name} has shape {array.shape}; it must be (tasks, points), at least one of each.")
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} holds {array.dtype} values; row numbers and labels are integers. Convert it first.")
    for value in (int(array.min()), int(array.max())) if array.size else ():
        if not 0 <= value < _MOST:
            rule = f"row numbers and labels count from 0 and are below {_MOST}"
            raise InputError(f"{name} holds {value}; {rule}. Renumber them.")
    return array.astype(np.int64)


def _check_shapes(tasks: TaskList) -> None:
    for name in ("support", "query"):
        rows, labels = getattr(tasks, name), getattr(tasks, f"{name}_labels")
        if rows.shape != labels.shape:
            raise ShapeError(f"{name} has shape {rows.shape} and {name}_labels {labels.shape}; give each row a label.")
    for name, rows in tasks._parts.items():
        if len(rows) != len(tasks):
            raise ShapeError(f"support has {len(tasks)} tasks and {name} has {len(rows)}; give both the same tasks.")


def _check_labels(tasks: TaskList) -> None:
    """Every task's support has every class 0..N-1, and its queries have no other."""
    n_way = tasks.n_way
    if tasks.classes is not None:
        if len(tasks.classes) != len(tasks):
            raise ShapeError(f"support has {len(tasks)} tasks and classes has {len(tasks.classes)}; give all the same.")
        for name, labels in (("support_labels", tasks.support_labels), ("query_labels", tasks.query_labels)):
            if labels.max(initial=0) >= n_way:
                raise InputError(
                    f"{name} holds {labels.max()}; there are {n_way} classes, so 0 to {n_way - 1}. Renumber."
                )
        return
    if n_way > tasks.support.shape[1]:
        raise InputError(
            f"support_labels go up to {n_way - 1}, but a task has {tasks.support.shape[1]} support vectors, one "
            "at least for each class. Number each task's classes from 0 without gaps."
        )
    codes = tasks.support_labels + n_way * np.arange(len(tasks))[:, None]  # distinct over tasks
    shots = np.bincount(codes.ravel(), minlength=n_way * len(tasks)).reshape(-1, n_way)
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
    """No row is in two parts of one task: a query that is also support would be a leak."""
    span = 1 + max(int(rows.max(initial=0)) for rows in tasks._parts.values())
    first_of_task = span * np.arange(len(tasks))[:, None]
    for (name, rows), (other, other_rows) in itertools.combinations(tasks._parts.items(), 2):
        shared = np.isin(other_rows + first_of_task, rows + first_of_task)
        if shared.any():
            task, column = np.argwhere(shared)[0]
            raise InputError(
                f"row {other_rows[task, column]} is both {name} and {other} of task {task}; the parts of a task must "
                "not share rows. Draw the tasks again without replacement."
            )
