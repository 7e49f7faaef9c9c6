"""Means over tasks, and the intervals that belong to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from a2lp.errors import ShapeError

Values = Sequence[float]


class Estimate(NamedTuple):
    """A mean over tasks and the half width of its 95 % interval (NaN for a single task)."""

    mean: float
    ci95: float


def estimate(values: Values) -> Estimate:
    """The mean of per-task values and 1.96 s / sqrt(n), as few-shot papers report it."""
    n = len(values)
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
