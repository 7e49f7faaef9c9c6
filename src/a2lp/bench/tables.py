"""Tables of results: Markdown and LaTeX for reading, CSV and JSON for programs."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from a2lp.bench.records import Record

FlatRow = dict[str, Any]  # of CSV and JSON


class Entry(NamedTuple):
    """A field of a table."""

    text: str = ""
    mean: float = math.nan  # the mean accuracy, by which the best entry is chosen; NaN for other quantities
    best: bool = False  # whether it is set in bold
    keys: tuple[str, ...] = ()  # of the records that the number comes from


class Row(NamedTuple):
    """The entries of one method, published or measured."""

    label: str
    entries: tuple[Entry, ...]
    published: bool = False


class Section(NamedTuple):
    """Rows under one heading, such as a quantity or a network."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """Sections over the same columns."""

    title: str
    columns: tuple[tuple[str, str], ...]  # a group, such as the preprocessing, and a name, such as the number of shots
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()  # what is missing, and the command that measures it


def mark_best(sections: Sequence[Section]) -> tuple[Section, ...]:
    """Mark the highest mean of each column over some sections, among published entries and among measured ones."""
    rows = [row for section in sections for row in section.rows]
    highest = {}
    for published in {row.published for row in rows}:
        columns = zip(*(row.entries for row in rows if row.published == published), strict=True)
        highest[published] = [max((e.mean for e in c if not math.isnan(e.mean)), default=math.nan) for c in columns]

    def marked(row: Row) -> Row:
        pairs = zip(row.entries, highest[row.published], strict=True)
        return row._replace(entries=tuple(entry._replace(best=entry.mean == high) for entry, high in pairs))

    return tuple(section._replace(rows=tuple(map(marked, section.rows))) for section in sections)


def to_json(rows: Sequence[FlatRow]) -> str:
    """Rows as a JSON list; NaN and infinity become null."""
    return json.dumps([{k: _or_null(v) for k, v in row.items()} for row in rows], indent=2, allow_nan=False)


def to_csv(rows: Sequence[FlatRow]) -> str:
    """Rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: _or_null(v) for k, v in row.items()} for row in rows)
    return text.getvalue().rstrip("\n")


def to_markdown(table: Table) -> str:
    """The table, its notes and its commands as GitHub's Markdown."""
    names = [f"{name}, {group}" if group else name for group, name in table.columns]
    lines = [table.title]
    for section in table.sections:
        lines += ["", "| " + " | ".join([section.title, *names]) + " |", "| --- |" + " ---: |" * len(names)]
        for row in section.rows:
            texts = [f"**{e.text}**" if e.best else e.text for e in row.entries]
            lines.append("| " + " | ".join([row.label, *texts]) + " |")
    notes = [f"- {note}".replace("- *", "- \\*") for note in table.notes]
    notes += [f"- – {what}: `{command}`" for what, command in table.commands]
    return "\n".join([*lines, "", *notes] if notes else lines)


def to_latex(table: Table) -> str:
    """The table for LaTeX with booktabs, its notes below it, its commands as comments."""
    n = len(table.columns)
    groups = [(group, len(list(same))) for group, same in itertools.groupby(group for group, _ in table.columns)]
    header = [rf"\multicolumn{{{count}}}{{c}}{{{_tex(group)}}}" for group, count in groups]
    lines = [f"% {table.title}", r"\begin{tabular}{l" + "c" * n + "}", r"\toprule"]
    if any(group for group, _ in groups):
        lines.append(" & ".join(["", *header]) + r" \\")
    lines.append(" & ".join(["", *(_tex(name) for _, name in table.columns)]) + r" \\")
    for section in table.sections:
        lines += [r"\midrule", rf"\multicolumn{{{n + 1}}}{{l}}{{\emph{{{_tex(section.title)}}}}} \\"]
        for row in section.rows:
            texts = [_tex(e.text.replace("-", "\u2212")) for e in row.entries]
            texts = [rf"\textbf{{{text}}}" if e.best else text for e, text in zip(row.entries, texts, strict=True)]
            lines.append(" & ".join([_tex(row.label), *texts]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}" + (r"\par" if table.notes else "")]
    lines += [rf"{{\footnotesize {_tex(note)}\par}}" for note in table.notes]
    return "\n".join([*lines, *(f"% {what}: {command}" for what, command in table.commands)])


def describe(config: Mapping[str, Any]) -> str:
    """One line about the features and tasks of a table."""
    seed = "" if config["seed"] is None else f", seed {config['seed']}"
    return (
        f"{config['features']}: {config['n_way']}-way, {config['queries_per_task']} queries a task, "
        f"{config['n_tasks']} tasks, {config['sampler']}{seed}"
    )


def plus_minus(mean: float, ci95: float, *, sign: bool = False) -> str:
    """A mean and its interval, as in ``78.93 ±0.79``."""
    number = f"{mean:+.2f}" if sign else f"{mean:.2f}"
    return number if math.isnan(ci95) else f"{number} ±{ci95:.2f}"


def flat_row(record: Record) -> FlatRow:
    """A record as one row of CSV or JSON."""
    names = ("method", "n_way", "n_shot", "preprocess", "sampler", "features")
    mean, ci95 = record.accuracy
    row = {name: record.config[name] for name in names}
    row |= {"n_tasks": len(record.accuracies), "mean_accuracy": mean, "ci95": ci95}
    return row | {"seconds": record.seconds, "engine": record.engine}


def _or_null(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _tex(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    for character in "&%$#_{}":
        text = text.replace(character, "\\" + character)
    return text.replace("±", r"$\pm$").replace("\u2212", "$-$")
