"""The paper's Tables 1 to 3: what it published, and beside it what our records say.

Every number of ours carries the keys of the records behind it; one that is missing carries its place, from which the
command that would fill it is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from a2lp.bench import published, tables
from a2lp.bench.filling import commands
from a2lp.bench.placing import PREPROCESS, Place, Shelf
from a2lp.bench.published import BACKBONES, DATASETS, MARK, METHODS, SHOTS, Set
from a2lp.bench.statistics import Estimate, paired_difference
from a2lp.methods.registry import method_class, methods

DASH = "–"
PAIR = ("a2lp", "lp")  # whose paired difference every table has
DIFFERENCE = "a2lp \u2212 lp"


class Number(NamedTuple):
    """A field of a table.

    Attributes
    ----------
    text : str
    mean : float
        NaN for differences, and where there is no number.
    keys : tuple of str
        The records behind a number of ours.
    place : Place or None
        Where a number of ours belongs; None for published ones and differences.
    best : bool
    """

    text: str = ""
    mean: float = math.nan
    keys: tuple[str, ...] = ()
    place: Place | None = None
    best: bool = False


@dataclass(frozen=True)
class Row:
    """Numbers of one method; published or ours."""

    label: str
    numbers: tuple[Number, ...]
    published: bool


@dataclass(frozen=True)
class Section:
    """Rows under one heading: a network, or a dataset with a network."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class PaperTable:
    """One of the three tables.

    Attributes
    ----------
    columns : tuple of (str, str)
        A group and a name for each.
    notes : tuple of str
        What marks and names mean.
    commands : tuple of (str, str)
        What is missing, and the command that fills it.
    """

    number: int
    title: str
    columns: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]

    @property
    def plain(self) -> tables.Table:
        """The same for those who print tables of the bench."""
        blocks = (
            tables.Block(
                section.title,
                tuple((row.label, tuple(tables.Entry(n.text, n.best) for n in row.numbers)) for row in section.rows),
            )
            for section in self.sections
        )
        return tables.Table(self.title, self.columns, tuple(blocks))


def build(number: int, shelf: Shelf, out: str = "results") -> PaperTable:
    """One of the tables, 1 to 3.

    Parameters
    ----------
    shelf : Shelf
        Our records.
    out : str
        The folder that commands for missing cells name.
    """
    columns, sections = {1: _table_1, 2: _table_2, 3: _table_3}[number](shelf)
    numbers = [n for section in sections for row in section.rows for n in row.numbers]
    missing = [n.place for n in numbers if n.place is not None and not n.keys]
    used = [n.place.set for n in numbers if n.place is not None and n.keys]
    notes = [f"{MARK} {published.source()}. Its features are others than ours, and so are its tasks."]
    notes += [sentence for sentence in (_ours(shelf, used), published.remark(number)) if sentence]
    if number == 3:
        notes += [f"[{i}] {text}" for i, text in enumerate(published.notes().values(), start=1)]
    subject = {
        1: "methods that the paper ran, l2 preprocessing",
        2: "l2 beside plc preprocessing",
        3: "state of the art",
    }[number]
    title = f"Table {number}. Accuracy in %, ± 95 % interval, 5-way, 15 queries a class: {subject}"
    return PaperTable(number, title, columns, sections, tuple(notes), tuple(commands(missing, shelf, out)))


def to_markdown(table: PaperTable) -> str:
    """The table and its notes as Markdown."""
    notes = [f"- {note}" for note in table.notes]
    notes += [f"- {DASH} {what}: `{command}`" for what, command in table.commands]
    return "\n".join([tables.to_markdown(table.plain), "", *notes])


def to_latex(table: PaperTable) -> str:
    """The table for LaTeX with booktabs, its notes below; commands are comments."""
    notes = [rf"{{\footnotesize {tables.tex(note)}\par}}" for note in table.notes]
    comments = [f"% {what}: {command}" for what, command in table.commands]
    return "\n".join([tables.to_latex(table.plain) + r"\par", *notes, *comments])


