"""Means over tasks with confidence intervals, paired differences, and tests for multiple comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, stdtr

from a2lp.arrays import NDArray
from a2lp.errors import ShapeError

Values = Sequence[float]
Matrix = NDArray


class Estimate(NamedTuple):
    """A mean over tasks and the half width of its 95 % interval (NaN for a single task)."""

    mean: float
    ci95: float


def estimate(values: Values) -> Estimate:
    """The mean of per-task values and 1.96 s / sqrt(n), as few-shot papers report it; NaN without values."""
    n = len(values)
    if n == 0:
        return Estimate(math.nan, math.nan)
    ci95 = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Estimate(float(np.mean(values)), ci95)


def paired_difference(values: Values, baseline: Values) -> Estimate:
    """The mean of the per-task differences to a baseline on the same tasks, with the interval of the differences."""
    if len(values) != len(baseline):
        raise ShapeError(
            f"{len(values)} tasks cannot be paired with {len(baseline)}; a paired difference needs the same tasks in "
            "the same order. Run both methods on one task list."
        )
    return estimate([a - b for a, b in zip(values, baseline, strict=True)])


def paired_p(values: Values, baseline: Values) -> float:
    """The two-sided p-value of the paired t-test; 1 where the two never differ, or there is one task."""
    differences = np.subtract(values, baseline)
    n = len(differences)
    spread = float(np.std(differences, ddof=1)) if n > 1 else 0.0
    if spread == 0:
        return 1.0 if n < 2 or differences[0] == 0 else 0.0
    t = float(np.mean(differences)) / (spread / math.sqrt(n))
    return float(2 * stdtr(n - 1, -abs(t)))


def holm(p_values: Values) -> list[float]:
    """P-values after Holm's step-down correction, which controls the family-wise error rate."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return list(adjusted.tolist())


class Ranking(NamedTuple):
    """Methods ranked on each of many tasks; rank 1 is the best, and ties share the mean of their ranks."""

    ranks: Matrix  # (k,) mean rank of each method
    p_value: float  # of Friedman's test that all methods are equal
    critical_difference: float  # Nemenyi's, of mean ranks, at 5 % for all pairs together
    n: int  # tasks


def mean_ranks(accuracies: Matrix) -> Matrix:
    """The mean rank of each of k methods over n tasks, from accuracies (n, k)."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(-np.asarray(accuracies), axis=1).mean(axis=0))


def ranking(accuracies: Matrix) -> Ranking:
    """Friedman's and Nemenyi's tests (Demsar, JMLR 2006) of k >= 2 methods on n independent tasks, (n, k)."""
    from scipy.stats import rankdata, studentized_range

    each = rankdata(-np.asarray(accuracies), axis=1)
    n, k = each.shape
    ranks = each.mean(axis=0)
    # not that of the numbers 1 to k: with ties, the ranks of a task vary less
    variance = ((each - (k + 1) / 2) ** 2).sum() / (k - 1)
    statistic = n * n * ((ranks - (k + 1) / 2) ** 2).sum() / variance if variance > 0 else 0.0
    q = float(studentized_range.ppf(0.95, k, np.inf)) / math.sqrt(2)
    return Ranking(ranks, float(chdtrc(k - 1, statistic)), q * math.sqrt(k * (k + 1) / (6 * n)), n)
