"""The names of the classes and their text vectors: from a file, from the source itself, or from a backbone."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from a2lp import npz
from a2lp.arrays import NDArray
from a2lp.checks import listed, require_distinct, shown
from a2lp.errors import A2LPWarning, InputError, ShapeError, install_command
from a2lp.features import FeatureSet, load
from a2lp.files import read_text
from a2lp.labelling.labels import Task, check_classes, read_task
from a2lp.labelling.sources import Embedding, Points

Where = str | Path

_BRING = (
    "Give the vectors of the names with --text FILE (prototypes= in Python): an .npy with one row for each name, or an "
    ".npz with text and classes, from the text encoder that belongs to the encoder of the images"
)
OPEN_CLIP = "open_clip:"


@dataclass(frozen=True, eq=False, repr=False)
class ClassNames:
    """Named classes.

    Attributes
    ----------
    classes : tuple of str
    vectors : array (c, d) or None
        One for each name; None where the backbone of the images still has to make them.
    """

    classes: tuple[Any, ...]
    vectors: NDArray | None = None

    def __repr__(self) -> str:
        vectors = "no vectors yet" if self.vectors is None else f"{self.vectors.shape[1]} dimensions"
        return f"ClassNames({len(self.classes)}: {listed(self.classes, 3)}; {vectors})"

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of ``Pool``."""
        return {"classes": self.classes, "prototypes": self.vectors}

    def check_labels(self, labels: NDArray) -> None:
        """Refuse labels that are not among the named classes."""
        known = set(self.classes)
        if unknown := sorted({label for label in labels if label is not None} - known):
            raise InputError(
                f"the labels {listed(unknown, 5)} are none of the {len(known)} named classes ({listed(self.classes, 5)}"
                "). Correct them, or add these classes to the names."
            )

    def embedded(self, how: Embedding) -> ClassNames:
        """The same with vectors, from the backbone's text encoder if there are none yet."""
        if self.vectors is not None:
            return self
        from a2lp.images.text import encode_names

        found = encode_names(self.classes, how.backbone, how.weights, how.device, how.prompts)
        return ClassNames(self.classes, found)


def find_names(
    points: Points, names: Where | Sequence[Any] | None, text: Where | NDArray | None, how: Embedding
) -> ClassNames | None:
    """The named classes of a call; None where nothing names them.

    Parameters
    ----------
    points : Points
        Those of the source; a feature file may bring ``classes`` and ``text``.
    names : path or sequence, optional
        A text file with one name per line, or the names; without them, those that come with the vectors.
    text : path or array (c, d), optional
        A file of vectors, or the vectors, in the order of the names.
    how : Embedding
        Of images; some backbones embed names, too.
    """
    classes = None if names is None else _names(names)
    if text is not None:
        vectors, known = read_vectors(text) if isinstance(text, str | Path) else (np.asarray(text), None)
        return _matched(classes, vectors, known, "prototypes" if isinstance(text, np.ndarray) else str(text))
    if points.text is not None:
        return _matched(classes, points.text, points.classes, "the source")
    if classes is None:
        return None
    if points.paths is not None and how.backbone.startswith(OPEN_CLIP):
        from a2lp.images.text import check_prompts

        check_prompts(how.prompts)
        return ClassNames(classes)
    if points.paths is None:
        raise InputError(f"{len(classes)} classes are named, and the source has no vectors of their names. {_BRING}.")
    raise InputError(
        f"{len(classes)} classes are named, and the backbone {how.backbone!r} has no text encoder. Use one that has: "
        f"{install_command('clip')}, then --backbone {OPEN_CLIP}ViT-B-32 --weights FILE. Or embed the images yourself "
        f"with any vision-language model, and classify the file of their vectors. {_BRING}."
    )


