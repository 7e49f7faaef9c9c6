"""Feature vectors with labels, class names, file names and a description of their origin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from a2lp.arrays import NDArray, chunks, to_numpy
from a2lp.checks import shown
from a2lp.cores import map_on_cores
from a2lp.errors import InputError, ShapeError

_ROWS = 1 << 16  # vectors that are checked at a time


@dataclass(frozen=True, eq=False, repr=False)
class FeatureSet:
    """N vectors of d dimensions, validated when the set is made.

    Parameters
    ----------
    features : array (N, d)
        Finite numbers. float16, float32 and float64 are kept; integers become float32.
    labels : array (N,), optional
        Positions in ``classes``, or integers from 0 if there are no ``classes``, or class names.
    classes : sequence of str, optional
        Distinct class names, which may include some that do not occur; by default the sorted names in ``labels``.
    files : sequence of str, optional
        The file that each vector was computed from.
    text : array (classes, d), optional
        One vector of each of the ``classes`` from its name, by the text encoder that belongs to the images' encoder.
    name : str
        The name of the set in tables and reports.
    about : dict
        Its origin, in JSON values: ``source``, ``split``, ``terms``, ...

    Examples
    --------
    >>> from a2lp.features import FeatureSet
    >>> FeatureSet([[0.0, 1.0], [1.0, 0.0]], labels=["wren", "auk"], name="birds")
    FeatureSet('birds': 2 x 2 float64, 2 classes)
    """

    features: NDArray
    labels: NDArray | None = None
    classes: tuple[str, ...] | None = None
    files: tuple[str, ...] | None = None
    name: str = "features"
    about: dict[str, Any] = field(default_factory=dict)
    text: NDArray | None = None

    def __post_init__(self) -> None:
        features = _vectors(self.features, "features")
        n = len(features)
        classes = None if self.classes is None else _class_names(self.classes)
        labels, classes = _labels(self.labels, classes, n)
        files = None if self.files is None else _texts("files", self.files)
        if files is not None and len(files) != n:
            raise ShapeError(f"files has {len(files)} names and features has {n} rows; give one name for each row.")
        text = None if self.text is None else _text(self.text, classes, features.shape[1])
        checked = {"text": text, "features": features, "labels": labels, "classes": classes, "files": files}
        for key, value in (checked | {"about": _about(self.about)}).items():
            object.__setattr__(self, key, value)

    def __repr__(self) -> str:
        n, d = self.features.shape
        classes = "no labels" if self.labels is None else f"{self.n_classes} classes"
        named = "" if self.text is None else f", text of {len(self.text)} names"
        return f"FeatureSet({self.name!r}: {n} x {d} {self.features.dtype}, {classes}{named})"

    def __len__(self) -> int:
        return len(self.features)

    @property
    def n_classes(self) -> int:
        """Number of classes with at least one vector."""
        return 0 if self.labels is None else len(np.unique(self.labels))

    @property
    def label_values(self) -> list[Any] | None:
        """The class name of each row, or its number if classes have no names."""
        if self.labels is None:
            return None
        labels: list[Any] = self.labels.tolist()
        return labels if self.classes is None else [self.classes[label] for label in labels]

    def class_name(self, label: int) -> str:
        """The name of a label; the number itself if classes have no names."""
        if self.classes is None:
            return str(label)
        if not 0 <= label < len(self.classes):
            last = len(self.classes) - 1
            raise InputError(f"label={shown(label)} has no name; {self.name!r} names the labels 0 to {last}.")
        return self.classes[label]


def _vectors(values: Any, what: str) -> NDArray:
    try:
        features = to_numpy(values)
    except (TypeError, ValueError) as error:
        rule = "it must be (N, d), all vectors of one length."
        raise ShapeError(f"{what} is not one array of numbers ({error}); {rule}") from error
    if features.dtype.kind in "biu":
        features = features.astype(np.float32)
    if features.dtype.kind != "f" or features.dtype.itemsize > 8:
        raise InputError(
            f"{what} holds {shown(str(features.dtype))} values; it must hold float16, float32, float64 or integers. "
            f"Convert it with {what}.astype('float32')."
        )
    if features.ndim != 2 or 0 in features.shape:
        raise ShapeError(f"{what} has shape {features.shape}; it must be (N, d), at least one row and one column.")

    def check(part: slice) -> None:
        finite = np.isfinite(features[part])
        if not finite.all():
            row, column = np.argwhere(~finite)[0].tolist()
            row += part.start
            raise InputError(
                f"{what}[{row}, {column}] (row, column) is {features[row, column]}; {what} must be finite. "
                "Drop that row, or find the overflow where the features were made."
            )

    map_on_cores(check, chunks(len(features), _ROWS))  # a memory map may be larger than memory
    # writers pass the memory itself to other libraries, some of which ignore strides and byte order
    return np.ascontiguousarray(features, dtype=features.dtype.newbyteorder("="))


def _text(values: Any, classes: tuple[str, ...] | None, width: int) -> NDArray:
    """Vectors of the class names, one for each, as wide as the features."""
    text = _vectors(values, "text")
    if classes is None:
        raise InputError("text has vectors of names, and there are no class names. Give classes, in the order of text.")
    if len(text) != len(classes):
        raise ShapeError(f"text has {len(text)} rows and there are {len(classes)} class names; give each one vector.")
    if text.shape[1] != width:
        raise ShapeError(
            f"text has {text.shape[1]} dimensions and features has {width}; they must be the same. Take both from the "
            "encoders of one model."
        )
    return text


def _labels(values: Any, classes: tuple[str, ...] | None, n: int) -> tuple[NDArray | None, tuple[str, ...] | None]:
    """Labels as positions in the class names, and the names, which are taken from the labels if there are none."""
    if values is None:
        return None, classes
    # names stay objects: in an array of text, every label would take as much memory as the longest
    named = isinstance(values, list | tuple) and any(isinstance(value, str | bytes) for value in values)
    try:
        labels = np.array(values, dtype=object) if named else to_numpy(values)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"labels is not one array ({error}); it must be ({n},): one label for each row.") from error
    if labels.shape != (n,):
        raise ShapeError(f"labels has shape {labels.shape} and features has {n} rows; labels must be ({n},).")
    if labels.dtype.kind in "USTO":
        names = _texts("labels", labels)
        classes = _class_names(sorted(set(names))) if classes is None else classes
        position = {name: i for i, name in enumerate(classes)}
        for row, name in enumerate(names):
            if name not in position:
                raise InputError(
                    f"labels[{row}] is {shown(name)}, which is not one of the {len(classes)} class names. Add it to "
                    "classes, or correct the label."
                )
        return np.array([position[name] for name in names], dtype=np.int64), classes
    if labels.dtype.kind not in "iu":
        raise InputError(
            f"labels holds {labels.dtype} values; it must hold integers from 0 or class names. "
            "Convert it with labels.astype(int) or labels.astype(str)."
        )
    stop = 2**63 if classes is None else len(classes)
    wrong = (labels < 0) | (labels >= stop)
    if wrong.any():
        row, rule = int(np.argmax(wrong)), "labels must be 0 or more and below 2**63"
        if classes is not None:
            rule = f"there are {stop} class names, so it must be 0 to {stop - 1}"
        raise InputError(f"labels[{row}] is {labels[row]}; {rule}. Correct the label, or drop the row.")
    return labels.astype(np.int64), classes


def _class_names(values: Any) -> tuple[str, ...]:
    names = _texts("classes", values)
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if not name:
            raise InputError(f"classes[{i}] is empty; every class needs a name, and every row a label (or no row).")
        if first.setdefault(name, i) != i:
            same = f"classes[{first[name]}] and classes[{i}] are both {shown(name)}"
            raise InputError(f"{same}; class names must differ. Put the class number before the name.")
    return names


def _texts(what: str, values: Any) -> tuple[str, ...]:
    """Text or UTF-8 bytes as a tuple of str that every file format can hold."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | np.ndarray):
        raise InputError(f"{what} is {shown(values)}; it must be a sequence of text, such as a list of str.")
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise ShapeError(f"{what} has shape {values.shape}; it must have one axis.")
    texts = []
    for i, value in enumerate(values.tolist() if isinstance(values, np.ndarray) else values):
        try:
            text = value.decode() if isinstance(value, bytes) else value
            usable = isinstance(text, str) and "\0" not in text and text.encode() is not None
        except UnicodeError:
            usable = False
        if not usable:
            raise InputError(f"{what}[{i}] is {shown(value)}; it must be text in UTF-8, without NUL characters.")
        texts.append(str(text))
    return tuple(texts)


def _about(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise InputError(f"about is {shown(values)}; it must be a dict.")
    try:
        return dict(json.loads(json.dumps(values, allow_nan=False)))  # a copy, the same as a file would give
    except (TypeError, ValueError, RecursionError) as error:
        rule = "use text, finite numbers, lists and dicts."
        raise InputError(f"about cannot be written as JSON ({error}); {rule}") from error
