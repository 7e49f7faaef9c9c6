"""Self-contained HTML pages: the report of a comparison, and the parts that other pages share."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from a2lp.bench import adaptation, plots
from a2lp.bench.comparison_table import KINDS
from a2lp.bench.records import Record, RecordStore
from a2lp.bench.run import Progress, no_progress
from a2lp.bench.standings import Standing, overall_ranking
from a2lp.errors import import_extra
from a2lp.files import write_text

if TYPE_CHECKING:
    from a2lp.bench.comparison import Comparison

ADAPTIVE = "a2lp"  # the method whose steps have figures of their own

EXPLANATION = (
    "± is half the width of the 95 % interval, 1.96 s / √n over tasks. Bold: the highest mean of a column. Seconds are "
    "those of prediction alone."
)


class Figure(NamedTuple):
    """A picture with a title, a caption and, if these do not describe it, an alternative text."""

    title: str
    caption: str
    svg: str
    alt: str = ""

    @property
    def source(self) -> str:
        """The picture as a data URI."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"


def render(**values: Any) -> str:
    """A self-contained page from the template, filled with ``values``."""
    jinja2 = import_extra("the report", "report", "jinja2")
    text = (files("a2lp.bench") / "page.html.jinja").read_text(encoding="utf-8")
    page: str = jinja2.Template(text, autoescape=True, trim_blocks=True, lstrip_blocks=True).render(**values)
    return page


def provenance(records: Sequence[Record]) -> dict[str, str]:
    """When, with which software and on which machines the records were made; each distinct value once."""

    def distinct(texts: Iterable[str]) -> str:
        return "; ".join(dict.fromkeys(texts))

    dates = sorted(record.date[:10] for record in records)
    machines = [[r.hardware.get(name, "unknown") for name in ("cpu", "cores", "device")] for r in records]
    return {
        "records": str(len(records)),
        "made": " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "",
        "versions": distinct(", ".join(f"{k} {v}" for k, v in r.versions.items()) for r in records),
        "commit": distinct(r.commit or "unknown" for r in records),
        "hardware": distinct(f"{cpu}, {cores} cores, {device}" for cpu, cores, device in machines),
    }


def write_report(comparison: Comparison, store: RecordStore, progress: Progress | None = None) -> Path:
    """Write ``report.html`` beside the records; ``store`` also keeps what is computed for the report only."""
    standings = comparison.standings
    figures = _all_methods(standings) + _differences(standings, comparison.baseline)
    figures += _adaptation(comparison, store, progress or no_progress)
    config = comparison.records[-1].config
    samplers = ", ".join(dict.fromkeys(one.column.sampler for one in standings))
    origin = provenance(comparison.records) | {
        "features": f"{config['features']}, sha256 {config['features_sha256']}",
        "tasks": f"sampler {samplers}, seed {config['seed']}",
    }
    lead, tables = "Methods compared on the same tasks.", [comparison.table]
    page = render(title="a2lp bench", lead=lead, tables=tables, figures=figures, explanation=EXPLANATION, origin=origin)
    path = store.folder.parent / "report.html"
    write_text(path, page)
    return path


def _all_methods(standings: Sequence[Standing]) -> list[Figure]:
    """Accuracies, ranks, and accuracy against time."""
    columns: dict[str, list[Record]] = {}
    for one in standings:
        if one.record.accuracies:
            columns.setdefault(_column(one), []).append(one.record)
    figures = [Figure("Accuracy", "Mean over tasks; the bars are 95 % intervals.", plots.svg(plots.accuracy, columns))]
    for given, kind in KINDS.items():
        ranked = overall_ranking(standings, given)
        if ranked is not None and len(ranked[0]) > 2:
            caption = (
                f"Ranked on each of {ranked[1].n} tasks, 1 the best; those that did all tasks of all columns. "
                "Thick bars join methods whose mean ranks are within Nemenyi's critical difference at 5 %: these "
                f"cannot be told apart. Friedman's test that all are equal: p = {ranked[1].p_value:.2g}."
            )
            figures.append(Figure(f"Ranks of methods {kind}", caption, plots.svg(plots.ranks, *ranked)))
    timed = {column: [one for one in records if not one.on_cluster] for column, records in columns.items()}
    timed = {column: records for column, records in timed.items() if records}
    if timed and len({one.method for one in standings}) > 1:
        caption = (
            "Up and to the left is better. Filled: uses data of the base classes. Square: assumes or prefers "
            "equally many queries of every class."
        )
        figures.append(Figure("Accuracy against time", caption, plots.svg(plots.accuracy_and_time, timed)))
    return figures


def _differences(standings: Sequence[Standing], baseline: str | None) -> list[Figure]:
    """Two methods task by task: ``a2lp`` or the best one, and the baseline."""
    whole = [one for one in standings if one.record.whole]
    names = list(dict.fromkeys(one.method for one in whole))
    if not names:
        return []
    baseline = baseline or ("lp" if "lp" in names else names[0])
    best = max(whole, key=lambda one: (one.method != baseline, one.record.accuracy.mean))
    focus = ADAPTIVE if ADAPTIVE in names and baseline != ADAPTIVE else best.method
    pairs: dict[str, tuple[Record, Record]] = {}
    for one in (one for one in whole if one.method == focus != baseline):
        others = [other.record for other in whole if other.method == baseline and other.family == one.family]
        if others:
            pairs[_column(one)] = (one.record, others[0])
    if not pairs:
        return []
    caption = "Both methods ran on the same tasks. Dashed: the mean difference."
    return [Figure(f"Task by task: {focus} minus {baseline}", caption, plots.svg(plots.differences, pairs))]


def _adaptation(comparison: Comparison, store: RecordStore, progress: Progress) -> list[Figure]:
    """The effect of the steps of ``a2lp``, where it ran with steps."""
    chosen = [
        (cell, one)
        for cell, one in zip(comparison.cells, comparison.standings, strict=True)
        if cell.name == ADAPTIVE and cell.params["steps"] > 0 and one.record.whole
    ]
    if not chosen:
        return []
    curves = {_column(one): adaptation.adaptation(cell, store, progress).trace or {} for cell, one in chosen}
    cell, first = chosen[0]
    n = min(adaptation.TASKS, len(first.record.accuracies))
    index = adaptation.most_helped(cell, first.record)
    picture = adaptation.task_picture(cell, index)
    return [
        Figure(
            "Accuracy against steps",
            f"{ADAPTIVE} on the first {n} tasks; step 0 is plain label propagation. The band is the 95 % interval.",
            plots.svg(plots.steps, curves),
        ),
        Figure(
            "How far the anchors moved",
            f"Means over the anchors of the first {n} tasks, after preprocessing: the loss, the distance of an anchor "
            "from its support vector, and its length.",
            plots.svg(plots.movement, curves),
        ),
        Figure(
            f"One task, before and after ({_column(first)})",
            f"Task {index}, the one of the first {n} that gained most. Colours are the true classes, diamonds the "
            "anchors, dotted lines their way from the support vectors; ringed queries are labelled wrongly. The axes "
            f"are the two main ones of the task's points, with {100 * picture.explained:.0f} % of their variance.",
            plots.svg(plots.task, picture),
        ),
    ]


def _column(one: Standing) -> str:
    sampler, preprocess, n_shot = one.column
    return f"{n_shot}-shot, {preprocess}" if sampler == "balanced" else f"{n_shot}-shot, {preprocess}, {sampler}"