def trace(table: PaperTable) -> list[str]:
    """A line for each number of ours: where it stands, what it is, and the records it comes from."""
    return [
        f"Table {table.number}, {section.title}, {group} {name}, {row.label}: {n.text} <- {' and '.join(n.keys)}"
        for section in table.sections
        for row in section.rows
        for (group, name), n in zip(table.columns, row.numbers, strict=True)
        if n.keys
    ]


Parts = tuple[tuple[tuple[str, str], ...], tuple[Section, ...]]


def _table_1(shelf: Shelf) -> Parts:
    columns = tuple((dataset, shots) for dataset in DATASETS for shots in SHOTS)
    sections: list[Section] = []
    for backbone in _backbones(shelf):
        found = {method: published.accuracy(backbone, method, "l2") for method in METHODS}
        theirs = {method: [found[method].get(column) for column in columns] for method in METHODS}
        places = [Place(Set(dataset, backbone), shots, "l2", "") for dataset, shots in columns]
        sections += _bold([Section(published.backbone_title(backbone), _side_by_side(theirs, places, shelf))])
    return _titled(columns), tuple(sections)


def _table_2(shelf: Shelf) -> Parts:
    columns = tuple((shots, how) for shots in SHOTS for how in PREPROCESS)
    sections: list[Section] = []
    for one in _sets(shelf):
        theirs = {
            method: [published.accuracy(one.backbone, method, how).get((one.dataset, shots)) for shots, how in columns]
            for method in METHODS
        }
        places = [Place(one, shots, how, "") for shots, how in columns]
        sections += _bold([Section(one.title, _side_by_side(theirs, places, shelf))])
    return tuple((f"{shots}-shot", how) for shots, how in columns), tuple(sections)


def _table_3(shelf: Shelf) -> Parts:
    theirs = [row for row in published.rows() if row.table == 3]
    shown = {dataset for row in theirs for dataset, _ in row.accuracy} | {one.dataset for one in shelf.sets}
    columns = tuple((dataset, shots) for dataset in DATASETS if dataset in shown for shots in SHOTS)
    marks = {key: f"[{i}]" for i, key in enumerate(published.notes(), start=1)}
    sections = []
    for backbone in _backbones(shelf):
        rows: list[Row] = []
        for row in theirs:
            if row.backbone == backbone:
                label = " ".join([row.label, *(marks[key] for key in row.notes)])
                rows += _published_row(label, [row.accuracy.get(column) for column in columns])
        places = {how: [Place(Set(d, backbone), shots, how, "") for d, shots in columns] for how in PREPROCESS}
        for method in _methods(shelf, backbone):
            label = f"{method} {marks['balanced']}" if method_class(method).assumes_uniform else method
            rows += [_our_row(_with(label, how), method, places[how], shelf) for how in PREPROCESS]
        rows += [_difference(_with(DIFFERENCE, how), places[how], shelf) for how in PREPROCESS]
        sections.append(Section(published.backbone_title(backbone), tuple(rows)))
    return _titled(columns), _bold(sections)


def _side_by_side(theirs: dict[str, list[Estimate | None]], places: Sequence[Place], shelf: Shelf) -> tuple[Row, ...]:
    """Each of the paper's methods, published and ours, and the difference of the pair."""
    rows: list[Row] = []
    for method in METHODS:
        rows += _published_row(method, theirs[method])
        rows.append(_our_row(method, method, places, shelf))
    rows += _published_difference(*(theirs[method] for method in PAIR))
    rows.append(_difference(DIFFERENCE, places, shelf))
    return tuple(rows)


def _titled(columns: Iterable[tuple[str, int]]) -> tuple[tuple[str, str], ...]:
    return tuple((DATASETS[dataset], f"{shots}-shot") for dataset, shots in columns)


def _with(label: str, preprocess: str) -> str:
    return label if preprocess == "l2" else f"{label}, {preprocess}"


