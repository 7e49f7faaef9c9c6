"""The contents of the report, in the order in which to look at them.

Its size is bounded: some hundred points by thumbnail or key, and some thousand on the map, however large the pool is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from a2lp.cores import map_on_cores
from a2lp.labelling.labelled import Labelled
from a2lp.labelling.pages import thumbnail
from a2lp.pool.confidence import Assessment
from a2lp.pool.graph import PoolGraph, from_sparse, neighbour_graph
from a2lp.pool.layout import layout
from a2lp.pool.solve import PoolAnswer

NDArray = np.ndarray[Any, Any]

DOUBT = 0.8
_CLASSES = 200  # of which points are shown; the table has all
_EXAMPLES = 600  # points shown in all classes together
_PER_CLASS = 4, 24  # at least and at most
_PAIRS = 12
_MISTAKES = 24
_ON_MAP = 2000
_NAMES = 30  # classes whose names fit on the map
_SIDE = 96  # pixels of a thumbnail
_BINS = 10


class Example(NamedTuple):
    """A point as the report shows it."""

    key: str
    label: str
    second: str
    confidence: float
    given: bool
    labelled: bool
    picture: str  # a data: address; empty where there is none
    note: str = ""


class ClassPart(NamedTuple):
    """A class: its line of the table, and its points, most doubtful first."""

    name: str
    yours: int
    labelled: int
    confidence: float | None
    examples: list[Example]


class Pair(NamedTuple):
    """Points with one label that may belong to another class."""

    label: str
    other: str
    expected: float  # how many
    of: int
    example: Example


class Bin(NamedTuple):
    """Held-out labels of similar confidence."""

    confidence: float
    right: float
    low: float
    high: float
    labels: int


class Dot(NamedTuple):
    """A point of the map; without a label it has no hue."""

    x: float
    y: float
    key: str
    label: str
    confidence: float
    given: bool
    hue: int | None


class Name(NamedTuple):
    """A class on the map, in the middle of its points."""

    x: float
    y: float
    text: str


def parts(result: Labelled, paths: Sequence[Path] | None, seed: int) -> dict[str, Any]:
    """What the template shows, by name; the parameters are those of ``a2lp.labelling.report.write_report``."""
    view = _View(result, paths)
    dots = _dots(view, seed)
    return {
        "n": len(result),
        "yours": int(view.given.sum()),
        "labelled": int(view.new.sum()),
        "unlabelled": view.examples(view.order[view.codes[view.order] < 0][: _PER_CLASS[1]].tolist()),
        "n_unlabelled": int((view.codes < 0).sum()),
        "doubtful": int((view.confidence[view.new] < DOUBT).sum()),
        "unreached": int((~result.table["reached"]).sum()),
        "doubt": DOUBT,
        "assessment": result.assessment,
        "method": result.method,
        "reason": result.answer.reason,
        "images": paths is not None,
        "classes": _classes(view),
        "pairs": _pairs(view),
        "histogram": np.histogram(view.confidence[view.new], _BINS, (0, 1))[0].tolist() if view.new.any() else [],
        "reliability": _reliability(result.assessment, result.answer),
        "held_out": len(result.assessment.held_out_rows),
        "mistakes": _mistakes(view),
        "dots": dots,
        "names": _names(dots) if len(view.names) <= _NAMES else [],
    }


class _View:
    """The table's columns under short names, and points as examples."""

    def __init__(self, result: Labelled, paths: Sequence[Path] | None) -> None:
        self.result, self.paths = result, paths
        table = result.table
        self.keys = table[result.key]
        self.given, self.confidence, self.second = table["given"], table["confidence"], table["second"]
        self.names = [str(name) for name in result.classes]
        predicted = np.searchsorted(result.classes, result.answer.labels)
        self.codes = np.where(result.unlabelled, -1, predicted)  # -1: abstained from or rejected
        self.new = ~self.given & (self.codes >= 0)  # labelled by a2lp
        self.order = np.argsort(self.confidence, kind="stable")  # most doubtful first

    def examples(self, rows: Sequence[int], notes: Sequence[str] = ()) -> list[Example]:
        """Some points, with their pictures."""
        pictures = [""] * len(rows)
        if (paths := self.paths) is not None:
            pictures = map_on_cores(lambda row: thumbnail(paths[row], _SIDE), rows)
        return [
            Example(
                str(self.keys[row]),
                str(self.result.answer.labels[row]),
                str(self.second[row]),
                float(self.confidence[row]),
                bool(self.given[row]),
                bool(self.codes[row] >= 0),
                picture,
                note,
            )
            for row, picture, note in zip(rows, pictures, notes or [""] * len(rows), strict=True)
        ]


