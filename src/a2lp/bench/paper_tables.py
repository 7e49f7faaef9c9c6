"""The paper's Tables 1 to 3: its published numbers, ours from records, and commands that measure missing ones."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from a2lp.bench import published
from a2lp.bench.paper_records import N_TASKS, PREPROCESS, PaperCell, PaperRecords
from a2lp.bench.published import BACKBONES, DATASETS, MARK, METHODS, PAIR, SHOTS, FeatureSource, network_title
from a2lp.bench.statistics import Estimate
from a2lp.bench.tables import Entry, Row, Section, Table, mark_best, plus_minus
from a2lp.features.bundled import BUNDLED
from a2lp.methods.registry import list_methods, method_class

DASH = "–"
DIFFERENCE = "a2lp \u2212 lp"
SUBJECTS = {
    1: "methods that the paper ran, l2 preprocessing",
    2: "l2 and plc preprocessing",
    3: "state of the art",
}
NUMBERS = tuple(SUBJECTS)

Columns = tuple[tuple[str, str], ...]


def paper_table(number: int, records: PaperRecords, out: str = "results") -> Table:
    """One of the tables, 1 to 3; ``out`` is the folder in the commands for missing cells."""
    builder = _Builder(records)
    columns, sections = {1: builder.table_1, 2: builder.table_2, 3: builder.table_3}[number]()
    notes = [f"{MARK} {published.document()['source']}. Its features and tasks are not ours."]
    notes += [text for text in (builder.note_on_ours(), published.document()["remarks"].get(str(number))) if text]
    if number == 3:
        notes += [f"[{i}] {text}" for i, text in enumerate(published.document()["notes"].values(), start=1)]
    title = f"Table {number}. Accuracy in %, ± 95 % interval, 5-way, 15 queries per class: {SUBJECTS[number]}"
    return Table(title, columns, tuple(sections), tuple(notes), tuple(_commands(builder.missing, records, out)))


def trace(table: Table) -> list[str]:
    """A line for each of our numbers: its place in the table, its value, and the keys of its records."""
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
        self.gains = {how: records.gains(how) for how in PREPROCESS}
        self.missing: list[PaperCell] = []
        self.used: list[FeatureSource] = []
        # the paper's networks, then others, ensembles last
        ours = sorted(records.sources, key=lambda source: (source.joined, source.backbone))
        self.backbones = list(dict.fromkeys([*BACKBONES, *(source.backbone for source in ours)]))

    def table_1(self) -> tuple[Columns, Iterable[Section]]:
        columns = [(dataset, shots) for dataset in DATASETS for shots in SHOTS]
        sections = []
        for backbone in self.backbones:
            cells = [PaperCell(FeatureSource(dataset, backbone), shots, "l2", "") for dataset, shots in columns]
            sections.append(self._side_by_side(network_title(backbone), cells))
        return _headings(columns), sections

    def table_2(self) -> tuple[Columns, Iterable[Section]]:
        columns = [(shots, how) for shots in SHOTS for how in PREPROCESS]
        known = {source for row in published.rows() if row.table == 2 for source, _ in row.accuracy}
        sections = []
        for source in (FeatureSource(dataset, backbone) for backbone in self.backbones for dataset in DATASETS):
            if source in known.union(self.ours.sources):
                cells = [PaperCell(source, shots, how, "") for shots, how in columns]
                sections.append(self._side_by_side(source.title, cells))
        return tuple((f"{shots}-shot", how) for shots, how in columns), sections

    def table_3(self) -> tuple[Columns, Iterable[Section]]:
        theirs = [row for row in published.rows() if row.table == 3]
        sources = [*(source for row in theirs for source, _ in row.accuracy), *self.ours.sources]
        datasets = {source.dataset for source in sources}
        columns = [(dataset, shots) for dataset in DATASETS if dataset in datasets for shots in SHOTS]
        suffixes = {how: "" if how == "l2" else f", {how}" for how in PREPROCESS}
        marks = {key: f"[{i}]" for i, key in enumerate(published.document()["notes"], start=1)}
        sections = []
        for backbone in self.backbones:
            rows: list[Row] = []
            settings = [(FeatureSource(dataset, backbone), shots) for dataset, shots in columns]
            for row in (row for row in theirs if row.backbone == backbone):
                label = " ".join([row.label, *(marks[key] for key in row.notes)])
                rows += _published_row(label, [row.accuracy.get(setting) for setting in settings])
            cells = {how: [PaperCell(*setting, how, "") for setting in settings] for how in PREPROCESS}
            measured = {cell.method for cell in self.ours.records if cell.source.backbone == backbone}
            for method in (method for method in list_methods() if method in measured.union(PAIR)):
                label = f"{method} {marks['balanced']}" if method_class(method).assumes_uniform else method
                rows += [self._row(label + suffixes[how], method, cells[how]) for how in PREPROCESS]
            rows += [self._difference(DIFFERENCE + suffixes[how], cells[how]) for how in PREPROCESS]
            sections.append(Section(network_title(backbone), tuple(rows)))
        return _headings(columns), mark_best(sections)

    def note_on_ours(self) -> str:
        """The features and tasks of our numbers."""
        parts = []
        for source in dict.fromkeys(self.used):
            configs = [record.config for record in self.ours.of(source)]
            counts = sorted({config["n_tasks"] for config in configs})
            parts.append(f"{source.title}: {configs[0]['features']}, {' and '.join(f'{n} tasks' for n in counts)}")
        ours = f"Rows without a mark are ours; differences are paired by task. Features and tasks: {'; '.join(parts)}."
        return ours if parts else ""

    def _side_by_side(self, title: str, cells: Sequence[PaperCell]) -> Section:
        """Each of the paper's methods, published and ours, and the difference of the pair."""
        rows: list[Row] = []
        for method in METHODS:
            theirs = {how: published.accuracy(method, how) for how in PREPROCESS}
            rows += _published_row(method, [theirs[cell.preprocess].get((cell.source, cell.n_shot)) for cell in cells])
            rows.append(self._row(method, method, cells))
        gains = {how: published.gains(how) for how in PREPROCESS}
        differences = [gains[cell.preprocess].get((cell.source, cell.n_shot)) for cell in cells]
        rows += _published_row(DIFFERENCE, differences, sign=True)
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
            gain = self.gains[cell.preprocess].get((cell.source, cell.n_shot))
            if gain is None:
                entries.append(Entry(DASH))
            else:
                keys = tuple(self.ours.records[cell._replace(method=method)].key for method in PAIR)
                entries.append(Entry(plus_minus(*gain, sign=True), keys=keys))
        return Row(label, tuple(entries))


