"""A self-contained HTML page about a bench: the table, and what the numbers look like."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from a2lp.bench import plots, studies
from a2lp.bench.bench_tables import bench_table, choose_baseline
from a2lp.bench.comparison import Standing, compare, overall
from a2lp.bench.protocol import Cell
from a2lp.bench.records import Record, RecordStore, write_text
from a2lp.bench.run import Progress
from a2lp.errors import MissingExtraError

ADAPTIVE = "a2lp"  # the method whose steps the report looks into


class Plot(NamedTuple):
    """A figure of the report."""

    title: str
    caption: str
    source: str  # a data: address


def write_report(
    cells: Sequence[Cell], records: Sequence[Record], baseline: str | None, store: RecordStore, progress: Progress
) -> Path:
    """Write ``report.html`` beside the records.

    Parameters
    ----------
    cells, records : sequences
        What was run, and what it gave.
    baseline : str or None
        A method that differences are taken to, beside those to the best.
    store : RecordStore
        Keeps what is computed for the report only.
    progress : callable
        As for ``run``; the steps of ``a2lp`` are looked at on some tasks.
    """
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("the report", "jinja2", "report") from error
    standings = compare(cells, records)
    figures = _compared(standings) + _differences(standings, baseline) + _adapted(cells, standings, store, progress)
    template = (files("a2lp.bench") / "report.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(template).render(
        table=bench_table(standings, baseline), figures=figures, record=records[-1], samplers=_samplers(standings)
    )
    path = store.folder.parent / "report.html"
    write_text(path, page)
    return path


def _compared(standings: Sequence[Standing]) -> list[Plot]:
    """All methods: accuracies, ranks, accuracy against time."""
    columns: dict[str, list[Record]] = {}
    for one in standings:
        if one.record.accuracies:
            columns.setdefault(_column(one), []).append(one.record)
    found = [_plot("Accuracy", "Mean over tasks; the bars are 95 % intervals.", plots.accuracy(columns))]
    for kind, uses_base in (("without base data", False), ("with base data", True)):
        ranked = overall(standings, uses_base)
        if ranked is not None and len(ranked[0]) > 2:
            found.append(
                _plot(
                    f"Ranks of methods {kind}",
                    f"Ranked on each of {ranked[1].n} tasks, 1 the best; those that did all tasks of all columns. "
                    "Black bars join methods whose mean ranks are within Nemenyi's critical difference at 5 %: these "
                    f"cannot be told apart. Friedman's test that all are equal: p = {ranked[1].p_value:.2g}.",
                    plots.ranks(*ranked),
                )
            )
    if len({one.method for one in standings}) > 1:
        found.append(
            _plot(
                "Accuracy against time",
                "Up and to the left is better. Filled: uses data of the base classes. Square: takes every class to "
                "have equally many queries.",
                plots.accuracy_and_time(columns),
            )
        )
    return found


def _differences(standings: Sequence[Standing], baseline: str | None) -> list[Plot]:
    """Two methods task by task: the one worth a closer look, and the baseline."""
    whole = [one for one in standings if one.record.whole]
    names = list(dict.fromkeys(one.method for one in whole))
    if not names:
        return []
    baseline = choose_baseline(names, baseline)
    focus = _focus([one.record for one in whole], baseline)
    pairs: dict[str, tuple[Record, Record]] = {}
    for one in whole:
        if one.method == focus:
            others = [o.record for o in whole if o.method == baseline and o.family == one.family]
            if others and focus != baseline:
                pairs[_column(one)] = (one.record, others[0])
    if not pairs:
        return []
    caption = "Both methods ran on the same tasks. Dashed: the mean difference."
    return [_plot(f"Task by task: {focus} minus {baseline}", caption, plots.differences(pairs))]


def _adapted(
    cells: Sequence[Cell], standings: Sequence[Standing], store: RecordStore, progress: Progress
) -> list[Plot]:
    """What the steps of ``a2lp`` do, where it was run with steps."""
    chosen = [
        (cell, one)
        for cell, one in zip(cells, standings, strict=True)
        if cell.name == ADAPTIVE and cell.params["steps"] > 0 and one.record.whole
    ]
    if not chosen:
        return []
    curves = {_column(one): studies.adaptation(cell, store, progress).trace or {} for cell, one in chosen}
    cell, first = chosen[0]
    n = min(studies.TASKS, len(first.record.accuracies))
    index = studies.most_helped(cell, first.record)
    picture = studies.task_picture(cell, index)
    return [
        _plot(
            "Accuracy against steps",
            f"{ADAPTIVE} on the first {n} tasks; step 0 is plain label propagation. The band is the 95 % interval.",
            plots.steps(curves),
        ),
        _plot(
            "How far the anchors moved",
            f"Means over the anchors of the first {n} tasks, after preprocessing: the loss, the distance of an anchor "
            "from its support vector, and its length.",
            plots.movement(curves),
        ),
        _plot(
            f"One task, before and after ({_column(first)})",
            f"Task {index}, the one of the first {n} that gained most. Colours are the true classes, diamonds the "
            "anchors, dotted lines their way from the support vectors; ringed queries are labelled wrongly. The axes "
            f"are the two main ones of the task's points, with {100 * picture.explained:.0f} % of their variance.",
            plots.task(picture),
        ),
    ]


def _column(one: Standing) -> str:
    sampler, preprocess, n_shot = one.column
    return f"{n_shot}-shot, {preprocess}" if sampler == "balanced" else f"{n_shot}-shot, {preprocess}, {sampler}"


def _samplers(standings: Sequence[Standing]) -> str:
    return ", ".join(dict.fromkeys(one.column.sampler for one in standings))


def _focus(records: Sequence[Record], baseline: str) -> str:
    """The method worth a closer look: ``a2lp``, else the best one."""
    names = [record.config["method"] for record in records]
    if ADAPTIVE in names and baseline != ADAPTIVE:
        return ADAPTIVE
    best = max(records, key=lambda record: (record.config["method"] != baseline, record.accuracy.mean))
    return str(best.config["method"])


def _plot(title: str, caption: str, svg: str) -> Plot:
    data = base64.b64encode(svg.encode()).decode()
    return Plot(title, caption, f"data:image/svg+xml;base64,{data}")
