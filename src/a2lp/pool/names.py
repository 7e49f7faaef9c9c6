"""Class names in a pool: what their text vectors say about each point, and the rounds of ``a2lp_em`` with names.

The rounds are those of the task method (``methods._em_names``; docs/names.md has the equations), on the pool's sparse
graph instead of a dense one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from a2lp.arrays import chunks, log_softmax, to_numpy
from a2lp.checks import listed, shown
from a2lp.errors import InputError, ShapeError
from a2lp.methods import _em_names as em
from a2lp.methods._names import LOGIT_SCALE
from a2lp.pool.neighbours import NdArray, check_points, rows_of, unit_rows
from a2lp.pool.propagate import propagate
from a2lp.pool.whiten import Whitening
from a2lp.preprocess import l2

if TYPE_CHECKING:
    from a2lp.pool.methods import Task

_ROWS = 4096  # points that are compared with the names at a time
_RESIDUAL = 1e-3  # of propagated soft labels: labels are the same with 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class Names:
    """The named classes of a pool.

    Attributes
    ----------
    classes : array (c,)
        Sorted.
    text : array (n, c)
        Logarithms of the probabilities that the names alone give each point.
    vectors : array (c, r)
        The names' vectors, whitened as the points are.
    nearest : array (n,)
        Each point's cosine with the nearest name, before whitening.
    """

    classes: NdArray
    text: NdArray
    vectors: NdArray
    nearest: NdArray

    def of(self, rows: NdArray) -> Names:
        """The same names beside some of the points."""
        return replace(self, text=self.text[rows], nearest=self.nearest[rows])

    def __repr__(self) -> str:
        return f"Names({len(self.classes)} classes: {listed(self.classes.tolist(), 3)})"


def encode_among(classes: NdArray, labels: Sequence[Any]) -> NdArray:
    """Positions of labels in sorted classes; an error for a label that is none of these."""
    known = {name: code for code, name in enumerate(classes.tolist())}
    if unknown := [label for label in labels if label not in known]:
        raise InputError(
            f"the label {shown(unknown[0])} is none of the {len(known)} named classes ({listed(known, 5)}). Correct "
            "it, or add the class with a vector of its name."
        )
    return np.array([known[label] for label in labels], dtype=np.int64)


def check_names(classes: Any, prototypes: Any, width: int) -> tuple[NdArray, NdArray]:
    """Sorted classes (c,) and the vectors of their names (c, d), or an error that says what does not fit."""
    if prototypes is None:
        raise InputError(
            f"classes names {shown(classes)} and prototypes is None; every named class needs a vector. Give "
            "prototypes=, the text vector of each name from the encoder of the points, or leave classes out."
        )
    if classes is None:
        raise InputError(
            "prototypes has vectors of names and classes is None. Give classes=, the name of each prototype in order."
        )
    vectors = check_points(to_numpy(prototypes), "prototypes")
    names = np.array(list(classes))
    if len(names) != len(vectors):
        raise ShapeError(
            f"classes has {len(names)} names and prototypes has {len(vectors)} rows; give one vector for each name, in "
            "the same order."
        )
    if vectors.shape[1] != width:
        raise ShapeError(
            f"prototypes has {vectors.shape[1]} dimensions and the points have {width}; they must be the same. Take "
            "both from the encoders of one model."
        )
    if len(names) < 2:
        raise InputError(f"classes has only {shown(names[0].item())}; a choice needs two. Name another class.")
    seen: dict[Any, int] = {}
    for i, name in enumerate(names.tolist()):
        if seen.setdefault(name, i) != i:
            raise InputError(
                f"classes has {shown(name)} at {seen[name]} and at {i}; a class is named once. Average the vectors of "
                "its names, or rename one."
            )
    order = np.argsort(names, kind="stable")
    return names[order], vectors[order]


def name_points(x: Any, whitening: Whitening, classes: NdArray, vectors: NdArray) -> Names:
    """What names (c, d) say about points (n, d)."""
    x = check_points(x)
    towards = np.asarray(l2(vectors.astype(np.float32))).T
    text, nearest = np.empty((len(x), len(classes)), np.float32), np.empty(len(x), np.float32)
    for part in chunks(len(x), _ROWS):
        cosines = unit_rows(x, part).astype(np.float32) @ towards
        text[part], nearest[part] = log_softmax(LOGIT_SCALE * cosines), cosines.max(axis=1)
    return Names(classes, text, whitening.apply(vectors), nearest)


def named(task: Task) -> NdArray:
    """Soft labels (n, c) from names and labels together; labels are optional."""
    names, points = task.names, task.vectors("names")
    if names is None:
        raise InputError("method='names' needs class names. Give classes= and prototypes=, or use method='auto'.")
    order = np.argsort(~task.given, kind="stable")  # labelled points first
    back = np.argsort(order)
    points, anchor_at = rows_of(points, order), names.vectors
    usual = em.Settings()
    settings = usual._replace(text_weight=em.with_shots(usual.text_weight, task.labels_per_class))

    def spread(shares: NdArray) -> NdArray:
        task.check()
        z = propagate(task.graph, shares[0].T[back], settings.alpha, tolerance=_RESIDUAL).Z
        return np.asarray(z[order].T[None])

    def cosines(shares: NdArray, trust: NdArray) -> NdArray:
        means = np.asarray(l2(shares[0] @ points))
        anchors = np.asarray(l2(trust[0] * means + (1 - trust[0]) * anchor_at))
        return np.asarray((anchors @ points.T)[None])

    labels = task.targets.T[None]
    shares = em.rounds(names.text[order].T[None], labels, spread, cosines, settings)
    return np.ascontiguousarray(shares[0].T[back])
