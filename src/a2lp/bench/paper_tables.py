"""The paper's Tables 1 to 3: its published numbers, and beside them ours, from records.

Every number of ours carries the keys of the records behind it. For those that are missing, the table has the commands
that would measure them.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from a2lp.bench import published
from a2lp.bench.paper_records import N_TASKS, PAIR, PREPROCESS, PaperCell, PaperRecords
from a2lp.bench.published import BACKBONES, DATASETS, MARK, METHODS, SHOTS, FeatureSource
from a2lp.bench.statistics import Estimate
from a2lp.bench.tables import Entry, Row, Section, Table, mark_best, plus_minus
from a2lp.features.bundled import BUNDLED
from a2lp.methods.registry import list_methods, method_class

NUMBERS = (1, 2, 3)
DASH = "–"
DIFFERENCE = "a2lp \u2212 lp"
SUBJECTS = {
    1: "methods that the paper ran, l2 preprocessing",
    2: "l2 beside plc preprocessing",
    3: "state of the art",
}

Columns = tuple[tuple[str, str], ...]


def paper_table(number: int, records: PaperRecords, out: str = "results") -> Table:
    """One of the tables, 1 to 3.

    Parameters
    ----------
    records : PaperRecords
        Ours.
    out : str
        The folder that commands for missing cells name.
    """
    builder = _Builder(records)
    columns, sections = {1: builder.table_1, 2: builder.table_2, 3: builder.table_3}[number]()
    notes = [f"{MARK} {published.document()['source']}. Its features are not ours, and neither are its tasks."]
    notes += [text for text in (builder.note_on_ours(), published.document()["remarks"].get(str(number))) if text]
    if number == 3:
        notes += [f"[{i}] {text}" for i, text in enumerate(published.document()["notes"].values(), start=1)]
    title = f"Table {number}. Accuracy in %, ± 95 % interval, 5-way, 15 queries a class: {SUBJECTS[number]}"
    commands = tuple(commands_for(builder.missing, records, out))
    return Table(title, columns, sections, tuple(notes), commands)


def trace(table: Table) -> list[str]:
    """A line for each number of ours: where it stands, what it is, and the records it comes from."""
    name = table.title.partition(".")[0]
    return [
        f"{name}, {section.title}, {group} {column}, {row.label}: {entry.text} <- {' and '.join(entry.keys)}"
        for section in table.sections
        for row in section.rows
        for (group, column), entry in zip(table.columns, row.entries, strict=True)
        if entry.keys
    ]


class _Builder:
    """Builds the parts of a table, and remembers which of its cells have a record and which have none."""

    def __init__(self, records: PaperRecords) -> None:
        self.ours = records
        self.missing: list[PaperCell] = []
        self.used: list[FeatureSource] = []

    def table_1(self) -> tuple[Columns, tuple[Section, ...]]:
        columns = [(dataset, shots) for dataset in DATASETS for shots in SHOTS]
        sections = [
            self._side_by_side(
                published.backbone_title(backbone),
                [PaperCell(FeatureSource(dataset, backbone), shots, "l2", "") for dataset, shots in columns],
            )
            for backbone in self._backbones()
        ]
        return _headings(columns), tuple(sections)

    def table_2(self) -> tuple[Columns, tuple[Section, ...]]:
        columns = [(shots, how) for shots in SHOTS for how in PREPROCESS]
        theirs = {FeatureSource(d, r.backbone) for r in published.rows() if r.table == 2 for d, _ in r.accuracy}
        every = [FeatureSource(dataset, backbone) for backbone in self._backbones() for dataset in DATASETS]
        sections = [
            self._side_by_side(source.title, [PaperCell(source, shots, how, "") for shots, how in columns])
            for source in every
            if source in theirs or source in self.ours.sources
        ]
        return tuple((f"{shots}-shot", how) for shots, how in columns), tuple(sections)

    def table_3(self) -> tuple[Columns, tuple[Section, ...]]:
        theirs = [row for row in published.rows() if row.table == 3]
        datasets = {d for row in theirs for d, _ in row.accuracy} | {source.dataset for source in self.ours.sources}
        columns = [(dataset, shots) for dataset in DATASETS if dataset in datasets for shots in SHOTS]
        marks = {key: f"[{i}]" for i, key in enumerate(published.document()["notes"], start=1)}
        sections = []
        for backbone in self._backbones():
            rows: list[Row] = []
            for row in (row for row in theirs if row.backbone == backbone):
                label = " ".join([row.label, *(marks[key] for key in row.notes)])
                rows += _published_row(label, [row.accuracy.get(column) for column in columns])
            cells = {
                how: [PaperCell(FeatureSource(d, backbone), shots, how, "") for d, shots in columns]
                for how in PREPROCESS
            }
            for method in self._methods(backbone):
                label = f"{method} {marks['balanced']}" if method_class(method).assumes_uniform else method
                rows += [self._row(_with(label, how), method, cells[how]) for how in PREPROCESS]
            rows += [self._difference(_with(DIFFERENCE, how), cells[how]) for how in PREPROCESS]
            sections.append(Section(published.backbone_title(backbone), tuple(rows)))
        return _headings(columns), mark_best(sections)

    def note_on_ours(self) -> str | None:
        """What our numbers were measured on."""
        parts = []
        for source in dict.fromkeys(self.used):
            configs = [record.config for record in self.ours.of(source)]
            counts = sorted({config["n_tasks"] for config in configs})
            parts.append(f"{source.title}: {configs[0]['features']}, {' and '.join(f'{n} tasks' for n in counts)}")
        if not parts:
            return None
        return f"Without a mark: ours, differences paired by task. Features and tasks: {'; '.join(parts)}."

    def _side_by_side(self, title: str, cells: Sequence[PaperCell]) -> Section:
        """Each of the paper's methods, published and ours, and the difference of the pair."""
        theirs = {
            method: [
                published.accuracy(cell.source.backbone, method, cell.preprocess).get(
                    (cell.source.dataset, cell.n_shot)
                )
                for cell in cells
            ]
            for method in METHODS
        }
        rows: list[Row] = []
        for method in METHODS:
            rows += _published_row(method, theirs[method])
            rows.append(self._row(method, method, cells))
        rows += _published_difference(*(theirs[method] for method in PAIR))
        rows.append(self._difference(DIFFERENCE, cells))
        return mark_best([Section(title, tuple(rows))])[0]

    def _row(self, label: str, method: str, cells: Iterable[PaperCell]) -> Row:
        entries = []
        for cell in (cell._replace(method=method) for cell in cells):
            record = self.ours.records.get(cell)
            if record is None:
                self.missing.append(cell)
                entries.append(Entry(DASH))
            else:
                self.used.append(cell.source)
                entries.append(Entry(plus_minus(*record.accuracy), record.accuracy.mean, keys=(record.key,)))
        return Row(label, tuple(entries))

    def _difference(self, label: str, cells: Iterable[PaperCell]) -> Row:
        entries = []
        for cell in cells:
            pair, gain = self.ours.pair(cell), self.ours.gain(cell)
            if pair is None or gain is None:
                entries.append(Entry(DASH))
            else:
                entries.append(Entry(plus_minus(*gain, sign=True), keys=(pair[0].key, pair[1].key)))
        return Row(label, tuple(entries))

    def _backbones(self) -> list[str]:
        """The paper's networks, then ours."""
        return list(dict.fromkeys([*BACKBONES, *sorted(source.backbone for source in self.ours.sources)]))

    def _methods(self, backbone: str) -> list[str]:
        """Those of the registry that have a record with this network; the pair always."""
        found = {cell.method for cell in self.ours.records if cell.source.backbone == backbone} | set(PAIR)
        return [method for method in list_methods() if method in found]


