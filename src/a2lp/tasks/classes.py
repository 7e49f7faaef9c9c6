"""The classes of tasks: those of the support's labels, or those that are named."""

from __future__ import annotations

from typing import Any

import numpy as np

from a2lp.arrays import NDArray, to_numpy
from a2lp.checks import listed, require_distinct, shown
from a2lp.errors import InputError, ShapeError


def _label_values(labels: Any, shape: tuple[int, ...]) -> NDArray:
    """Labels of the support as an array (b, s) of one kind."""
    rule = f"support has {shape[0]} tasks of {shape[1]} vectors, so it must be {shape}: one label for each of them."
    try:
        values = to_numpy(labels)
    except ValueError as error:
        raise ShapeError(f"support_labels is ragged (its rows differ in length); {rule}") from error
    if values.shape != shape:
        raise ShapeError(f"support_labels has shape {values.shape}; {rule}")
    if isinstance(labels, list | tuple) and values.dtype.kind in "US":
        kinds = sorted({type(v).__name__ for row in labels for v in row} - {"str_", "bytes_"})
        if len(kinds) > 1:  # NumPy would silently turn 1 into "1"
            raise InputError(f"support_labels mixes {' and '.join(kinds)}; use one kind of label.")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError("support_labels holds NaN or inf; each vector needs a label. Move the others to `unlabelled`.")
    return values


def encode(labels: Any, shape: tuple[int, ...], named: int | None) -> tuple[NDArray, NDArray]:
    """Each task's sorted classes (b, c), and its labels as positions in them (b, s)."""
    values = _label_values(labels, shape)
    if shape[1] == 0:
        raise InputError("support is empty and classes is None; without labels, classes must name each prototype.")
    try:
        each = [np.unique(row, return_inverse=True) for row in values]
    except TypeError as error:
        kinds = sorted({type(v).__name__ for v in values.ravel()})
        raise InputError(f"support_labels mixes {', '.join(kinds)}; use one kind of label.") from error
    counts = [len(classes) for classes, _ in each]
    fewest, most = min(counts), max(counts)
    if fewest < most:
        raise ShapeError(
            f"tasks of one batch must have the same number of classes; task {counts.index(fewest)} has {fewest} and "
            f"task {counts.index(most)} has {most}. Split the batch, one batch for each number of classes."
        )
    if named is not None and named != fewest:
        raise ShapeError(
            f"there are {named} prototypes and the support has {fewest} classes; without classes= they must be as "
            "many, in the order of the sorted labels. Give classes=, the label of each prototype."
        )
    codes = np.stack([inverse.reshape(-1) for _, inverse in each]).astype(np.int64)
    return np.stack([classes for classes, _ in each]), codes


def named_classes(names: Any, n_tasks: int, named: int | None) -> NDArray:
    """The classes of the prototypes (b, c), all different within a task."""
    if named is None:
        raise InputError(
            "classes is given and prototypes is None; every named class needs a vector. Give prototypes=, one text "
            "vector for each class, or leave classes out: they are those of the support."
        )
    try:
        values = to_numpy(names)
    except ValueError:  # ragged nested lists
        values = np.asarray(None)
    if values.shape not in ((named,), (n_tasks, named)):
        raise ShapeError(
            f"classes has shape {values.shape} and there are {named} prototypes; it must be ({named},) or "
            f"({n_tasks}, {named}): one class for each prototype."
        )
    values = np.broadcast_to(values, (n_tasks, named))
    for task, row in enumerate(values.tolist()):
        require_distinct(f"classes of task {task}", row)
    return values


def encode_named(labels: Any, shape: tuple[int, ...], classes: NDArray) -> NDArray:
    """Labels of the support (b, s) as positions in the classes (b, c)."""
    values = _label_values(labels, shape)
    codes = np.zeros(shape, dtype=np.int64)
    for task, (row, names) in enumerate(zip(values.tolist(), classes.tolist(), strict=True)):
        position = {name: i for i, name in enumerate(names)}
        for i, label in enumerate(row):
            if label not in position:
                raise InputError(
                    f"support_labels[{task}, {i}] is {shown(label)}, which is not one of the {len(names)} classes "
                    f"({listed(names, 5)}). Add it to classes with a prototype, or correct the label."
                )
            codes[task, i] = position[label]
    return codes
