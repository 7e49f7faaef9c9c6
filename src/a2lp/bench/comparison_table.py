"""A comparison of methods as a table for reading, and as flat rows for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from a2lp.bench.records import Record
from a2lp.bench.standings import UNKNOWN, Column, Standing
from a2lp.bench.tables import Entry, FlatRow, Row, Section, Table, describe, flat_row, mark_best, plus_minus

Entries = dict[tuple[str, Column], Entry]  # by method and column

SIGNIFICANT = 0.05

STARRED = (
    "* differs from the best of its column: paired t-test over tasks, Holm's correction for all pairs of methods of "
    "the column."
)
ACCURACY = "accuracy, %"
WITHOUT, WITH = ", without base data", ", with base data"


def comparison_rows(standings: Sequence[Standing], baseline: str | None = None) -> list[FlatRow]:
    """One flat row for each cell: accuracy, differences to the best and to a baseline, rank, seconds, assumptions."""
    return [_flat_row(one, _partner(one, standings, baseline)) for one in standings]


def comparison_table(standings: Sequence[Standing], baseline: str | None = None) -> Table:
    """Rows are methods, columns are shots, grouped by sampler and preprocessing.

    Parameters
    ----------
    standings : sequence of Standing
    baseline : str, optional
        A method that differences are taken to as well as to the best.
    """
    columns = list(dict.fromkeys(one.column for one in standings))
    kinds = _kinds(standings)
    sections = [
        mark_best([_section(f"{ACCURACY}{suffix}", columns, _entries(members, _accuracy))])[0]
        for members, suffix in kinds
    ]
    if baseline is not None:
        pairs = [(one, _partner(one, standings, baseline)) for one in standings if one.method != baseline]
        differences = {
            (one.method, one.column): Entry(plus_minus(*one.difference_to(partner), sign=True))
            for one, partner in pairs
            if partner is not None
        }
        sections += [_section(f"difference to {baseline}", columns, differences)] if differences else []
    for members, suffix in kinds:
        if len({one.method for one in members}) > (1 if baseline is None else 2):  # of two, one difference is all
            sections.append(_section(f"difference to the best{suffix}", columns, _entries(members, _to_best)))
            sections.append(_section(f"mean rank{suffix}", columns, _entries(members, _rank)))
    sections.append(_section("seconds per 1000 tasks", columns, _entries(standings, _seconds)))
    heads = [(_group(column, standings), f"{column.n_shot}-shot") for column in columns]
    assumptions = method_assumptions(standings)
    if any(assumptions.values()):
        heads.insert(0, ("", "assumes"))
        sections = [_with_assumptions(section, assumptions) for section in sections]
    samplers = list(dict.fromkeys(column.sampler for column in columns))
    title = describe(standings[0].record.config | {"sampler": " and ".join(samplers)})
    starred = any(e.text.endswith("*") for section in sections for row in section.rows for e in row.entries)
    return Table(
        title, tuple(heads), tuple(sections), tuple(([STARRED] if starred else []) + footnotes(standings, assumptions))
    )


def method_assumptions(standings: Sequence[Standing]) -> dict[str, str]:
    """For each method, ``uniform`` (equally many queries of each class) or ``base`` (data of the base classes)."""
    found: dict[str, dict[str, bool]] = {}
    for one in standings:
        known = found.setdefault(one.method, {"uniform": False, "base": False})
        known["uniform"] |= one.record.uniform
        known["base"] |= one.record.uses_base
    return {method: ", ".join(name for name, holds in known.items() if holds) for method, known in found.items()}


def footnotes(standings: Sequence[Standing], assumptions: dict[str, str]) -> list[str]:
    """What a reader must know beside the numbers: assumptions, cells that were stopped, cells that failed."""
    notes = []
    assumed = {word for text in assumptions.values() for word in text.split(", ")}
    if "uniform" in assumed:
        notes.append("uniform: assumes equally many queries of every class, as balanced tasks have.")
    if "base" in assumed:
        notes.append("base: uses data of the base classes; compared only with other methods that do.")
    stopped = [one.record for one in standings if one.record.limit is not None]
    if stopped:
        notes.append(
            f"(n): stopped by the limit of {max(r.limit or 0 for r in stopped):g} s after n of "
            f"{stopped[0].config['n_tasks']} tasks; differences are on those, and there is no rank."
        )
    for one in standings:
        if one.record.failed is not None:
            cell = f"{one.method} ({one.column.sampler}, {one.column.preprocess}, {one.column.n_shot}-shot)"
            notes.append(f"{cell} failed: {one.record.failed}")
    return notes


def seconds_per_thousand(record: Record) -> float:
    """Seconds of prediction for 1000 tasks; NaN for a cell that failed."""
    return 1000 * record.seconds / len(record.accuracies) if record.accuracies else math.nan


def _kinds(standings: Sequence[Standing]) -> list[tuple[list[Standing], str]]:
    """Those without base data and those with, apart; all together where no column has both."""
    without = [one for one in standings if not one.record.uses_base]
    with_base = [one for one in standings if one.record.uses_base]
    if {one.column for one in without} & {one.column for one in with_base}:
        return [(without, WITHOUT), (with_base, WITH)]
    return [(list(standings), "")]


def _entries(members: Sequence[Standing], entry: Callable[[Standing], Entry]) -> Entries:
    return {(one.method, one.column): entry(one) for one in members}


def _section(title: str, columns: Sequence[Column], entries: Entries) -> Section:
    """One row for each method; empty where it has nothing in a column."""
    methods = dict.fromkeys(method for method, _ in entries)
    return Section(title, tuple(Row(m, tuple(entries.get((m, c), Entry()) for c in columns)) for m in methods))


def _with_assumptions(section: Section, assumptions: dict[str, str]) -> Section:
    """A section with a first column that says what methods assume; empty but for the accuracies."""
    shown = assumptions if section.title.startswith(ACCURACY) else {}
    return section._replace(
        rows=tuple(Row(label, (Entry(shown.get(label, "")), *entries)) for label, entries, _ in section.rows)
    )


def _accuracy(one: Standing) -> Entry:
    record = one.record
    if record.failed is not None:
        return Entry("failed")
    count = "" if record.whole else f" ({len(record.accuracies)})"
    complete = one.best is not None and len(record.accuracies) == len(one.best.accuracies)
    return Entry(plus_minus(*record.accuracy) + count, record.accuracy.mean if complete else math.nan)


def _to_best(one: Standing) -> Entry:
    if one.best is None:
        return Entry()
    if one.best is one.record:
        return Entry("best")
    return Entry(plus_minus(*one.difference, sign=True) + ("*" if one.p_value < SIGNIFICANT else ""))


def _rank(one: Standing) -> Entry:
    return Entry("" if math.isnan(one.rank) else f"{one.rank:.2f}")


def _seconds(one: Standing) -> Entry:
    seconds = seconds_per_thousand(one.record)
    if math.isnan(seconds):
        return Entry()
    return Entry(f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2g}")


def _partner(one: Standing, standings: Sequence[Standing], baseline: str | None) -> Record | None:
    """The baseline's record on the same tasks, with base data if this method uses them."""
    if not one.record.accuracies:
        return None
    rivals = (other for other in standings if other.method == baseline and other.family == one.family)
    return next((other.record for other in rivals if other.record.accuracies), None)


def _group(column: Column, standings: Sequence[Standing]) -> str:
    """The preprocessing, by name where all methods of a column have the same; the sampler too, where it varies."""
    used = {one.record.config["preprocess"] for one in standings if one.column == column}
    preprocess = used.pop() if len(used) == 1 else column.preprocess
    several = len({one.column.sampler for one in standings}) > 1
    return f"{column.sampler}, {preprocess}" if several else preprocess


def _flat_row(one: Standing, partner: Record | None) -> FlatRow:
    difference = UNKNOWN if partner is None else one.difference_to(partner)
    return flat_row(one.record) | {
        "baseline": None if partner is None else partner.config["method"],
        "difference": difference.mean,
        "difference_ci95": difference.ci95,
        "best": None if one.best is None else one.best.config["method"],
        "difference_to_best": one.difference.mean,
        "difference_to_best_ci95": one.difference.ci95,
        "p_holm": one.p_value,
        "rank": one.rank,
        "seconds_per_1000": seconds_per_thousand(one.record),
        "uniform": one.record.uniform,
        "uses_base": one.record.uses_base,
        "failed": one.record.failed,
    }
