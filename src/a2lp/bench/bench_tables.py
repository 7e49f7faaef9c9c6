"""A comparison as a table for reading, and as flat rows for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from a2lp.bench.comparison import NOTHING, Column, Standing, common
from a2lp.bench.records import Record
from a2lp.bench.statistics import Estimate, paired_difference
from a2lp.bench.tables import Block, Entry, Row, Table, describe, plain_row, plus_minus

LEVEL = 0.05  # a difference is told apart below this p-value

STARRED = (
    "* differs from the best of its column: paired t-test over tasks, Holm's correction for all pairs of methods of "
    "the column."
)
ACCURACY = "accuracy, %"
WITHOUT, WITH = ", without base data", ", with base data"


def choose_baseline(methods: Sequence[str], asked: str | None = None) -> str:
    """The method that differences are taken to: the one asked for, else ``lp``, else the first."""
    return asked or ("lp" if "lp" in methods else methods[0])


def bench_rows(standings: Sequence[Standing], baseline: str | None = None) -> list[Row]:
    """One flat row for each cell: accuracy, differences to the best and to a baseline, rank, seconds, assumptions."""
    return [_bench_row(one, _partner(one, standings, baseline)) for one in standings]


def bench_table(standings: Sequence[Standing], baseline: str | None = None) -> Table:
    """Rows are methods, columns are shots, grouped by how tasks were drawn and by preprocessing.

    Parameters
    ----------
    standings : sequence of Standing
        From ``compare``.
    baseline : str, optional
        A method that differences are taken to as well.
    """
    columns = list(dict.fromkeys(one.column for one in standings))
    kinds = _kinds(standings)
    blocks = [_block(f"{ACCURACY}{suffix}", columns, _shown(members, _accuracy)) for members, suffix in kinds]
    if baseline is not None:
        partners = [(one, _partner(one, standings, baseline)) for one in standings if one.method != baseline]
        entries = [(one, Entry(_signed(_to(one, other)))) for one, other in partners if other is not None]
        blocks += [_block(f"difference to {baseline}", columns, entries)] if entries else []
    for members, suffix in kinds:
        if len({one.method for one in members}) > (1 if baseline is None else 2):  # of two, one difference is all
            blocks.append(_block(f"difference to the best{suffix}", columns, _shown(members, _to_best)))
            blocks.append(_block(f"mean rank{suffix}", columns, _shown(members, _rank)))
    blocks.append(_block("seconds per 1000 tasks", columns, _shown(standings, _seconds)))
    heads = [(_group(column, standings), f"{column.n_shot}-shot") for column in columns]
    notes = {one.method: method_notes(standings, one.method) for one in standings}
    if any(notes.values()):
        heads.insert(0, ("", "assumes"))
        blocks = [_noted(block, notes) for block in blocks]
    samplers = list(dict.fromkeys(column.sampler for column in columns))
    title = describe(standings[0].record.config | {"sampler": " and ".join(samplers)})
    starred = any(entry.text.endswith("*") for block in blocks for _, entries in block.rows for entry in entries)
    return Table(title, tuple(heads), tuple(blocks), tuple(([STARRED] if starred else []) + footnotes(standings)))


def method_notes(standings: Sequence[Standing], method: str) -> str:
    """What a method assumes: ``uniform`` (equally many queries of each class), ``base`` (data of the base classes)."""
    records = [one.record for one in standings if one.method == method]
    found = {"uniform": any(r.uniform for r in records), "base": any(r.uses_base for r in records)}
    return ", ".join(name for name, holds in found.items() if holds)


def footnotes(standings: Sequence[Standing]) -> list[str]:
    """What a reader must know beside the numbers: assumptions, cells that were stopped, cells that failed."""
    notes = []
    noted = {word for one in standings for word in method_notes(standings, one.method).split(", ")}
    if "uniform" in noted:
        notes.append("uniform: takes every class to have equally many queries, which balanced tasks have.")
    if "base" in noted:
        notes.append("base: uses data of the base classes; compared with others that do, not with those that do not.")
    stopped = [one.record for one in standings if one.record.limit is not None]
    if stopped:
        notes.append(
            f"(n): stopped by the limit of {max(r.limit or 0 for r in stopped):g} s after n of "
            f"{stopped[0].config['n_tasks']} tasks; differences are on those, and there is no rank."
        )
    notes += [f"{_where(one)} failed: {one.record.failed}" for one in standings if one.record.failed is not None]
    return notes


def _kinds(standings: Sequence[Standing]) -> list[tuple[list[Standing], str]]:
    """Those without base data and those with, apart; all together where no column has both."""
    apart: dict[bool, list[Standing]] = {False: [], True: []}
    for one in standings:
        apart[one.record.uses_base].append(one)
    shared = {one.column for one in apart[False]} & {one.column for one in apart[True]}
    if not shared:
        return [(list(standings), "")]
    return [(apart[False], WITHOUT), (apart[True], WITH)]


def _shown(members: Sequence[Standing], show: Callable[[Standing], Entry]) -> list[tuple[Standing, Entry]]:
    return [(one, show(one)) for one in members]


def _block(title: str, columns: Sequence[Column], entries: Sequence[tuple[Standing, Entry]]) -> Block:
    """One row for each method; empty where it has nothing in a column."""
    placed = {(one.method, one.column): entry for one, entry in entries}
    methods = dict.fromkeys(one.method for one, _ in entries)
    return Block(title, tuple((m, tuple(placed.get((m, c), Entry("")) for c in columns)) for m in methods))


def _noted(block: Block, notes: dict[str, str]) -> Block:
    """A block with a first column that says what methods assume, beside their accuracies."""
    shown = notes if block.title.startswith(ACCURACY) else {}
    return Block(block.title, tuple((m, (Entry(shown.get(m, "")), *entries)) for m, entries in block.rows))


def _accuracy(one: Standing) -> Entry:
    record = one.record
    if record.failed is not None:
        return Entry("failed")
    count = "" if record.whole else f" ({len(record.accuracies)})"
    return Entry(plus_minus(*record.accuracy) + count, one.best is not None and record.accuracy.mean == _highest(one))


def _highest(one: Standing) -> float:
    """The mean of the best, which only those who did all tasks can share."""
    assert one.best is not None
    return one.best.accuracy.mean if len(one.record.accuracies) == len(one.best.accuracies) else math.nan


def _to_best(one: Standing) -> Entry:
    if one.best is None:
        return Entry("")
    if one.best is one.record:
        return Entry("best")
    return Entry(_signed(one.difference) + ("*" if one.p_value < LEVEL else ""))


def _rank(one: Standing) -> Entry:
    return Entry("" if math.isnan(one.rank) else f"{one.rank:.2f}")


def _seconds(one: Standing) -> Entry:
    seconds = per_thousand(one.record)
    if math.isnan(seconds):
        return Entry("")
    return Entry(f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2g}")


def per_thousand(record: Record) -> float:
    """Seconds of prediction for 1000 tasks; NaN for a cell that failed."""
    return 1000 * record.seconds / len(record.accuracies) if record.accuracies else math.nan


def _signed(difference: Estimate) -> str:
    return plus_minus(*difference, sign=True)


def _to(one: Standing, other: Record) -> Estimate:
    return paired_difference(*common(one.record, other))


def _partner(one: Standing, standings: Sequence[Standing], baseline: str | None) -> Record | None:
    """The baseline's record on the same tasks, and with base data if this one has them."""
    for other in standings:
        if (
            other.method == baseline
            and other.family == one.family
            and other.record.accuracies
            and one.record.accuracies
        ):
            return other.record
    return None


def _group(column: Column, standings: Sequence[Standing]) -> str:
    """The preprocessing, by name where all methods of a column have the same; how tasks were drawn, where it varies."""
    used = {one.record.config["preprocess"] for one in standings if one.column == column}
    preprocess = used.pop() if len(used) == 1 else column.preprocess
    several = len({one.column.sampler for one in standings}) > 1
    return f"{column.sampler}, {preprocess}" if several else preprocess


def _where(one: Standing) -> str:
    return f"{one.method} ({one.column.sampler}, {one.column.preprocess}, {one.column.n_shot}-shot)"


def _bench_row(one: Standing, partner: Record | None) -> Row:
    difference = NOTHING if partner is None else _to(one, partner)
    return plain_row(one.record) | {
        "baseline": None if partner is None else partner.config["method"],
        "difference": difference.mean,
        "difference_ci95": difference.ci95,
        "best": None if one.best is None else one.best.config["method"],
        "difference_to_best": one.difference.mean,
        "difference_to_best_ci95": one.difference.ci95,
        "p_holm": one.p_value,
        "rank": one.rank,
        "seconds_per_1000": per_thousand(one.record),
        "uniform": one.record.uniform,
        "uses_base": one.record.uses_base,
        "failed": one.record.failed,
    }
