"""The contents of the report, in the order in which to look at them.

Its size is bounded however large the pool is: some hundred points by picture or key, some thousand on the map, and as
many pictures as fit into 12 MB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from a2lp.arrays import NDArray
from a2lp.labelling.labelled import Labelled
from a2lp.labelling.report_map import make_map, names
from a2lp.labelling.report_pictures import make_pictures
from a2lp.labelling.sources import Progress
from a2lp.labelling.tables import KEYS
from a2lp.pool.confidence import Assessment
from a2lp.pool.solve import PoolAnswer

DOUBT = 0.8
_CLASSES = 200  # of which points are shown; the table has all
_EXAMPLES = 480  # points shown in all classes together
_PER_CLASS = 2, 12  # at least and at most, of the most doubtful and of the random ones
_YOURS = 3  # your examples of a class
_PAIRS = 12
_MISTAKES = 24
_NOVEL = 72, 36  # with pictures, and without
_NOVEL_SHARE = 0.5  # the most that the slider rejects
_FEW_NEW, _FEW_HELD_OUT = 20, 20  # below these, plots would show nothing
_BINS = 10


class ClassPart(NamedTuple):
    """A class: its line of the table, and rows of its points."""

    name: str
    yours: int
    labelled: int
    confidence: float | None
    given: list[int]
    doubtful: list[int]
    random: list[int]


class Pair(NamedTuple):
    """Points with one label that may belong to another class."""

    label: str
    other: str
    expected: float  # how many
    of: int
    example: int


class Bin(NamedTuple):
    """Held-out labels of similar confidence."""

    confidence: float
    right: float
    low: float
    high: float
    labels: int


class Mistake(NamedTuple):
    """A given label that looks wrong."""

    row: int
    rather: str
    suspicion: float


class View:
    """The table's columns under short names."""

    def __init__(self, result: Labelled) -> None:
        self.result = result
        table = result.table
        self.keys = [str(key) for key in table[result.key].tolist()]
        self.given, self.confidence, self.novelty = table["given"], table["confidence"], table["novelty"]
        self.names = [str(name) for name in result.classes]
        self.predicted = np.searchsorted(result.classes, result.answer.labels)
        self.second = np.searchsorted(result.classes, table["second"].astype(result.classes.dtype))
        self.codes = np.where(result.unlabelled, -1, self.predicted)  # -1: abstained from or rejected
        self.new = ~self.given & (self.codes >= 0)  # labelled by a2lp
        self.order = np.argsort(self.confidence, kind="stable")  # most doubtful first

    def column(self) -> str:
        """The name of the keys' column in a table of labels that can be read again."""
        key = self.result.key
        numbered = self.keys == [str(row) for row in range(len(self.keys))]
        return key if key in KEYS and (key != "index" or numbered) else "id"


def parts(
    result: Labelled, paths: Sequence[Path] | None, seed: int, progress: Progress | None = None
) -> dict[str, Any]:
    """What the template shows, by name; the parameters are those of ``a2lp.labelling.report.write_report``."""
    view = View(result)
    rng = np.random.default_rng(seed)
    classes, pairs, mistakes = _classes(view, rng), _pairs(view), _mistakes(view)
    novel = _novel(view, _NOVEL[paths is None])
    left = view.order[view.codes[view.order] < 0][: 2 * _PER_CLASS[1]].tolist()
    shown = [
        *(one.row for one in mistakes),
        *(row for part in classes for row in (*part.given, *part.doubtful, *part.random)),
        *(pair.example for pair in pairs),
        *novel,
        *left,
    ]
    on_map, places = make_map(result.answer, seed, progress)
    rows = list(dict.fromkeys([*shown, *on_map.tolist()]))
    pictures, left_out = make_pictures(paths, shown, rows, progress)
    held_out = len(result.assessment.held_out_rows)
    n_new = int(view.new.sum())
    return {
        "n": len(result),
        "view": view,
        "yours": int(view.given.sum()),
        "labelled": n_new,
        "unlabelled": left,
        "n_unlabelled": int((view.codes < 0).sum()),
        "doubtful": int((view.confidence[view.new] < DOUBT).sum()),
        "unreached": int((~result.table["reached"]).sum()),
        "doubt": DOUBT,
        "assessment": result.assessment,
        "method": result.method,
        "reason": result.answer.reason,
        "images": paths is not None,
        "pictures": set(pictures),
        "pictures_left_out": left_out,
        "classes": classes,
        "pairs": pairs,
        "histogram": _histogram(view) if n_new >= _FEW_NEW else [],
        "reliability": _reliability(result.assessment, result.answer) if held_out >= _FEW_HELD_OUT else [],
        "held_out": held_out,
        "mistakes": mistakes,
        "novel": novel,
        "novel_share": _NOVEL_SHARE,
        "n_on_map": len(on_map),
        "data": _data(view, on_map, places, rows, pictures),
    }


