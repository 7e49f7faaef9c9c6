"""A batch of tasks, and a method's prediction for it.

``TaskBatch`` is validated once, when it is made. It has no query labels, so that no method can read them.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from a2lp.arrays import Array, NDArray, is_numpy, largest_safe, like, namespace, to_numpy
from a2lp.errors import InputError, ShapeError
from a2lp.tasks.classes import encode, encode_named, named_classes


@dataclass(frozen=True, eq=False)
class TaskBatch:
    """Tasks that are solved together, each with a labelled support set and unlabelled queries.

    Tasks of a batch share their sizes: s support vectors, q queries, u further unlabelled vectors, c classes
    (each task has its own classes, and shots per class may be unequal).

    Parameters
    ----------
    support : array (b, s, d)
        Labelled vectors. NumPy, torch, or any array-API array; float16 and integers are widened.
    support_labels : array or nested list (b, s)
        Their labels: integers, strings, anything that sorts.
    query : array (b, q, d)
        The vectors to label.
    unlabelled : array (b, u, d), optional
        Further vectors that take part in the graph and are not scored (the semi-supervised setting).
    prototypes : array (b, c, d), or (c, d) for all tasks, optional
        One vector of each class from its name, by the text encoder that belongs to the images' encoder. A class with a
        prototype needs no support: with (b, 0, d) support vectors there are no labels at all.
    classes : array or nested list (b, c), or (c,) for all tasks, optional
        The classes of the prototypes, as label values. By default the sorted labels of the support.

    Attributes
    ----------
    classes : numpy array (b, c)
        Each task's label values: those given with the prototypes, else those of the support, sorted.
    codes : array (b, s)
        ``support_labels`` as positions in ``classes``.
    has_large_values : bool
        Whether squares of some entries could overflow.

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp import TaskBatch
    >>> rng = np.random.default_rng(0)
    >>> batch = TaskBatch(rng.normal(size=(2, 3, 8)), [["a", "b", "a"], ["x", "y", "y"]], rng.normal(size=(2, 4, 8)))
    >>> batch
    TaskBatch(2 tasks: 2 classes, 3 support, 4 query, 0 unlabelled, 8 dimensions)

    No labels, names instead; the vectors of the names come from a text encoder.

    >>> names, text = ["auk", "wren"], rng.normal(size=(2, 8))
    >>> TaskBatch(np.empty((1, 0, 8)), [[]], rng.normal(size=(1, 4, 8)), prototypes=text, classes=names)
    TaskBatch(1 tasks: 2 named classes, 0 support, 4 query, 0 unlabelled, 8 dimensions)
    """

    support: Array
    support_labels: Any
    query: Array
    unlabelled: Array | None = None
    prototypes: Array | None = None
    classes: Any = None
    codes: Array = field(init=False, repr=False)
    has_large_values: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        given = {"support": self.support, "query": self.query, "unlabelled": self.unlabelled}
        arrays, largest = _vectors(given | {"prototypes": self.prototypes})
        support = arrays["support"]
        shape = tuple(support.shape[:2])
        named = None if self.prototypes is None else int(arrays["prototypes"].shape[1])
        if self.classes is None:
            classes, codes = encode(self.support_labels, shape, named)
        else:
            classes = named_classes(self.classes, shape[0], named)
            codes = encode_named(self.support_labels, shape, classes)
        labels = self.support_labels if is_array_api_obj(self.support_labels) else np.asarray(self.support_labels)
        values = {**arrays, "support_labels": labels, "classes": classes, "codes": like(codes, support)}
        for name, value in (values | {"has_large_values": largest > largest_safe(support.dtype)}).items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return (
            f"TaskBatch({self.n_tasks} tasks: {self.n_classes} {'' if self.prototypes is None else 'named '}classes, "
            f"{self.n_support} support, {self.n_query} query, {self.n_unlabelled} unlabelled, {self.n_dims} dimensions)"
        )

    def __len__(self) -> int:
        return self.n_tasks

    def __getitem__(self, tasks: slice) -> TaskBatch:
        """Some of the tasks as a batch, not validated again."""
        part = copy.copy(self)
        for name in ("support", "support_labels", "query", "unlabelled", "prototypes", "classes", "codes"):
            value = getattr(self, name)
            object.__setattr__(part, name, None if value is None else value[tasks, ...])
        return part

    @property
    def n_tasks(self) -> int:
        """Number of tasks, b."""
        return int(self.support.shape[0])

    @property
    def n_support(self) -> int:
        """Labelled vectors of a task, s."""
        return int(self.support.shape[1])

    @property
    def n_query(self) -> int:
        """Queries of a task, q."""
        return int(self.query.shape[1])

    @property
    def n_unlabelled(self) -> int:
        """Further unlabelled vectors of a task, u."""
        return 0 if self.unlabelled is None else int(self.unlabelled.shape[1])

    @property
    def n_classes(self) -> int:
        """Classes of a task, c."""
        return int(self.classes.shape[1])

    @property
    def n_dims(self) -> int:
        """Length of a vector, d."""
        return int(self.support.shape[2])

    @property
    def points(self) -> Array:
        """All vectors of each task, (b, s + q + u, d): support first, then queries, then unlabelled."""
        parts = [self.support, self.query] + ([] if self.unlabelled is None else [self.unlabelled])
        return namespace(self.support).concat(parts, axis=1)

    def decode(self, codes: Array) -> Any:
        """Positions in ``classes`` (b, ...) as label values, in an array of the same library as ``support_labels``."""
        return self._labels_like(np.take_along_axis(self.classes, to_numpy(codes), axis=1))

    def _labels_like(self, values: NDArray) -> Any:
        labels = self.support_labels
        own = is_array_api_obj(labels) and not is_numpy(namespace(labels)) and values.dtype.kind in "biuf"
        return like(values, labels) if own else values


@dataclass(frozen=True, eq=False)
class Prediction:
    """A method's prediction for a batch, and how it was computed.

    Attributes
    ----------
    scores : array (b, q, c)
        The method's scores, larger is better.
    probabilities : array (b, q, c)
        Rows sum to one.
    labels : array (b, q)
        The most probable class of each query, as one of the caller's label values.
    classes : array (b, c)
        The label value of each column.
    reached : array (b, q)
        False for a query that no label reaches through the graph: its scores are zero, its probabilities uniform, and
        its label is that of the nearest support vector.
    steps : array (b,)
        Optimisation steps of each task.
    converged : array (b,)
        Whether a task met a tolerance before the last step.
    losses : array (b, steps) or None
        The loss before each step; after a task has stopped, its last value again.
    anchors : array (b, s, d) or None
        The support vectors after adaptation; the class weights (b, c, d) of methods that have those instead.
    engine, reason : str
        The engine that ran, and why it was chosen.

    Examples
    --------
    >>> import a2lp
    >>> batch = a2lp.TaskBatch([[[1.0, 0.1], [0.1, 1.0]]], [["wren", "auk"]], [[[0.9, 0.3], [0.2, 0.8]]])
    >>> answer = a2lp.create("prototypical").predict(batch)
    >>> answer.labels[0].tolist(), answer.classes[0].tolist()
    (['wren', 'auk'], ['auk', 'wren'])
    >>> answer.probabilities.shape
    (1, 2, 2)
    """

    scores: Array
    probabilities: Array
    labels: Any
    classes: Any
    reached: Array
    steps: Array
    converged: Array
    losses: Array | None = None
    anchors: Array | None = None
    engine: str = "direct"
    reason: str = "a closed form; there is nothing to choose"

    def __repr__(self) -> str:
        b, q, c = self.scores.shape
        return f"Prediction({b} tasks: {q} queries, {c} classes; engine {self.engine!r})"


def _vectors(given: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Check shapes and values; return floating arrays of one library, dtype and width, and the largest magnitude."""
    arrays = {name: _as_array(name, value) for name, value in given.items() if value is not None}
    xp = namespace(*arrays.values())
    named = arrays.get("prototypes")
    if named is not None and named.ndim == 2:
        arrays["prototypes"] = named[None, :, :]
    for name, x in arrays.items():
        _check_axes(name, x, may_be_empty=name == "unlabelled" or (name == "support" and named is not None))
    b, _, d = arrays["support"].shape
    if named is not None and named.ndim == 2:
        arrays["prototypes"] = xp.broadcast_to(arrays["prototypes"], (b, *named.shape))
    for name, x in arrays.items():
        if x.shape[0] != b:
            raise ShapeError(f"support has {b} tasks and {name} has {x.shape[0]}; give both the same tasks.")
        if x.shape[2] != d:
            sizes = f"support vectors have {d} dimensions and {name} vectors have {x.shape[2]}"
            how = "both with the same backbone" if name != "prototypes" else "names and images with one model"
            raise ShapeError(f"{sizes}; embed {how}.")
    # integers become float64, since float32 may not hold them
    narrow = [getattr(xp, name) for name in ("float32", "float16", "bfloat16") if hasattr(xp, name)]
    dtype = xp.float32 if all(x.dtype in narrow for x in arrays.values()) else xp.float64
    arrays = {name: xp.astype(x, dtype, copy=False) for name, x in arrays.items()}
    largest = 0.0
    for name, x in ((name, x) for name, x in arrays.items() if 0 not in x.shape):
        extent = max(float(xp.max(x)), -float(xp.min(x)))
        largest = max(largest, extent)
        if not math.isfinite(extent):
            task, row, column = (int(i[0]) for i in np.nonzero(~to_numpy(xp.isfinite(x))))
            raise InputError(
                f"{name}[{task}, {row}, {column}] is {float(x[task, row, column])}; vectors must be finite. Drop that "
                "point, or look for an overflow where the features were made."
            )
    return arrays, largest


