"""What the user has said so far: the fold of the log's lines that are not undone.

``Labels`` is updated line by line. Undoing a line touches only the points that the line names: a point's state is the
fold of the few lines that name it. Classes are numbered in the order in which they first appear, and lines carry the
number beside the name, so that a renamed class keeps its points, and undoing the renaming keeps them, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from a2lp.serve.log import Line

YOURS, ACCEPTED, UNSEEN, REJECTED = "yours", "accepted", "accepted_unseen", "rejected"
_KINDS = {"label": YOURS, "import": YOURS, "accept": ACCEPTED, "accept_unseen": UNSEEN, "reject": REJECTED, "clear": ""}
PINS = tuple("123456789")


class Mark(NamedTuple):
    """What a line says about one point.

    Attributes
    ----------
    seq, t
        The line, and its time in seconds.
    kind : str
        ``yours``, ``accepted`` (seen), ``accepted_unseen``, ``rejected`` (none of the classes), or "" (cleared).
    code : int
        The class; -1 for none.
    how : str
        How the point was chosen.
    shown, confidence
        The class that was shown when the user decided, and its probability; None if none was shown.
    """

    seq: int
    t: float
    kind: str
    code: int
    how: str = ""
    shown: int | None = None
    confidence: float | None = None


@dataclass
class ClassInfo:
    """A class: its name, the number of the class that it is part of now, its key, and whether it still exists."""

    name: str
    root: int
    pin: str | None = None
    gone: bool = False


@dataclass
class _Entry:
    line: Line
    active: bool = True
    undone_by: list[int] = field(default_factory=list)
    codes: frozenset[int] = frozenset()


class Labels:
    """The state of the labels; ``apply`` the log's lines in order.

    Parameters
    ----------
    row_of : mapping of str to int
        The points by key. Keys that the source no longer has stay in the log and are ignored here.
    """

    def __init__(self, row_of: Mapping[str, int]) -> None:
        self.row_of = row_of
        self.marks: dict[int, Mark] = {}  # the state of each point that has one
        self._entries: list[_Entry] = []
        self._of_classes: list[_Entry] = []  # those that change classes and no points
        self._history: defaultdict[int, list[Mark]] = defaultdict(list)
        self._names: list[str] = []  # of classes, as they were made
        self._uses: Counter[int] = Counter()
        self._classes: list[ClassInfo] | None = None

    @property
    def seq(self) -> int:
        """The last line."""
        return len(self._entries)

    def apply(self, line: Line) -> list[int]:
        """Take in the next line; the points whose state may have changed."""
        entry = _Entry(line, codes=frozenset(_used(line)))
        self._entries.append(entry)
        if line["op"] in ("rename", "merge", "pin"):
            self._of_classes.append(entry)
        self._classes = None
        for code, name in _named(line):
            self._names += [""] * (code + 1 - len(self._names))
            self._names[code] = self._names[code] or name
        if line["op"] == "undo":
            self._entries[line["undoes"] - 1].undone_by.append(line["seq"])
            return sorted(self._refresh(line["undoes"]))
        self._uses.update(entry.codes)
        rows = []
        for mark, row in self._said(line):
            self._history[row].append(mark)
            self._fold(row)
            rows.append(row)
        return rows

    def active(self, seq: int) -> bool:
        """Whether a line counts: it was not undone, or its undoing was."""
        return self._entries[seq - 1].active

    def line(self, seq: int) -> Line:
        """A line by its number."""
        return self._entries[seq - 1].line

    def history(self, row: int) -> list[tuple[Mark, bool]]:
        """What was said about a point, oldest first, and whether it still counts."""
        return [(mark, self.active(mark.seq)) for mark in self._history.get(row, ())]

    def is_known(self, row: int) -> bool:
        """Whether any line ever named the point."""
        return bool(self._history.get(row))

    # ---- classes --------------------------------------------------------------------------------------------------

    @property
    def classes(self) -> list[ClassInfo]:
        """All classes by number; those that were merged, or that nothing names any more, are gone."""
        if self._classes is None:
            self._classes = self._fold_classes()
        return self._classes

    def code_of(self, name: str) -> int:
        """The number of a class by its name; the next free number for a new one."""
        for code, info in enumerate(self.classes):
            if info.name == name and not info.gone:
                return code
        for code, info in enumerate(self.classes):  # one whose making was undone comes back
            if self._names[code] == name and info.gone and info.root == code:
                return code
        return len(self._names)

    def anchors(self) -> dict[int, int]:
        """The labels to learn from, class by row: the user's own, and those that were seen and accepted."""
        root = [info.root for info in self.classes]
        return {row: root[mark.code] for row, mark in self.marks.items() if mark.kind in (YOURS, ACCEPTED)}

    # ---- undo -----------------------------------------------------------------------------------------------------

    def last_done(self) -> int | None:
        """The line that a plain undo takes back."""
        return next(
            (e.line["seq"] for e in reversed(self._entries) if e.active and e.line["op"] not in ("undo", "import")),
            None,
        )

    def last_undone(self) -> int | None:
        """The undo line that a plain redo takes back; None after a new command."""
        for entry in reversed(self._entries):
            if entry.line["op"] != "undo":
                return None
            if entry.active and self.line(entry.line["undoes"])["op"] != "undo":
                return int(entry.line["seq"])
        return None

    def _refresh(self, seq: int) -> set[int]:
        """Decide again whether a line counts, and what follows from that; the points concerned."""
        entry = self._entries[seq - 1]
        active = not any(self.active(other) for other in entry.undone_by)
        if active == entry.active:
            return set()
        entry.active = active
        if entry.line["op"] == "undo":
            return self._refresh(entry.line["undoes"])
        if active:
            self._uses.update(entry.codes)
        else:
            self._uses.subtract(entry.codes)
        rows = {row for _, row in self._said(entry.line)}
        for row in rows:
            self._fold(row)
        return rows

    def _fold(self, row: int) -> None:
        state: Mark | None = None
        for mark in self._history[row]:
            if self.active(mark.seq):
                state = folded(state, mark)
        if state is None:
            self.marks.pop(row, None)
        else:
            self.marks[row] = state

    def _said(self, line: Line) -> Iterable[tuple[Mark, int]]:
        """What a line says about each of its points that the source has."""
        if (kind := _KINDS.get(line["op"])) is None:
            return
        keys: Sequence[str] = line["keys"]
        each = {name: spread(line.get(name), len(keys)) for name in ("class", "shown_class", "confidence")}
        for place, key in enumerate(keys):
            if (row := self.row_of.get(key)) is not None:
                code = each["class"][place]
                shown = each["shown_class"][place], each["confidence"][place]
                code = -1 if code is None else code
                yield Mark(line["seq"], line["t"], kind, code, line.get("how", ""), *shown), row

    def _fold_classes(self) -> list[ClassInfo]:
        classes = [ClassInfo(name, code) for code, name in enumerate(self._names)]
        pins: dict[str, int] = {}
        for entry in self._of_classes:
            line = entry.line
            if not entry.active:
                continue
            code = line["class"]
            if line["op"] == "rename":
                classes[code].name = line["to"]
            elif line["op"] == "pin":
                pins = {key: other for key, other in pins.items() if other != code} | {line["key"]: code}
            else:
                one, other = _root(classes, code), _root(classes, line["to_class"])
                classes[one].root = other
        uses: Counter[int] = Counter()
        for code in range(len(classes)):
            uses[_root(classes, code)] += self._uses[code]
        for code, info in enumerate(classes):
            info.gone = info.root != code or uses[code] == 0
            info.root = _root(classes, code)
        taken: set[str] = set()
        for info in classes:
            if not info.gone:
                info.name = _free_name(info.name, taken)  # undoing may bring a name back that was given anew
                taken.add(info.name)
        _set_pins(classes, pins)
        return classes