def _data(view: View, on_map: NDArray, places: NDArray, rows: list[int], pictures: dict[int, str]) -> dict[str, Any]:
    """What the script reads: a table of the points that are shown, and the map."""
    new = np.flatnonzero(~view.given)
    rank = np.zeros(len(view.keys), dtype=np.int64)
    rank[new[np.argsort(-view.novelty[new], kind="stable")]] = np.arange(len(new))
    at = {row: place for place, row in enumerate(rows)}
    listed = np.array(rows)
    return {
        "rows": rows,
        "keys": [view.keys[row] for row in rows],
        "labels": view.codes[listed].tolist(),
        "guesses": view.predicted[listed].tolist(),
        "seconds": view.second[listed].tolist(),
        "confidence": np.round(view.confidence[listed], 3).tolist(),
        "given": view.given[listed].astype(int).tolist(),
        "rank": rank[listed].tolist(),
        "n_new": len(new),
        "classes": view.names,
        "map": [at[row] for row in on_map.tolist()],
        "x": np.round(places[:, 0], 4).tolist(),
        "y": np.round(places[:, 1], 4).tolist(),
        "names": names(view.codes[on_map], places, len(view.names)),
        "pictures": {str(row): picture for row, picture in pictures.items()},
        "column": view.column(),
        "store": hashlib.sha256("\n".join([str(len(view.keys)), *view.keys]).encode()).hexdigest()[:16],
    }


def _classes(view: View, rng: np.random.Generator) -> list[ClassPart]:
    """All classes, those with the most expected mistakes first; points of the first ones."""
    c, new = len(view.names), view.new
    doubt = np.bincount(view.codes[new], weights=1 - view.confidence[new], minlength=c)
    per_class = int(np.clip(_EXAMPLES // (2 * c), *_PER_CLASS))
    made = []
    for place, code in enumerate(np.argsort(-doubt, kind="stable")):
        of = view.codes == code
        given, worst, sample = [], [], []
        if place < _CLASSES:
            ordered = view.order[of[view.order]]
            given = ordered[view.given[ordered]][:_YOURS].tolist()
            ordered = ordered[new[ordered]]
            worst = ordered[:per_class].tolist()
            if len(ordered) > per_class:
                sample = rng.choice(ordered, min(per_class, len(ordered)), replace=False).tolist()
        mean = float(view.confidence[of & new].mean()) if (of & new).any() else None
        counts = int((of & view.given).sum()), int((of & new).sum())
        made.append(ClassPart(view.names[code], *counts, mean, given, worst, sample))
    return made


def _pairs(view: View) -> list[Pair]:
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
        row = int(rows[view.result.probabilities[rows, other].argmax()])
        pairs.append(Pair(view.names[label], view.names[other], float(expected[label, other]), int(of[label]), row))
    return pairs


def _histogram(view: View) -> list[int]:
    counts: list[int] = np.histogram(view.confidence[view.new], _BINS, (0, 1))[0].tolist()
    return counts


def _reliability(assessment: Assessment, answer: PoolAnswer) -> list[Bin]:
    """Held-out labels in bins of equal size by confidence; intervals are Wilson's."""
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


def _mistakes(view: View) -> list[Mistake]:
    """Given labels that look wrong, with the class that is more likely."""
    assessment = view.result.assessment
    place_of = {row: place for place, row in enumerate(assessment.held_out_rows.tolist())}
    found = []
    for row, suspicion in zip(assessment.mistakes[:_MISTAKES].tolist(), assessment.suspicion.tolist(), strict=False):
        others = assessment.held_out_probabilities[place_of[row]].copy()
        others[view.codes[row]] = -1
        found.append(Mistake(row, view.names[int(others.argmax())], suspicion))
    return found


def _novel(view: View, n: int) -> list[int]:
    """Points in order of novelty, by which a share to reject is chosen: small steps first, larger ones later."""
    new = np.flatnonzero(~view.given)
    if len(new) < _FEW_NEW:
        return []
    ordered = new[np.argsort(-view.novelty[new], kind="stable")]
    steps = np.linspace(0, 1, n) ** 1.5 * (_NOVEL_SHARE * len(new) - 1)
    chosen: list[int] = ordered[np.unique(steps.astype(int))].tolist()
    return chosen