def _headings(columns: Iterable[tuple[str, int]]) -> Columns:
    return tuple((DATASETS[dataset], f"{shots}-shot") for dataset, shots in columns)


def _with(label: str, preprocess: str) -> str:
    return label if preprocess == "l2" else f"{label}, {preprocess}"


def _published_row(label: str, values: Sequence[Estimate | None]) -> list[Row]:
    """A row, unless there is nothing in it."""
    entries = tuple(Entry() if v is None else Entry(plus_minus(*v), v.mean) for v in values)
    return [Row(f"{label} {MARK}", entries, published=True)] if any(e.text for e in entries) else []


def _published_difference(ones: Sequence[Estimate | None], others: Sequence[Estimate | None]) -> list[Row]:
    """The difference of published means: the paper has no interval for it."""
    entries = tuple(
        Entry() if a is None or b is None else Entry(plus_minus(a.mean - b.mean, math.nan, sign=True))
        for a, b in zip(ones, others, strict=True)
    )
    return [Row(f"{DIFFERENCE} {MARK}", entries, published=True)] if any(e.text for e in entries) else []


def commands_for(missing: Sequence[PaperCell], records: PaperRecords, out: str) -> Iterator[tuple[str, str]]:
    """For each dataset and network with missing cells, its name and the command that measures them."""
    by_source: dict[FeatureSource, list[PaperCell]] = {}
    for cell in missing:
        by_source.setdefault(cell.source, []).append(cell)
    without_features = []
    for source, cells in by_source.items():
        known = records.of(source)
        name = known[0].config["features"] if known else published.bundled_name(source)
        if name is None:
            without_features.append(source)
        else:
            yield source.title, _bench_command(name, cells, known[0].config if known else {}, out)
    for source in without_features:
        yield (
            f"{source.title}, has no features yet",
            f"a2lp embed IMAGES --dataset {DATASETS[source.dataset]} --split test --backbone {source.backbone} "
            f"--weights FILE --out features/{source.dataset}_{source.backbone}_test.npz",
        )
    if without_features:
        yield "with those features", shlex.join(["a2lp", "reproduce", "--data", "features", "--out", out])


def _bench_command(name: str, cells: Sequence[PaperCell], config: Mapping[str, Any], out: str) -> str:
    options = {
        "--features": name if name in BUNDLED else f"{name}.npz",
        "--methods": ",".join(dict.fromkeys(cell.method for cell in cells)),
        "--shots": ",".join(dict.fromkeys(str(cell.n_shot) for cell in cells)),
        "--preprocess": ",".join(dict.fromkeys(cell.preprocess for cell in cells)),
        "--tasks": config.get("n_tasks", N_TASKS),
        "--seed": config.get("seed", 0),
        "--out": out,
    }
    usual = {"--tasks": N_TASKS, "--seed": 0}
    return shlex.join(["a2lp", "bench", *(str(x) for k, v in options.items() if usual.get(k) != v for x in (k, v))])