def folded(before: Mark | None, mark: Mark) -> Mark | None:
    """The state of a point after one more line: the user's own labels win over what was accepted."""
    kind = before.kind if before is not None else ""
    if mark.kind == ACCEPTED and kind == YOURS:
        return before
    if mark.kind == UNSEEN and kind in (YOURS, ACCEPTED):
        return before
    return mark if mark.kind else None


def spread(values: Any, n: int) -> Sequence[Any]:
    """One value for each of n points, from a list of them or one value for all."""
    return values if isinstance(values, list) else [values] * n


def _named(line: Line) -> Iterable[tuple[int, str]]:
    """Classes of a line, by number and name."""
    for code, name in (("class", "label"), ("to_class", "to")):
        if code in line and name in line:
            codes = line[code] if isinstance(line[code], list) else [line[code]]
            names = line[name] if isinstance(line[name], list) else [line[name]]
            yield from zip(codes, names, strict=True)


def _used(line: Line) -> Iterable[int]:
    """Classes that a line keeps alive: those of its points, and one that it makes."""
    value = line.get("class") if line["op"] in (*_KINDS, "class") else None
    return value if isinstance(value, list) else () if value is None else (value,)


def _root(classes: Sequence[ClassInfo], code: int) -> int:
    while classes[code].root != code:
        code = classes[code].root
    return code


def _free_name(name: str, taken: set[str]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name} ({number})", number + 1
    return found


def _set_pins(classes: Sequence[ClassInfo], pins: Mapping[str, int]) -> None:
    """Keys that were chosen; a digit for the class that it names; then the free ones, in the classes' order."""
    alive = [info for info in classes if not info.gone]
    for key, code in pins.items():
        if not classes[code].gone:
            classes[code].pin = key
    taken = {info.pin for info in alive}
    for info in alive:
        if info.pin is None and info.name in PINS and info.name not in taken:
            info.pin = info.name
            taken.add(info.name)
    free = iter([key for key in PINS if key not in taken])
    for info in alive:
        if info.pin is None and not (len(info.name) == 1 and info.name.isdigit()):
            info.pin = next(free, None)
