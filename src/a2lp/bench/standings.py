"""How methods compare on the same tasks; those that use base classes, or class names, apart from the others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from a2lp.bench.protocol import Cell
from a2lp.bench.records import Record
from a2lp.bench.statistics import Estimate, Ranking, holm, mean_ranks, paired_difference, paired_p, ranking

UNKNOWN = Estimate(math.nan, math.nan)


class Column(NamedTuple):
    """What the cells of a column share: the sampler, the requested preprocessing, the number of shots."""

    sampler: str
    preprocess: str
    n_shot: int


class Standing(NamedTuple):
    """One method in one column.

    Attributes
    ----------
    best : Record or None
        The record with the highest mean among its rivals of the same column, all tasks done; may be its own.
    difference : Estimate
        Paired difference to the best, on the tasks that both did.
    p_value : float
        Of that difference, after Holm's correction for all pairs of rivals.
    rank : float
        Mean rank among its rivals over tasks; NaN where it did not do all tasks.

    Examples
    --------
    >>> import a2lp
    >>> found = a2lp.bench.compare("digits", ["prototypical", "lp"], n_shot=5, n_tasks=20)
    >>> sum(standing.rank for standing in found.standings)
    3.0
    """

    column: Column
    record: Record
    best: Record | None = None
    difference: Estimate = UNKNOWN
    p_value: float = math.nan
    rank: float = math.nan

    @property
    def method(self) -> str:
        """The name of the method."""
        return str(self.record.config["method"])

    @property
    def given(self) -> tuple[bool, bool]:
        """What is known beside the task: data of base classes, class names."""
        return self.record.uses_base, self.record.uses_names

    @property
    def family(self) -> tuple[Column, tuple[bool, bool]]:
        """The column, and what is known beside the task: rivals have both in common."""
        return self.column, self.given

    def difference_to(self, other: Record) -> Estimate:
        """Paired difference to another record, on the tasks that both did."""
        return paired_difference(*_shared_tasks(self.record, other))


def rank_methods(cells: Sequence[Cell], records: Sequence[Record]) -> list[Standing]:
    """The standing of each cell, in their order, from the cells' records."""
    standings = []
    for cell, record in zip(cells, records, strict=True):
        config = cell.episodes.config
        standings.append(Standing(Column(config["sampler"], cell.requested_preprocess, config["n_shot"]), record))
    families: dict[tuple[Column, tuple[bool, bool]], list[int]] = {}
    for index, one in enumerate(standings):
        if one.record.accuracies:
            families.setdefault(one.family, []).append(index)
    for indices in families.values():
        for index, one in zip(indices, _rank_rivals([standings[index] for index in indices]), strict=True):
            standings[index] = one
    return standings


def overall_ranking(standings: Iterable[Standing], given: tuple[bool, bool]) -> tuple[list[str], Ranking] | None:
    """The methods of one kind that did every task of every column, ranked; None for fewer than two."""
    records: dict[str, dict[Column, Record]] = {}
    for one in standings:
        if one.given == given and one.record.whole:
            records.setdefault(one.method, {})[one.column] = one.record
    columns = list(dict.fromkeys(column for found in records.values() for column in found))
    methods = [method for method, found in records.items() if len(found) == len(columns)]
    if len(methods) < 2:
        return None
    accuracies = [[a for column in columns for a in records[method][column].accuracies] for method in methods]
    return methods, ranking(np.array(accuracies).T)


def _shared_tasks(one: Record, other: Record) -> tuple[list[float], list[float]]:
    """Accuracies of two records on the tasks that both did, which are the first ones."""
    n = min(len(one.accuracies), len(other.accuracies))
    return one.accuracies[:n], other.accuracies[:n]


def _rank_rivals(rivals: Sequence[Standing]) -> list[Standing]:
    """The methods of one family, each compared with the best of those that did the most tasks."""
    most = max(len(one.record.accuracies) for one in rivals)
    whole = [one for one in rivals if len(one.record.accuracies) == most]
    best = max(whole, key=lambda one: one.record.accuracy.mean)
    pairs = list(itertools.combinations(rivals, 2))
    adjusted = holm([paired_p(*_shared_tasks(a.record, b.record)) for a, b in pairs])
    p_values = {frozenset((a.method, b.method)): p for (a, b), p in zip(pairs, adjusted, strict=True)}
    ranks = mean_ranks(np.array([one.record.accuracies for one in whole]).T)
    rank_of = {one.method: float(rank) for one, rank in zip(whole, ranks, strict=True)}
    return [
        one._replace(
            best=best.record,
            difference=one.difference_to(best.record),
            p_value=p_values.get(frozenset((one.method, best.method)), math.nan),
            rank=rank_of.get(one.method, math.nan),
        )
        for one in rivals
    ]