def _backbones(shelf: Shelf) -> list[str]:
    """The paper's networks, then ours."""
    return list(dict.fromkeys([*BACKBONES, *sorted(one.backbone for one in shelf.sets)]))


def _sets(shelf: Shelf) -> list[Set]:
    """Sets of Table 2: the paper's, and every one of ours."""
    theirs = {Set(dataset, row.backbone) for row in published.rows() if row.table == 2 for dataset, _ in row.accuracy}
    every = [Set(dataset, backbone) for backbone in _backbones(shelf) for dataset in DATASETS]
    return [one for one in every if one in theirs or one in shelf.sets]


def _methods(shelf: Shelf, backbone: str) -> list[str]:
    """Those of the registry that have a record with this network; the pair always."""
    found = {place.method for place in shelf.records if place.set.backbone == backbone} | set(PAIR)
    return [method for method in methods() if method in found]


def _published_row(label: str, values: Sequence[Estimate | None]) -> list[Row]:
    """A row, unless there is nothing in it."""
    numbers = tuple(Number() if v is None else Number(tables.plus_minus(*v), v.mean) for v in values)
    return [Row(f"{label} {MARK}", numbers, True)] if any(n.text for n in numbers) else []


def _published_difference(ones: Sequence[Estimate | None], others: Sequence[Estimate | None]) -> list[Row]:
    """The difference of published means: the paper has no interval for it."""
    numbers = tuple(
        Number() if a is None or b is None else Number(tables.plus_minus(a.mean - b.mean, math.nan, sign=True))
        for a, b in zip(ones, others, strict=True)
    )
    return [Row(f"{DIFFERENCE} {MARK}", numbers, True)] if any(n.text for n in numbers) else []


def _our_row(label: str, method: str, places: Iterable[Place], shelf: Shelf) -> Row:
    numbers = []
    for place in (place._replace(method=method) for place in places):
        record = shelf.records.get(place)
        if record is None:
            numbers.append(Number(DASH, place=place))
        else:
            accuracy = record.accuracy
            numbers.append(Number(tables.plus_minus(*accuracy), accuracy.mean, (record.key,), place))
    return Row(label, tuple(numbers), False)


def _difference(label: str, places: Iterable[Place], shelf: Shelf) -> Row:
    numbers = []
    for place in places:
        one, other = (shelf.records.get(place._replace(method=method)) for method in PAIR)
        if one is None or other is None:
            numbers.append(Number(DASH))
        else:
            gain = paired_difference(one.accuracies, other.accuracies)
            numbers.append(Number(tables.plus_minus(*gain, sign=True), keys=(one.key, other.key)))
    return Row(label, tuple(numbers), False)


def _bold(sections: Sequence[Section]) -> tuple[Section, ...]:
    """Mark the highest mean of each column of some sections, among published ones and among ours."""
    highest: dict[tuple[bool, int], float] = {}
    for row in (row for section in sections for row in section.rows):
        for column, n in enumerate(row.numbers):
            if not math.isnan(n.mean):
                where = (row.published, column)
                highest[where] = max(highest.get(where, -math.inf), n.mean)

    def marked(row: Row) -> Row:
        numbers = (n._replace(best=n.mean == highest.get((row.published, i))) for i, n in enumerate(row.numbers))
        return replace(row, numbers=tuple(numbers))

    return tuple(replace(section, rows=tuple(map(marked, section.rows))) for section in sections)


def _ours(shelf: Shelf, used: Iterable[Set]) -> str | None:
    """What our numbers were measured on."""
    parts = []
    for one in dict.fromkeys(used):
        configs = [record.config for record in shelf.of(one)]
        counts = sorted({config["n_tasks"] for config in configs})
        parts.append(f"{one.title}: {configs[0]['features']}, {' and '.join(f'{n} tasks' for n in counts)}")
    if not parts:
        return None
    return f"Without a mark: ours, differences paired by task. Features and tasks: {'; '.join(parts)}."
