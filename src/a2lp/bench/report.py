"""A self-contained HTML page about a bench: the table, and what the numbers look like."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from a2lp.bench import plots, studies, tables
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
    cells: Sequence[Cell], records: Sequence[Record], baseline: str, store: RecordStore, progress: Progress
) -> Path:
    """Write ``report.html`` beside the records.

    Parameters
    ----------
    cells, records : sequences
        What was run, and what it gave.
    baseline : str
        The method that differences are taken to.
    store : RecordStore
        Keeps what is computed for the report only.
    progress : callable
        As for ``run``; the steps of ``a2lp`` are looked at on some tasks.
    """
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("the report", "jinja2", "report") from error
    figures = _compared(records, baseline) + _adapted(cells, records, store, progress)
    template = (files("a2lp.bench") / "report.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(template).render(
        table=tables.bench_table(records, baseline), figures=figures, record=records[-1]
    )
    path = store.folder.parent / "report.html"
    write_text(path, page)
    return path


def _compared(records: Sequence[Record], baseline: str) -> list[Plot]:
    columns: dict[str, list[Record]] = {}
    for record in records:
        columns.setdefault(_column(record), []).append(record)
    found = [
        _plot("Accuracy", "Mean over tasks; the bars are 95 % intervals.", plots.accuracy(columns)),
    ]
    focus = _focus(records, baseline)
    pairs = {title: tuple(_of(members, name) for name in (focus, baseline)) for title, members in columns.items()}
    if focus != baseline:
        found.append(
            _plot(
                f"Task by task: {focus} minus {baseline}",
                "Both methods ran on the same tasks. Dashed: the mean difference.",
                plots.differences({title: (one, other) for title, (one, other) in pairs.items()}),
            )
        )
    return found


def _adapted(cells: Sequence[Cell], records: Sequence[Record], store: RecordStore, progress: Progress) -> list[Plot]:
    """What the steps of ``a2lp`` do, where it was run with steps."""
    chosen = [
        (cell, record)
        for cell, record in zip(cells, records, strict=True)
        if cell.name == ADAPTIVE and cell.params["steps"] > 0
    ]
    if not chosen:
        return []
    curves = {_column(record): studies.adaptation(cell, store, progress).trace or {} for cell, record in chosen}
    n = min(studies.TASKS, len(records[0].accuracies))
    cell, record = chosen[0]
    index = studies.most_helped(cell, record)
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
            f"One task, before and after ({_column(record)})",
            f"Task {index}, the one of the first {n} that gained most. Colours are the true classes, diamonds the "
            "anchors, dotted lines their way from the support vectors; ringed queries are labelled wrongly. The axes "
            f"are the two main ones of the task's points, with {100 * picture.explained:.0f} % of their variance.",
            plots.task(picture),
        ),
    ]


def _column(record: Record) -> str:
    return f"{record.config['n_shot']}-shot, {record.config['preprocess']}"


def _focus(records: Sequence[Record], baseline: str) -> str:
    """The method worth a closer look: ``a2lp``, else the best one."""
    names = [record.config["method"] for record in records]
    if ADAPTIVE in names and baseline != ADAPTIVE:
        return ADAPTIVE
    best = max(records, key=lambda record: (record.config["method"] != baseline, record.accuracy.mean))
    return str(best.config["method"])


def _of(records: Sequence[Record], method: str) -> Record:
    return next(record for record in records if record.config["method"] == method)


def _plot(title: str, caption: str, svg: str) -> Plot:
    data = base64.b64encode(svg.encode()).decode()
    return Plot(title, caption, f"data:image/svg+xml;base64,{data}")
