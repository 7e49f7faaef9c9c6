"""A comparison of methods as a table for reading, and as flat rows for programs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from a2lp.bench.records import Record
from a2lp.bench.standings import UNKNOWN, Column, Standing
from a2lp.bench.statistics import Estimate
from a2lp.bench.tables import Entry, FlatRow, Row, Section, Table, describe, flat_row, mark_best, plus_minus

SIGNIFICANT = 0.05
STARRED = (
    "* differs from the best of its column: paired t-test over tasks, Holm's correction for all pairs of methods of "
    "the column."
)
ASSUMPTIONS = {
    "uniform": "uniform: assumes or prefers equally many queries of every class, as balanced tasks have.",
    "base": "base: uses data of the base classes; compared only with other methods that do.",
    "names": "names: uses vectors of the class names; compared only with other methods that do.",
}
# by what is known beside the task: data of base classes, class names
KINDS = {
    (False, False): "without base data",
    (True, False): "with base data",
    (False, True): "with names",
    (True, True): "with names and base data",
}


def comparison_rows(standings: Sequence[Standing], baseline: str | None = None) -> list[FlatRow]:
    """One flat row for each cell: accuracy, differences to the best and to a baseline, rank, seconds, assumptions."""
    rows = []
    for one in standings:
        difference = _to_baseline(one, standings, baseline)
        more = {
            "baseline": None if difference is None else baseline,
            "difference": (difference or UNKNOWN).mean,
            "difference_ci95": (difference or UNKNOWN).ci95,
            "best": None if one.best is None else one.best.config["method"],
            "difference_to_best": one.difference.mean,
            "difference_to_best_ci95": one.difference.ci95,
            "p_holm": one.p_value,
            "rank": one.rank,
            "seconds_per_1000": seconds_per_thousand(one.record),
            "uniform": one.record.uniform,
            "uses_base": one.record.uses_base,
            "uses_names": one.record.uses_names,
            "failed": one.record.failed,
        }
        rows.append(flat_row(one.record) | more)
    return rows


def comparison_table(standings: Sequence[Standing], baseline: str | None = None) -> Table:
    """Rows are methods, columns are shots, grouped by sampler and preprocessing; with differences to a baseline."""
    columns = list(dict.fromkeys(one.column for one in standings))
    assumptions = _assumptions(standings)
    assumes = any(assumptions.values())

    def section(title: str, members: Sequence[Standing], entry: Callable[[Standing], Entry]) -> Section:
        """One row for each method; empty where it has nothing in a column."""
        entries = {(one.method, one.column): entry(one) for one in members}
        rows = []
        for method in dict.fromkeys(one.method for one in members):
            first = [Entry(assumptions[method] if entry is _accuracy else "")] if assumes else []
            rows.append(Row(method, (*first, *(entries.get((method, column), Entry()) for column in columns))))
        return mark_best([Section(title, tuple(rows))])[0]

    def to_baseline(one: Standing) -> Entry:
        difference = _to_baseline(one, standings, baseline)
        return Entry("" if difference is None else plus_minus(*difference, sign=True))

    kinds = _by_kind(standings)
    sections = [section(f"accuracy, %{suffix}", members, _accuracy) for members, suffix in kinds]
    compared = [one for one in standings if one.method != baseline and to_baseline(one).text]
    if compared:
        sections.append(section(f"difference to {baseline}", compared, to_baseline))
    for members, suffix in kinds:
        if len({one.method for one in members}) > (1 if baseline is None else 2):  # of two, one difference is all
            sections.append(section(f"difference to the best{suffix}", members, _to_best))
            sections.append(section(f"mean rank{suffix}", members, _rank))
    if not all(one.record.on_cluster or one.record.failed for one in standings):
        sections.append(section("seconds per 1000 tasks", standings, _seconds))
    heads = [("", "assumes")] if assumes else []
    heads += [(_group(column, standings), f"{column.n_shot}-shot") for column in columns]
    samplers = dict.fromkeys(column.sampler for column in columns)
    title = describe(standings[0].record.config | {"sampler": " and ".join(samplers)})
    starred = any(entry.text.endswith("*") for part in sections for row in part.rows for entry in row.entries)
    notes = [STARRED] if starred else []
    return Table(title, tuple(heads), tuple(sections), (*notes, *_footnotes(standings, assumptions)))


def seconds_per_thousand(record: Record) -> float:
    """Seconds of prediction for 1000 tasks; NaN for a cell that failed, or ran on the shared workers of a cluster."""
    if not record.accuracies or record.on_cluster:
        return math.nan
    return 1000 * record.seconds / len(record.accuracies)


def _assumptions(standings: Sequence[Standing]) -> dict[str, str]:
    """The words of ``ASSUMPTIONS`` that hold for each method."""
    found: dict[str, set[str]] = {}
    for one in standings:
        held = {"uniform": one.record.uniform, "base": one.record.uses_base, "names": one.record.uses_names}
        found.setdefault(one.method, set()).update(word for word, holds in held.items() if holds)
    return {method: ", ".join(word for word in ASSUMPTIONS if word in words) for method, words in found.items()}


def _footnotes(standings: Sequence[Standing], assumptions: dict[str, str]) -> list[str]:
    """Notes on assumptions, on cells that were stopped, ran on a cluster or failed."""
    notes = [note for word, note in ASSUMPTIONS.items() if any(word in text for text in assumptions.values())]
    stopped = [one.record for one in standings if one.record.limit is not None]
    if stopped:
        notes.append(
            f"(n): stopped by the limit of {max(r.limit or 0 for r in stopped):g} s after n of "
            f"{stopped[0].config['n_tasks']} tasks; differences are on those, and there is no rank."
        )
    if any(one.record.on_cluster for one in standings):
        notes.append("Seconds of cells that ran on a cluster are left out: its workers share machines.")
    for one in standings:
        if one.record.failed is not None:
            cell = f"{one.method} ({one.column.sampler}, {one.column.preprocess}, {one.column.n_shot}-shot)"
            notes.append(f"{cell} failed: {one.record.failed}")
    return notes


def _by_kind(standings: Sequence[Standing]) -> list[tuple[Sequence[Standing], str]]:
    """The cells of each of ``KINDS`` with a suffix for titles; all together where no column has two kinds."""
    parts = {kind: [one for one in standings if one.given == kind] for kind in KINDS}
    columns = [{one.column for one in part} for part in parts.values()]
    if not any(a & b for a, b in itertools.combinations(columns, 2)):
        return [(standings, "")]
    plain = "without base data or names" if parts[False, True] or parts[True, True] else "without base data"
    titles = KINDS | {(False, False): plain}
    return [(part, f", {titles[kind]}") for kind, part in parts.items() if part]


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
    return Entry("" if math.isnan(seconds) else f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2g}")


def _to_baseline(one: Standing, standings: Sequence[Standing], baseline: str | None) -> Estimate | None:
    """The paired difference to the baseline on the same tasks, with base data if this method uses them."""
    rivals = (other for other in standings if other.method == baseline and other.family == one.family)
    partner = next((other.record for other in rivals if other.record.accuracies), None)
    return one.difference_to(partner) if partner is not None and one.record.accuracies else None


def _group(column: Column, standings: Sequence[Standing]) -> str:
    """The preprocessing, by name where all methods of a column have the same; the sampler too, where it varies."""
    used = {one.record.config["preprocess"] for one in standings if one.column == column}
    preprocess = used.pop() if len(used) == 1 else column.preprocess
    several = len({one.column.sampler for one in standings}) > 1
    return f"{column.sampler}, {preprocess}" if several else preprocess
