"""The live state of a project: what the user has said, what is predicted, and what the page is told about both."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from a2lp.arrays import NDArray
from a2lp.pool.graph import PoolGraph
from a2lp.pool.push import push
from a2lp.serve import commands
from a2lp.serve.answers import ALPHA, NONE, Answers
from a2lp.serve.jobs import Job
from a2lp.serve.project import Project
from a2lp.serve.state import ACCEPTED, REJECTED, UNSEEN, YOURS, Labels

IS_YOURS, IS_ACCEPTED, IS_UNSEEN, DOUBTFUL, NOVEL, IS_REJECTED, UNREACHED, SETTLING = (1 << bit for bit in range(8))
_FLAG = {YOURS: IS_YOURS, ACCEPTED: IS_ACCEPTED, UNSEEN: IS_UNSEEN, REJECTED: IS_REJECTED}
_SURE = 0.8
_NOVEL = 0.95  # novelty from which a point is probably of no class, where its mass is not known
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
        self.solves = 0  # full answers so far
        for line in project.log.lines:
            self.labels.apply(line)
        self.anchors = self.labels.anchors()
        self.kind = np.zeros(n, np.uint8)
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
        view = commands.View(self.keys, self._shown, self._sureness, lambda: np.flatnonzero(self.kind == 0))
        return commands.line_of(command, self.labels, view)

    def apply(self, line: dict[str, Any]) -> NDArray:
        """Take in a line that was written; the rows whose display changed."""
        roots = [info.root for info in self.labels.classes]
        rows = self.labels.apply(line)
        before = self.anchors
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
        if not self._choice():
            self.answers.forget()  # with one class, everything would be predicted to be of it
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

    def take(self, message: dict[str, Any]) -> NDArray:
        """Take in what the solver found; the rows whose display changed."""
        kind = message["type"]
        if kind == "answer" and self._choice():
            self.answers.land(message)
            self.solves += 1
        elif kind == "suggested":
            self.suggestions = message["rows"]
        elif kind == "assessed":
            self.answers.assess(message)
            self.doubted, self.unseen, self.expected = message["doubted"], message["unseen"], message["expected"]
            value, low, high = message["accuracy"]
            self.accuracy = {"value": value, "low": low, "high": high, "seq": message["seq"], "method": "held out"}
            self.accuracy["note"] = "estimated from your labels, each predicted without itself"
            self.project.add_to_curve([message["labels"], value, low, high])
        return self.refresh(None)

    # ---- what the page is told --------------------------------------------------------------------------------------

    def refresh(self, rows: NDArray | None) -> NDArray:
        """Compute the display of some rows (None: all) again; those that changed."""
        part = np.arange(len(self)) if rows is None else rows.astype(np.int64)
        kind, marked, answers = self.kind[part], self._marked[part], self.answers
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
            self.kind[row] = 0 if mark is None else _FLAG[mark.kind]
            self._marked[row] = -1 if mark is None else mark.code

    def _novel_from(self) -> float:
        return _NOVEL if self.unseen is None else 1 - min(0.5, self.unseen)