def _headings(columns: Iterable[tuple[str, int]]) -> Columns:
    return tuple((DATASETS[dataset], f"{shots}-shot") for dataset, shots in columns)


def _published_row(label: str, values: Sequence[Estimate | None], *, sign: bool = False) -> list[Row]:
    """A row of published accuracies, or of differences with their sign; none if it would be empty."""
    entries = [Entry() if v is None else Entry(plus_minus(*v, sign=sign), math.nan if sign else v.mean) for v in values]
    return [Row(f"{label} {MARK}", tuple(entries), published=True)] if any(values) else []


def _commands(missing: Sequence[PaperCell], records: PaperRecords, out: str) -> list[tuple[str, str]]:
    """For each dataset and network with missing cells, its name and the command that measures them."""
    commands, embed = [], []
    for source in dict.fromkeys(cell.source for cell in missing):
        known = records.of(source)
        config = known[0].config if known else {}
        bundled = (name for name in BUNDLED if published.feature_source(name) == source)
        name = config.get("features") or next(bundled, None)
        if name is not None:
            cells = [cell for cell in missing if cell.source == source]
            commands.append((source.title, _bench_command(name, cells, config, out)))
        elif not source.joined:  # nobody needs an ensemble for every dataset
            command = (
                f"a2lp embed IMAGES --dataset {DATASETS[source.dataset]} --split test --backbone {source.backbone} "
                f"--weights FILE --out features/{source.dataset}_{source.backbone}_test.npz"
            )
            embed.append((f"no features yet for {source.title}", command))
    if embed:
        embed.append(("with those features", shlex.join(["a2lp", "reproduce", "--data", "features", "--out", out])))
    return commands + embed


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
    defaults = {"--tasks": N_TASKS, "--seed": 0}
    return shlex.join(["a2lp", "bench", *(str(x) for k, v in options.items() if defaults.get(k) != v for x in (k, v))])