def _classes(view: _View) -> list[ClassPart]:
    """All classes, those with the most expected mistakes first; points of the first ones."""
    c, new = len(view.names), view.new
    doubt = np.bincount(view.codes[new], weights=1 - view.confidence[new], minlength=c)
    per_class = int(np.clip(_EXAMPLES // c, *_PER_CLASS))
    parts = []
    for place, code in enumerate(np.argsort(-doubt, kind="stable")):
        of = view.codes == code
        rows: list[int] = []
        if place < _CLASSES:
            ordered = view.order[of[view.order]]
            yours = ordered[view.given[ordered]][: max(1, per_class // 6)]
            rows = [*yours, *ordered[new[ordered]][: per_class - len(yours)]]
        mean = float(view.confidence[of & new].mean()) if (of & new).any() else None
        counts = int((of & view.given).sum()), int((of & new).sum())
        parts.append(ClassPart(view.names[code], *counts, mean, view.examples(rows)))
    return parts


def _pairs(view: _View) -> list[Pair]:
    """The classes that are probably confused with each other, by the number of points."""
    c, new = len(view.names), view.new
    expected = np.zeros((c, c))
    np.add.at(expected, view.codes[new], view.result.probabilities[new])
    np.fill_diagonal(expected, 0)
    of = np.bincount(view.codes[new], minlength=c)
    pairs = []
    for flat in np.argsort(-expected, axis=None, kind="stable")[:_PAIRS]:
        label, other = divmod(int(flat), c)
        if expected[label, other] < 0.5:
            break
        rows = np.flatnonzero(new & (view.codes == label))
        row = rows[view.result.probabilities[rows, other].argmax()]
        (example,) = view.examples([row])
        pairs.append(Pair(view.names[label], view.names[other], float(expected[label, other]), int(of[label]), example))
    return pairs


def _reliability(assessment: Assessment, answer: PoolAnswer) -> list[Bin]:
    """Held-out labels in bins of equal size by confidence; intervals are Wilson's."""
    if not len(assessment.held_out_rows):
        return []
    confidence = assessment.held_out_probabilities.max(axis=1)
    right = assessment.held_out_probabilities.argmax(axis=1) == answer.task.codes[assessment.held_out_rows]
    order = np.argsort(confidence, kind="stable")
    bins = []
    for part in np.array_split(order, int(np.clip(len(order) // 10, 1, 6))):
        n, p, z = len(part), float(right[part].mean()), 1.96
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * float(np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)))
        bins.append(Bin(float(confidence[part].mean()), p, middle - half, middle + half, n))
    return bins


def _mistakes(view: _View) -> list[Example]:
    """Given labels that look wrong, with the class that is more likely."""
    assessment = view.result.assessment
    rows = assessment.mistakes[:_MISTAKES].tolist()
    place_of = {row: place for place, row in enumerate(assessment.held_out_rows.tolist())}
    notes = []
    for row, suspicion in zip(rows, assessment.suspicion.tolist(), strict=False):
        others = assessment.held_out_probabilities[place_of[row]].copy()
        others[view.codes[row]] = -1
        notes.append(f"{view.names[int(others.argmax())]} ({100 * suspicion:.0f} %)")
    return view.examples(rows, notes)


def _dots(view: _View, seed: int) -> list[Dot]:
    """The map: all points, or some of them with the labelled ones among them."""
    n = len(view.keys)
    rng = np.random.default_rng(seed)
    rows = np.arange(n)
    if n > _ON_MAP:
        first = np.argsort(~view.given + rng.random(n), kind="stable")  # the given ones come first, in any order
        rows = np.sort(first[:_ON_MAP])
    places = layout(_graph_of(view.result.answer, rows), seed=seed)
    return [
        Dot(
            round(float(x), 4),
            round(float(y), 4),
            str(view.keys[row]),
            view.names[view.codes[row]] if view.codes[row] >= 0 else "",
            float(view.confidence[row]),
            bool(view.given[row]),
            # neighbours in the list of classes get distant hues
            int(view.codes[row] * 137.508 % 360) if view.codes[row] >= 0 else None,
        )
        for row, (x, y) in zip(rows, places, strict=True)
    ]


def _names(dots: Sequence[Dot]) -> list[Name]:
    places: dict[str, list[tuple[float, float]]] = {}
    for dot in dots:
        if dot.hue is not None:
            places.setdefault(dot.label, []).append((dot.x, dot.y))
    middles = {name: np.median(found, axis=0) for name, found in places.items()}
    return [Name(float(x), float(y), name) for name, (x, y) in middles.items()]


def _graph_of(answer: PoolAnswer, rows: NDArray) -> PoolGraph:
    points, graph = answer.task.points, answer.task.graph
    if len(rows) == graph.n:
        return graph
    if points is not None:  # so few of many are hardly neighbours of each other in the whole graph
        return neighbour_graph(points[rows], min(15, len(rows) - 1))
    return from_sparse(graph.weights[rows][:, rows])
