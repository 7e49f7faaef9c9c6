"""The live state of a project: what the user has said, what is predicted, and what the page is told about both."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import betaincinv

from a2lp.pool.graph import PoolGraph
from a2lp.pool.push import push
from a2lp.serve import commands
from a2lp.serve.answers import ALPHA, NONE, Answers
from a2lp.serve.project import Project
from a2lp.serve.solver import Job, Message
from a2lp.serve.state import ACCEPTED, REJECTED, UNSEEN, YOURS, Labels

NDArray = np.ndarray[Any, Any]
IS_YOURS, IS_ACCEPTED, IS_UNSEEN, DOUBTFUL, NOVEL, IS_REJECTED, UNREACHED, SETTLING = (1 << bit for bit in range(8))
_FLAG = {YOURS: IS_YOURS, ACCEPTED: IS_ACCEPTED, UNSEEN: IS_UNSEEN, REJECTED: IS_REJECTED}
_SURE = 0.8
_NOVEL = 0.95  # novelty from which a point is probably of no class, where its mass is not known
_PACE = 3.0, 60.0  # seconds a label: until the user's own pace is known; and from which it was a pause
_WHOLE = 0xFFFFFFFF  # in place of a number of rows: all of them follow


class Board:
    """The state behind the page.

    Parameters
    ----------
    project : Project
        Its log is read at once.
    keys : sequence of str
    graph : PoolGraph
    """

    def __init__(self, project: Project, keys: Sequence[str], graph: PoolGraph) -> None:
        self.project, self.keys = project, keys
        n = len(keys)
        self.labels = Labels({key: row for row, key in enumerate(keys)})
        self.answers = Answers(graph)
        self.classes = np.full(n, NONE, np.uint16)
        self.confidence = np.zeros(n, np.uint8)
        self.flags = np.zeros(n, np.uint8)
        self.accuracy: dict[str, Any] | None = None
        self.suggestions: list[dict[str, Any]] = []
        self.expected: float | None = None
        self.doubted: list[tuple[int, int, float]] = []
        self.unseen: float | None = None
        self.solves = 0
        for line in project.log.lines:
            self.labels.apply(line)
        self.anchors = self.labels.anchors()
        self._kind = np.zeros(n, np.uint8)
        self._marked = np.full(n, -1, np.int32)
        self._set_marks(range(n))
        self.refresh(None)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def seq(self) -> int:
        """The log's last line."""
        return self.labels.seq

    @property
    def settling(self) -> bool:
        """Whether a full answer to the last label is still to come."""
        return self._choice() and self.answers.seq < self._last_relevant

    # ---- commands -------------------------------------------------------------------------------------------------

    def line_of(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """The line of the log that a command becomes."""
        view = commands.View(self.keys, self._shown, self._sureness, lambda: np.flatnonzero(self._kind == 0))
        return commands.line_of(command, self.labels, view)

    def apply(self, line: dict[str, Any]) -> NDArray:
        """Take in a line that was written; the rows whose display changed."""
        roots = [info.root for info in self.labels.classes]
        rows = self.labels.apply(line)
        before, old = self.anchors, len(set(self.anchors.values()))
        merged = [info.root for info in self.labels.classes][: len(roots)] != roots
        if merged:
            rows = list(range(len(self)))
            self.anchors = self.labels.anchors()
        else:
            self.anchors = before.copy() if rows else before
            for row in rows:
                self._anchor(row)
        changed = [row for row in rows if before.get(row) != self.anchors.get(row)]
        self._set_marks(rows)
        touched = self.answers.change(
            line["seq"],
            {row: before[row] for row in changed if row in before},
            {row: self.anchors[row] for row in changed if row in self.anchors},
        )
        if not self._choice() and old >= 2:
            self.answers.forget()
            return self.refresh(None)
        everything = merged or line["op"] in ("undo", "merge")
        return self.refresh(None if everything else np.union1d(touched, np.array(rows, np.int64)))

    def propagation(self) -> Callable[[], NDArray]:
        """A function that propagates the labels of now, for another thread; ``answers.start`` takes its result."""
        from a2lp.pool.propagate import propagate

        self.answers.begin()
        y = np.zeros((len(self), max(1, len(self.labels.classes))), np.float32)
        y[list(self.anchors), list(self.anchors.values())] = 1

        def propagated() -> NDArray:
            push(self.answers.graph, 0)  # compiled here, so that the first label need not wait for it
            return propagate(self.answers.graph, y, ALPHA, tolerance=1e-4).Z

        return propagated

    def job(self) -> Job:
        """The labels as the solver needs them."""
        names = {code: info.name for code, info in enumerate(self.labels.classes) if not info.gone}
        rows = sorted(self.anchors)
        marks = self.labels.marks
        how = [marks[row].how if marks[row].how in ("suggested", "audit") else "" for row in rows]
        passed = [row for row, mark in marks.items() if mark.kind in (UNSEEN, REJECTED)]
        return Job(self.seq, rows, [self.anchors[row] for row in rows], how, names, passed)

    # ---- the solver's messages --------------------------------------------------------------------------------------

    def take(self, message: Message) -> NDArray:
        """Take in what the solver found; the rows whose display changed."""
        kind = message["type"]
        if kind == "answer" and self._choice():
            self.answers.land(message)
            self.solves += 1
        elif kind == "suggested":
            self.suggestions, self.expected = message["rows"], None
        elif kind == "forecast":
            self.expected = message["expected"]
        elif kind == "assessed":
            self.answers.assess(message)
            self.doubted, self.unseen = message["doubted"], message["unseen"]
            value, low, high = message["accuracy"]
            self.accuracy = {"value": value, "low": low, "high": high, "seq": message["seq"], "method": "held out"}
            self.accuracy["note"] = "estimated from your labels, each predicted from the others"
            self.project.add_to_curve([message["labels"], value, low, high])
        return self.refresh(None)

    # ---- what the page is told --------------------------------------------------------------------------------------

    def refresh(self, rows: NDArray | None) -> NDArray:
        """Compute the display of some rows (None: all) again; those that changed."""
        part = np.arange(len(self)) if rows is None else rows.astype(np.int64)
        kind, marked, answers = self._kind[part], self._marked[part], self.answers
        root = np.array([*(info.root for info in self.labels.classes), NONE], np.uint16)  # the last is for none
        predicted = answers.best[part].astype(np.int64)
        best = root[np.where(predicted == NONE, -1, predicted)]
        classes = np.where(marked >= 0, root[marked], best)
        classes[kind == IS_REJECTED] = NONE
        confidence = answers.confidence[part].copy()
        unseen = kind == IS_UNSEEN
        confidence[unseen] = answers.of(part[unseen], marked[unseen])
        confidence[(kind & (IS_YOURS | IS_ACCEPTED)) > 0] = 1
        confidence[classes == NONE] = 0
        flags = kind.copy()
        free = (kind == 0) & (classes != NONE)
        flags[free & (confidence < _SURE)] |= DOUBTFUL
        flags[free & (answers.novelty[part] >= self._novel_from())] |= NOVEL
        flags[free & ~answers.reached[part]] |= UNREACHED
        flags[(kind == 0) & answers.settling[part]] |= SETTLING
        doubted = np.isin(part, [row for row, _, _ in self.doubted]) & ((kind & (IS_YOURS | IS_ACCEPTED)) > 0)
        flags[doubted] |= DOUBTFUL
        shares = np.round(255 * confidence).astype(np.uint8)
        new = (classes != self.classes[part]) | (shares != self.confidence[part]) | (flags != self.flags[part])
        self.classes[part], self.confidence[part], self.flags[part] = classes, shares, flags
        return np.asarray(part[new])

    def rows(self) -> bytes:
        """All rows, as ``/api/rows`` sends them."""
        return struct.pack("<II", self.seq, len(self)) + b"".join(
            array.astype(array.dtype.newbyteorder("<")).tobytes()
            for array in (self.classes, self.confidence, self.flags)
        )

    def whole(self) -> bytes:
        """All rows, as the socket sends them."""
        return struct.pack("<II", self.seq, _WHOLE) + self.rows()[8:]

    def update(self, rows: NDArray) -> bytes:
        """Some rows, as the socket sends them; all rows where that is shorter."""
        if len(rows) > len(self) / 4:
            return self.whole()
        packed = np.empty(
            len(rows), np.dtype([("row", "<u4"), ("class", "<u2"), ("confidence", "u1"), ("flags", "u1")])
        )
        packed["row"], packed["class"] = rows, self.classes[rows]
        packed["confidence"], packed["flags"] = self.confidence[rows], self.flags[rows]
        return struct.pack("<II", self.seq, len(rows)) + packed.tobytes()

    def state(self) -> dict[str, Any]:
        """What ``/api/state`` sends, without the phase."""
        counted = {bit: int((self.flags & bit > 0).sum()) for bit in (1 << place for place in range(8))}
        free = {"rows": [one for one in self.suggestions if self._kind[one["row"]] == 0]}
        return {
            "n": len(self),
            "seq": self.seq,
            "classes": self._class_table(),
            "accuracy": self.accuracy,
            "curve": self.project.curve,
            "forecast": self._forecast(),
            "audit": self._audit(),
            "suggestions": free["rows"],
            "doubtful_labels": self._doubtful_labels(),
            "unseen_mass": self.unseen,
            "settling": self.settling,
            "counts": {
                "yours": counted[IS_YOURS],
                "accepted": counted[IS_ACCEPTED],
                "unseen": counted[IS_UNSEEN],
                "rejected": counted[IS_REJECTED],
                "doubtful": counted[DOUBTFUL],
                "none": counted[NOVEL],
                "unreached": counted[UNREACHED],
            },
            "can_undo": self.labels.last_done() is not None,
            "can_redo": self.labels.last_undone() is not None,
            "version": self.answers.version,
        }

    def point(self, row: int) -> dict[str, Any]:
        """What the page shows about one point."""
        names = self.labels.classes
        history = [
            {
                "seq": mark.seq,
                "t": mark.t,
                "op": self.labels.line(mark.seq)["op"],
                "label": names[names[mark.code].root].name if mark.code >= 0 else None,
                "how": mark.how,
                "undone": not counts,
            }
            for mark, counts in self.labels.history(row)
        ]
        mark = self.labels.marks.get(row)
        nearest = int(self.answers.nearest[row])
        return {
            "row": row,
            "key": self.keys[row],
            "top": [[names[code].root, round(p, 4)] for code, p in self.answers.top(row)],
            "nearest": nearest if nearest >= 0 else None,
            "novelty": round(float(self.answers.novelty[row]), 4),
            "how": "" if mark is None else mark.how,
            "history": history,
        }

    # ---- parts ------------------------------------------------------------------------------------------------------

    @property
    def _last_relevant(self) -> int:
        """The last line that may change the answer."""
        return next(
            (s for s in range(self.seq, 0, -1) if self.labels.line(s)["op"] not in ("pin", "audit_start", "class")), 0
        )

    def _choice(self) -> bool:
        return len(set(self.anchors.values())) >= 2

    def _shown(self, rows: Sequence[int]) -> list[int]:
        return [int(code) if code != NONE else -1 for code in self.classes[list(rows)]]

    def _sureness(self, rows: Sequence[int]) -> list[float]:
        return [float(value) for value in self.answers.confidence[list(rows)]]

    def _anchor(self, row: int) -> None:
        mark = self.labels.marks.get(row)
        if mark is not None and mark.kind in (YOURS, ACCEPTED):
            self.anchors[row] = self.labels.classes[mark.code].root
        else:
            self.anchors.pop(row, None)

    def _set_marks(self, rows: Sequence[int] | range) -> None:
        for row in rows:
            mark = self.labels.marks.get(row)
            self._kind[row] = 0 if mark is None else _FLAG[mark.kind]
            self._marked[row] = -1 if mark is None else mark.code

    def _novel_from(self) -> float:
        return _NOVEL if self.unseen is None else 1 - min(0.5, self.unseen)

    def _class_table(self) -> list[dict[str, Any]]:
        kinds = {}
        for name, bit in (("yours", IS_YOURS), ("accepted", IS_ACCEPTED), ("unseen", IS_UNSEEN), ("predicted", 0)):
            of = self.classes[(self._kind == bit) & (self.classes != NONE)]
            kinds[name] = np.bincount(of, minlength=len(self.labels.classes)).tolist()
        return [
            {"id": code, "name": info.name, "pin": info.pin, "gone": info.gone}
            | {name: counts[code] for name, counts in kinds.items()}
            for code, info in enumerate(self.labels.classes)
        ]

    def _doubtful_labels(self) -> list[dict[str, Any]]:
        return [
            {"row": row, "label": self.anchors[row], "instead": other, "probability": round(probability, 4)}
            for row, other, probability in self.doubted
            if row in self.anchors and self.anchors[row] != other
        ]

    def _forecast(self) -> dict[str, Any] | None:
        n = len(self.suggestions)
        if self.expected is None or n == 0:
            return None
        times = [line["t"] for line in self.project.log.lines[-60:] if line["op"] in ("label", "accept", "reject")]
        gaps = [gap for gap in np.diff(times) if gap < _PACE[1]]
        pace = float(np.median(gaps)) if len(gaps) >= 5 else _PACE[0]
        return {"n": n, "gain": self.expected, "seconds": round(n * pace, 1)}

    def _audit(self) -> dict[str, Any] | None:
        """The last audit: how many of its points were labelled, how many predictions were right, and the interval."""
        lines = [line for line in reversed(self.project.log.lines) if line["op"] == "audit_start"]
        start = next((line for line in lines if self.labels.active(line["seq"])), None)
        if start is None:
            return None
        root = [info.root for info in self.labels.classes]
        outcome: Counter[bool] = Counter()
        left = []
        for key, predicted in zip(start["keys"], start["predicted_class"], strict=True):
            row = self.labels.row_of.get(key)
            mark = None if row is None else self.labels.marks.get(row)
            if mark is not None and mark.how == "audit" and mark.seq > start["seq"]:
                outcome[predicted is not None and mark.code >= 0 and root[mark.code] == root[predicted]] += 1
            elif row is not None and mark is None:
                left.append(row)
        n, right = outcome.total(), outcome[True]
        low, high = exact_interval(right, n)
        about = {"n": n, "right": right, "low": low, "high": high, "target": len(start["keys"])}
        return about | {"seq": start["seq"], "rows": left}


def exact_interval(right: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The Clopper-Pearson interval of a share of which ``right`` in ``n`` were seen."""
    tail = (1 - level) / 2
    low = float(betaincinv(right, n - right + 1, tail)) if right else 0.0
    high = float(betaincinv(right + 1, n - right, 1 - tail)) if right < n else 1.0
    return low, high