def read_named_task(
    labels: Where | Sequence[Where],
    points: Points,
    names: Where | Sequence[Any] | None,
    text: Where | NDArray | None,
    how: Embedding,
    *,
    need_choice: bool = True,
) -> tuple[Task, ClassNames | None]:
    """The labels of points, as ``read_task`` reads them, and the named classes, which make labels optional."""
    found = find_names(points, names, text, how)
    places = [labels] if isinstance(labels, str | Path) else list(labels)
    if need_choice and found is None and not places:
        raise InputError(
            "there are neither labels nor names of classes. Give a few labels with --labels FILE, which "
            f"`a2lp suggest` begins; or the names with --names FILE. {_BRING}."
        )
    task = read_task(places, points, need_choice=need_choice and found is None)
    named = own_names(found, names, text, task.labels)
    if named is not None:
        named.check_labels(task.labels)
    elif need_choice and found is not None:
        check_classes(task.labels, " and ".join(map(str, places)))
    return task, named


def own_names(found: ClassNames | None, names: Any, text: Any, labels: NDArray) -> ClassNames | None:
    """The named classes, without those of a feature file if the user's labels are others."""
    if found is None or names is not None or text is not None:
        return found
    others = sorted({label for label in labels if label is not None} - set(found.classes))
    if not others:
        return found
    warnings.warn(
        f"the source names {len(found.classes)} classes ({listed(found.classes, 3)}), and your labels have others "
        f"({listed(others, 3)}): its names are not used. To use them, label with these names.",
        A2LPWarning,
        stacklevel=3,
    )
    return None


def read_names(path: Where) -> tuple[str, ...]:
    """Names of classes from a text file, one per line; empty lines are ignored."""
    first: dict[str, int] = {}
    for number, line in enumerate(read_text(path, "names of classes, one a line", InputError).splitlines(), 1):
        name = line.strip()
        if name in first:
            raise InputError(
                f"{path} has {shown(name)} in line {first[name]} and in line {number}; a class is named once. Remove a "
                "line, or rename the class."
            )
        if name == "-1" or "\0" in name:
            raise InputError(
                f"{path}, line {number}: {shown(name)} cannot be a class; '-1' means unlabelled, and NUL is no text. "
                "Choose another name."
            )
        if name:
            first[name] = number
    if len(first) < 2:
        raise InputError(
            f"{path} names {listed(list(first)) if first else 'no class'}; a choice needs two. Write one name a line."
        )
    return tuple(first)


def read_vectors(path: Where) -> tuple[NDArray, tuple[str, ...] | None]:
    """Vectors of names (c, d) from a file, and the names if it has them.

    Any feature file: its ``text`` and ``classes``, or else its features, with its labels as names. An .npz may hold
    ``text`` and ``classes`` alone.
    """
    if Path(path).suffix.lower() == ".npz" and "features" not in npz.names(path, "text vectors (.npz)"):
        fields: dict[str, Any] = npz.read(path, "text vectors (.npz)", ["text"], ["classes"])
        text = FeatureSet(fields["text"]).features
        classes = fields.get("classes")
        found = FeatureSet(text) if classes is None else FeatureSet(text, classes=classes, text=text)
    else:
        found = load(path)
    if found.text is not None:
        return found.text, found.classes
    names = found.label_values if found.labels is not None else found.classes
    if names is not None and len(names) != len(found):
        names = None
    return found.features, None if names is None else tuple(map(str, names))


def _names(names: Any) -> tuple[Any, ...]:
    if isinstance(names, str | Path):
        return read_names(names)
    found = tuple(np.asarray(names).tolist())
    require_distinct("classes", found)
    return found


def _matched(classes: tuple[Any, ...] | None, vectors: NDArray, known: Sequence[Any] | None, where: str) -> ClassNames:
    """Vectors of the wanted classes: by name where the vectors have names, else in order."""
    if known is not None:
        if classes is None:
            return ClassNames(tuple(known), vectors)
        row_of = {name: row for row, name in enumerate(known)}
        if missing := [name for name in classes if name not in row_of]:
            raise InputError(
                f"{where} has no vector of the name {listed(missing, 5)}; it has {listed(known, 5)}. Spell names as it "
                "does, or add their vectors."
            )
        return ClassNames(classes, vectors[[row_of[name] for name in classes]])
    if classes is None:
        raise InputError(
            f"{where} has {len(vectors)} vectors without names. Give the names in the same order: --names FILE, one a "
            "line (classes= in Python)."
        )
    if len(classes) != len(vectors):
        raise ShapeError(
            f"there are {len(classes)} names and {where} has {len(vectors)} vectors; give one vector for each name, in "
            "the same order."
        )
    return ClassNames(classes, vectors)
