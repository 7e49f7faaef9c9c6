"""Tables and how they are written; a sweep's records as one."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from a2lp.bench.records import Record

Row = dict[str, Any]


class Entry(NamedTuple):
    """A field of a table; ``best`` ones are set in bold."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Block:
    """Rows that show one quantity."""

    title: str
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]


@dataclass(frozen=True)
class Table:
    """Blocks over the same columns; a column has a group (the preprocessing) and a name (the shots)."""

    title: str
    columns: tuple[tuple[str, str], ...]
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = ()


def sweep_rows(records: Sequence[Record], swept: Sequence[str]) -> list[Row]:
    """One flat row for each record, best parameters first, by mean accuracy over the numbers of shots."""
    groups = _by_params(records, swept)
    rows = []
    for rank, (params, members) in enumerate(groups, start=1):
        mean = _mean_of_means(members)
        for record in members:
            rows.append(plain_row(record) | {"rank": rank, "mean_over_shots": mean} | dict(params))
    return rows


def sweep_table(records: Sequence[Record], swept: Sequence[str]) -> Table:
    """Rows are sets of parameters, the best first; columns are shots, and their mean."""
    groups = _by_params(records, swept)
    config = records[0].config
    shots = [record.config["n_shot"] for record in groups[0][1]]
    rows = []
    for rank, (params, members) in enumerate(groups):
        texts = [plus_minus(*record.accuracy) for record in members]
        if len(members) > 1:
            texts.append(f"{_mean_of_means(members):.2f}")
        rows.append((format_params(params), tuple(Entry(text, rank == 0) for text in texts)))
    names = [f"{k}-shot" for k in shots] + (["mean"] if len(shots) > 1 else [])
    group = "" if "preprocess" in swept else config["preprocess"]
    columns = tuple((group, name) for name in names)
    return Table(f"{config['method']}: {describe(config)}", columns, (Block("accuracy, %", tuple(rows)),))


def to_json(rows: Sequence[Row]) -> str:
    """Rows as a JSON list; what is not a number is null."""
    return json.dumps([{k: _or_null(v) for k, v in row.items()} for row in rows], indent=2, allow_nan=False)


def to_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: _or_null(v) for k, v in row.items()} for row in rows)
    return text.getvalue().rstrip("\n")


def to_markdown(table: Table) -> str:
    """The table as GitHub's Markdown has it."""
    names = [f"{name}, {group}" if group else name for group, name in table.columns]
    lines = [table.title]
    for block in table.blocks:
        lines += ["", "| " + " | ".join([block.title, *names]) + " |", "| --- |" + " ---: |" * len(names)]
        for label, entries in block.rows:
            texts = [f"**{e.text}**" if e.best else e.text for e in entries]
            lines.append("| " + " | ".join([label, *texts]) + " |")
    lines += ["", *(f"- {note}".replace("- *", "- \\*") for note in table.notes)] if table.notes else []
    return "\n".join(lines)


def to_latex(table: Table) -> str:
    """The table for LaTeX with booktabs."""
    n = len(table.columns)
    groups = _runs([group for group, _ in table.columns])
    header = [rf"\multicolumn{{{count}}}{{c}}{{{tex(group)}}}" for group, count in groups]
    lines = [f"% {table.title}", r"\begin{tabular}{l" + "c" * n + "}", r"\toprule"]
    if any(group for group, _ in groups):
        lines.append(" & ".join(["", *header]) + r" \\")
    lines.append(" & ".join(["", *(tex(name) for _, name in table.columns)]) + r" \\")
    for block in table.blocks:
        lines += [r"\midrule", rf"\multicolumn{{{n + 1}}}{{l}}{{\emph{{{tex(block.title)}}}}} \\"]
        for label, entries in block.rows:
            texts = [tex(e.text.replace("-", "\u2212")) for e in entries]
            texts = [rf"\textbf{{{text}}}" if e.best else text for e, text in zip(entries, texts, strict=True)]
            lines.append(" & ".join([tex(label), *texts]) + r" \\")
    notes = [rf"\par{{\footnotesize {tex(note)}\par}}" for note in table.notes]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *notes])


def describe(config: Mapping[str, Any]) -> str:
    """One line that says what a table was measured on."""
    seed = "" if config["seed"] is None else f", seed {config['seed']}"
    return (
        f"{config['features']}: {config['n_way']}-way, {config['queries_per_task']} queries a task, "
        f"{config['n_tasks']} tasks, {config['sampler']}{seed}"
    )


def format_params(params: Mapping[str, Any]) -> str:
    """Parameters as ``alpha=0.8 steps=100``."""
    return " ".join(f"{name}={value}" for name, value in params.items())


def plus_minus(mean: float, ci95: float, *, sign: bool = False) -> str:
    """A mean and its interval, as ``78.93 ±0.79``."""
    number = f"{mean:+.2f}" if sign else f"{mean:.2f}"
    return number if math.isnan(ci95) else f"{number} ±{ci95:.2f}"


def plain_row(record: Record) -> Row:
    """What a record says, without comparing it."""
    config, accuracy = record.config, record.accuracy
    return {
        "method": config["method"],
        "n_way": config["n_way"],
        "n_shot": config["n_shot"],
        "preprocess": config["preprocess"],
        "sampler": config["sampler"],
        "features": config["features"],
        "n_tasks": len(record.accuracies),
        "mean_accuracy": accuracy.mean,
        "ci95": accuracy.ci95,
        "seconds": record.seconds,
        "engine": record.engine,
    }


def _by_params(records: Sequence[Record], swept: Sequence[str]) -> list[tuple[Row, list[Record]]]:
    """Records grouped by the swept parameters, the best group first."""
    groups: dict[str, tuple[Row, list[Record]]] = {}
    for record in records:
        params = {name: record.config["params"][name] for name in swept}
        groups.setdefault(json.dumps(params), (params, []))[1].append(record)
    return sorted(groups.values(), key=lambda group: -_mean_of_means(group[1]))


def _mean_of_means(records: Sequence[Record]) -> float:
    return sum(record.accuracy.mean for record in records) / len(records)


def _or_null(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _runs(names: Sequence[str]) -> list[tuple[str, int]]:
    """Equal neighbours with their counts."""
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    return runs


def tex(text: str) -> str:
    """Text with what LaTeX would read as its own escaped."""
    for character in "&%$#_{}":
        text = text.replace(character, "\\" + character)
    return text.replace("±", r"$\pm$").replace("\u2212", "$-$")
