from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from a2lp.bench.statistics import estimate, paired_difference
from a2lp.errors import ShapeError


def test_interval_is_that_of_the_paper():
    values = np.random.default_rng(0).uniform(20, 100, 1000).tolist()
    mean, ci95 = estimate(values)
    assert mean == pytest.approx(np.mean(values))
    low, high = scipy.stats.norm.interval(0.95, np.mean(values), scipy.stats.sem(values))
    assert ci95 == pytest.approx((high - low) / 2, rel=1e-4)  # 1.96 is rounded


def test_one_task_has_no_interval():
    assert estimate([50.0]).mean == 50.0
    assert math.isnan(estimate([50.0]).ci95)


def test_pairing_removes_what_tasks_share():
    rng = np.random.default_rng(1)
    hard = rng.normal(70, 15, 500)
    a, b = hard + rng.normal(2, 1, 500), hard + rng.normal(0, 1, 500)
    mean, ci95 = paired_difference(a.tolist(), b.tolist())
    assert mean == pytest.approx(a.mean() - b.mean())
    assert ci95 < 0.2 * estimate(a.tolist()).ci95


def test_other_tasks_cannot_be_paired():
    with pytest.raises(ShapeError, match="3 tasks cannot be paired with 2"):
        paired_difference([1.0, 2.0, 3.0], [1.0, 2.0])
