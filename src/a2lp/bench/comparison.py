"""Who is ahead, by how much, and whether that can be told: methods compared on the same tasks.

Methods that use data of the base classes are compared with each other, and those that do without with each other:
the two answer different questions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from a2lp.bench.protocol import Cell
from a2lp.bench.records import Record
from a2lp.bench.statistics import Estimate, Ranking, holm, mean_ranks, paired_difference, paired_p, ranking

NOTHING = Estimate(math.nan, math.nan)


class Column(NamedTuple):
    """What the methods of a comparison share: how tasks were drawn, preprocessing as it was asked for, shots."""

    sampler: str
    preprocess: str
    n_shot: int


class Standing(NamedTuple):
    """One method in one column.

    Attributes
    ----------
    best : Record or None
        The record of the highest mean among its rivals of the same column, all tasks done; may be its own.
    difference : Estimate
        Paired difference to the best, on the tasks that both did.
    p_value : float
        Of that difference, after Holm's correction for all pairs of rivals: the best was chosen by looking.
    rank : float
        Mean rank among its rivals over tasks; NaN where it did not do all tasks.
    """

    column: Column
    record: Record
    best: Record | None = None
    difference: Estimate = NOTHING
    p_value: float = math.nan
    rank: float = math.nan

    @property
    def method(self) -> str:
        """Its name."""
        return str(self.record.config["method"])

    @property
    def family(self) -> tuple[Column, bool]:
        """Whom it is compared with."""
        return self.column, self.record.uses_base


def compare(cells: Sequence[Cell], records: Sequence[Record]) -> list[Standing]:
    """What the records of some cells say about their methods, in the order of the cells."""
    placed = [Standing(_column(cell), record) for cell, record in zip(cells, records, strict=True)]
    families: dict[tuple[Column, bool], list[Record]] = {}
    for one in placed:
        if one.record.accuracies:
            families.setdefault(one.family, []).append(one.record)
    judged = {family: _judge(rivals) for family, rivals in families.items()}
    return [_standing(one, judged.get(one.family)) for one in placed]


def common(one: Record, other: Record) -> tuple[list[float], list[float]]:
    """Accuracies of two records on the tasks that both did: the first ones."""
    n = min(len(one.accuracies), len(other.accuracies))
    return one.accuracies[:n], other.accuracies[:n]


def overall(standings: Iterable[Standing], uses_base: bool) -> tuple[list[str], Ranking] | None:
    """The methods of one kind that did all tasks of all columns, ranked over them all; None for fewer than two."""
    records: dict[str, dict[Column, Record]] = {}
    for one in standings:
        if one.record.uses_base == uses_base and one.record.whole:
            records.setdefault(one.method, {})[one.column] = one.record
    columns = list(dict.fromkeys(column for found in records.values() for column in found))
    methods = [method for method, found in records.items() if len(found) == len(columns)]
    if len(methods) < 2:
        return None
    accuracies = [[a for column in columns for a in records[method][column].accuracies] for method in methods]
    return methods, ranking(np.array(accuracies).T)


class _Judgement(NamedTuple):
    best: Record
    p_values: dict[str, float]  # to the best, by method
    ranks: dict[str, float]


def _column(cell: Cell) -> Column:
    config = cell.episodes.config
    return Column(config["sampler"], cell.asked, config["n_shot"])


def _judge(rivals: Sequence[Record]) -> _Judgement:
    most = max(len(record.accuracies) for record in rivals)
    whole = [record for record in rivals if len(record.accuracies) == most]
    best = max(whole, key=lambda record: record.accuracy.mean)
    pairs = list(itertools.combinations(rivals, 2))
    adjusted = holm([paired_p(*common(a, b)) for a, b in pairs])
    p_values = {
        (a if b is best else b).config["method"]: p
        for (a, b), p in zip(pairs, adjusted, strict=True)
        if a is best or b is best
    }
    ranks = mean_ranks(np.array([record.accuracies for record in whole]).T)
    names = [record.config["method"] for record in whole]
    return _Judgement(best, p_values, dict(zip(names, map(float, ranks), strict=True)))


def _standing(one: Standing, judged: _Judgement | None) -> Standing:
    if judged is None or not one.record.accuracies:
        return one
    return one._replace(
        best=judged.best,
        difference=paired_difference(*common(one.record, judged.best)),
        p_value=judged.p_values.get(one.method, math.nan),
        rank=judged.ranks.get(one.method, math.nan),
    )
