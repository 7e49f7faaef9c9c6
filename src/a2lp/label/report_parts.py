"""What the page about labels shows, in the order in which one should look at it.

Its size is bounded: some hundred points by picture or key, and some thousand on the map, however large the pool is.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from a2lp.cores import map_on_cores
from a2lp.errors import CorruptImageError
from a2lp.label.classify import Labelled
from a2lp.label.layout import layout
from a2lp.pool.graph import PoolGraph, from_sparse, neighbour_graph
from a2lp.pool.held_out import draw_folds, hide_in_turn, usual_count
from a2lp.pool.methods import METHODS, Task
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
_FOLDS = 5
_BINS = 10


class Example(NamedTuple):
    """A point as the page shows it."""

    key: str
    label: str
    second: str
    confidence: float
    given: bool
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
    """Points that bear one label and may belong to another class."""

    label: str
    other: str
    expected: float  # how many
    of: int
    example: Example


class Bin(NamedTuple):
    """Labels that were hidden, of about the same confidence."""

    confidence: float
    right: float
    low: float
    high: float
    labels: int


class Dot(NamedTuple):
    """A point of the map."""

    x: float
    y: float
    key: str
    label: str
    confidence: float
    given: bool
    hue: int


class Name(NamedTuple):
    """A class on the map, in the middle of its points."""

    x: float
    y: float
    text: str


def parts(result: Labelled, paths: Sequence[Path] | None, seed: int) -> dict[str, Any]:
    """What the template shows, by name.

    Parameters
    ----------
    result, paths, seed
        As in ``a2lp.label.report.write_report``.
    """
    view = _View(result, paths)
    hidden = _hide(result, seed)
    new = ~view.given
    dots = _dots(view, seed)
    return {
        "n": len(result),
        "yours": int(view.given.sum()),
        "unlabelled": sum(label is None for label in result.table["label"]),
        "doubtful": int((view.confidence[new] < DOUBT).sum()),
        "unreached": int((~result.table["reached"]).sum()),
        "doubt": DOUBT,
        "worth": result.assessment,
        "method": result.method,
        "reason": result.answer.reason,
        "images": paths is not None,
        "classes": _classes(view),
        "pairs": _pairs(view),
        "histogram": np.histogram(view.confidence[new], _BINS, (0, 1))[0].tolist() if new.any() else [],
        "reliability": _reliability(hidden),
        "hidden": 0 if hidden is None else len(hidden.rows),
        "mistakes": _mistakes(view, hidden),
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
        self.codes = np.searchsorted(result.classes, result.answer.labels)
        self.names = [str(name) for name in result.classes]
        self.order = np.argsort(self.confidence, kind="stable")  # most doubtful first

    def examples(self, rows: Sequence[int], notes: Sequence[str] = ()) -> list[Example]:
        """Some points, with their pictures."""
        pictures = [""] * len(rows)
        if self.paths is not None:
            pictures = map_on_cores(_thumbnail, [self.paths[row] for row in rows])
        return [
            Example(
                str(self.keys[row]),
                self.names[self.codes[row]],
                str(self.second[row]),
                float(self.confidence[row]),
                bool(self.given[row]),
                picture,
                note,
            )
            for row, picture, note in zip(rows, pictures, notes or [""] * len(rows), strict=True)
        ]


def _classes(view: _View) -> list[ClassPart]:
    """All classes, those with the most expected mistakes first; points of the first ones."""
    c = len(view.names)
    new = ~view.given
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
    """The classes that are probably taken for each other, by the number of points."""
    new = ~view.given
    c = len(view.names)
    expected = np.zeros((c, c))
    np.add.at(expected, view.codes[new], view.result.probabilities[new])
    np.fill_diagonal(expected, 0)
    of = np.bincount(view.codes[new], minlength=c)
    found = []
    for flat in np.argsort(-expected, axis=None, kind="stable")[:_PAIRS]:
        label, other = divmod(int(flat), c)
        if expected[label, other] < 0.5:
            break
        rows = np.flatnonzero(new & (view.codes == label))
        row = rows[view.result.probabilities[rows, other].argmax()]
        (example,) = view.examples([row])
        found.append(Pair(view.names[label], view.names[other], float(expected[label, other]), int(of[label]), example))
    return found


class _Hidden(NamedTuple):
    """What is said about labelled points while their labels are hidden, calibrated as the others are."""

    rows: NDArray  # (m,)
    said: NDArray  # (m, c)
    codes: NDArray  # (m,) their labels


def _hide(result: Labelled, seed: int) -> _Hidden | None:
    answer = result.answer
    codes = answer.codes
    folds = draw_folds(codes, int(np.clip(usual_count(codes), 2, _FOLDS)), seed)
    if len(answer.classes) < 2 or (folds < 0).all() or answer.given.all():
        return None
    task = Task(answer.prepared.points, answer.graph, codes, len(answer.classes), seed, answer.weights)
    method: Callable[[Task], Any] = METHODS[answer.method]
    said = hide_in_turn(codes, folds, lambda some: method(replace(task, codes=some)).probabilities)
    rows = np.flatnonzero(folds >= 0)
    raised = np.maximum(said, 1e-12) ** _power(answer, result.probabilities)
    return _Hidden(rows, raised / raised.sum(axis=1, keepdims=True), codes[rows])


def _power(answer: PoolAnswer, calibrated: NDArray) -> float:
    """The power that calibration raised probabilities to: by how much logarithms of ratios grew."""
    new = ~answer.given
    raw, made = answer.probabilities[new], calibrated[new]
    top = np.argsort(raw, axis=1)[:, -2:]
    ratios = [np.diff(np.log(np.maximum(np.take_along_axis(p, top, axis=1), 1e-12)), axis=1) for p in (raw, made)]
    return float(ratios[1].sum() / ratios[0].sum()) if ratios[0].sum() > 0 else 1.0


def _reliability(hidden: _Hidden | None) -> list[Bin]:
    """Hidden labels in bins of equal size by confidence; intervals are Wilson's."""
    if hidden is None:
        return []
    confidence = hidden.said.max(axis=1)
    right = hidden.said.argmax(axis=1) == hidden.codes
    order = np.argsort(confidence, kind="stable")
    bins = []
    for part in np.array_split(order, int(np.clip(len(order) // 10, 1, 6))):
        n, p, z = len(part), float(right[part].mean()), 1.96
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * float(np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)))
        bins.append(Bin(float(confidence[part].mean()), p, middle - half, middle + half, n))
    return bins


def _mistakes(view: _View, hidden: _Hidden | None) -> list[Example]:
    """Given labels that look wrong, with what the others say."""
    worth = view.result.assessment
    rows = worth.mistakes[:_MISTAKES].tolist()
    said = {} if hidden is None else dict(zip(hidden.rows.tolist(), hidden.said.copy(), strict=True))
    notes = []
    for row, suspicion in zip(rows, worth.suspicion, strict=False):
        others = said[row]
        others[view.codes[row]] = -1
        notes.append(f"{view.names[int(others.argmax())]} ({100 * suspicion:.0f} %)")
    return view.examples(rows, notes)


def _dots(view: _View, seed: int) -> list[Dot]:
    """The map: all points, or so many of them with the labelled ones among them."""
    n = len(view.keys)
    rng = np.random.default_rng(seed)
    rows = np.arange(n)
    if n > _ON_MAP:
        first = np.argsort(~view.given + rng.random(n), kind="stable")  # the labelled ones come first, in any order
        rows = np.sort(first[:_ON_MAP])
    places = layout(_graph_of(view.result.answer, rows), seed=seed)
    # neighbours in the list of classes get far hues
    hues = (np.arange(len(view.names)) * 137.508 % 360).astype(int).tolist()
    return [
        Dot(
            round(float(x), 4),
            round(float(y), 4),
            str(view.keys[row]),
            view.names[view.codes[row]],
            float(view.confidence[row]),
            bool(view.given[row]),
            hues[view.codes[row]],
        )
        for row, (x, y) in zip(rows, places, strict=True)
    ]


def _names(dots: Sequence[Dot]) -> list[Name]:
    places: dict[str, list[tuple[float, float]]] = {}
    for dot in dots:
        places.setdefault(dot.label, []).append((dot.x, dot.y))
    middles = {name: np.median(found, axis=0) for name, found in places.items()}
    return [Name(float(x), float(y), name) for name, (x, y) in middles.items()]


def _graph_of(answer: PoolAnswer, rows: NDArray) -> PoolGraph:
    if len(rows) == answer.graph.n:
        return answer.graph
    if answer.prepared.points is not None:  # so few of many are hardly anyone's neighbours in the whole graph
        return neighbour_graph(answer.prepared.points[rows], min(15, len(rows) - 1))
    return from_sparse(answer.graph.weights[rows][:, rows])


def _thumbnail(path: Path) -> str:
    """A small JPEG as a data: address; nothing where the image cannot be read any more."""
    from PIL import Image

    from a2lp.images.datasets.decode import decode

    try:
        image = Image.fromarray(decode(path.read_bytes(), str(path)))
    except (OSError, CorruptImageError):
        return ""
    image.thumbnail((_SIDE, _SIDE))
    made = io.BytesIO()
    image.save(made, "JPEG", quality=70)
    return f"data:image/jpeg;base64,{base64.b64encode(made.getvalue()).decode()}"
