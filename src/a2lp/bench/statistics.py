"""Means over tasks with their intervals, paired differences, and tests for many comparisons at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc, stdtr

from a2lp.errors import ShapeError

Values = Sequence[float]
Matrix = np.ndarray[Any, Any]


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
    """Mean of the per-task differences to a baseline that ran on the same tasks.

    The interval is that of the differences: tasks that are hard for both cancel out, so it is usually narrower
    than the intervals of the two means suggest.
    """
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
    """Holm's step-down correction: each below 0.05 may be believed, and all of them together.

    The smallest of m is multiplied by m, the next by m - 1 and so on, none below the one before it, none above 1.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(raised, 1.0)
    return [float(value) for value in adjusted]


class Ranking(NamedTuple):
    """Methods ranked on each of many tasks, 1 being the best and equals sharing their places.

    Attributes
    ----------
    ranks : array (k,)
        Mean rank of each method.
    p_value : float
        Friedman's: how likely ranks so far apart are if all methods are equal.
    critical_difference : float
        Nemenyi's: mean ranks that are further apart than this differ, at 5 % for all pairs together.
    n : int
        How many tasks.
    """

    ranks: Matrix
    p_value: float
    critical_difference: float
    n: int


def mean_ranks(accuracies: Matrix) -> Matrix:
    """The mean rank of each of k methods over n tasks, from accuracies (n, k)."""
    from scipy.stats import rankdata

    ranks: Matrix = rankdata(-np.asarray(accuracies), axis=1).mean(axis=0)
    return ranks


def ranking(accuracies: Matrix) -> Ranking:
    """Mean ranks of methods with the tests of Friedman and Nemenyi, as Demsar (JMLR 2006) has them.

    Parameters
    ----------
    accuracies : array (n, k)
        Of k methods, two or more, on the same n tasks. Tasks are taken to be independent draws.
    """
    from scipy.stats import rankdata, studentized_range

    each = rankdata(-np.asarray(accuracies), axis=1)
    n, k = each.shape
    ranks = each.mean(axis=0)
    # with ties the ranks of a task vary less than those of 1 to k do
    variance = ((each - (k + 1) / 2) ** 2).sum() / (k - 1)
    statistic = n * n * ((ranks - (k + 1) / 2) ** 2).sum() / variance if variance > 0 else 0.0
    q = float(studentized_range.ppf(0.95, k, np.inf)) / math.sqrt(2)
    return Ranking(ranks, float(chdtrc(k - 1, statistic)), q * math.sqrt(k * (k + 1) / (6 * n)), n)