def _check_axes(name: str, x: Array, may_be_empty: bool) -> None:
    """Raise ShapeError unless an array has three axes, none of them empty but perhaps that of the points."""
    shape = tuple(x.shape)
    if x.ndim != 3:
        hint = f" One task alone is a batch of one: {name}[None]." if x.ndim == 2 else ""
        axes = "(tasks, classes, d) or (classes, d)" if name == "prototypes" else f"(tasks, {name[0]}, d)"
        raise ShapeError(f"{name} has shape {shape}; it must have three axes, {axes}.{hint}")
    if 0 in shape and not (may_be_empty and shape[1] == 0 and shape[0] and shape[2]):
        needed = "Every task needs at least one support vector, one query and one dimension."
        if name == "support" and shape[1] == 0:
            needed += " Without any label, give names: prototypes= and classes=."
        raise ShapeError(f"{name} has shape {shape} and is empty. {needed}")


def _as_array(name: str, value: Any) -> Array:
    if hasattr(value, "detach"):  # a torch tensor: nothing is trained through a task, and its graph would fill memory
        return value.detach()
    if is_array_api_obj(value) and not isinstance(value, np.ndarray):
        return value
    try:
        array = np.asarray(value)
    except ValueError:  # ragged nested lists
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise ShapeError(
            f"{name} is not one array of numbers (its tasks may differ in size, or it holds {array.dtype} values). "
            "Tasks of a batch share the number of support vectors, queries and unlabelled vectors: split the batch, "
            "one batch for each size."
        )
    return array
