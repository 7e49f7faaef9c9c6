from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from a2lp.bench.statistics import estimate, holm, mean_ranks, paired_difference, paired_p, ranking
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


def test_p_values_are_scipys():
    rng = np.random.default_rng(2)
    a, b = rng.normal(70, 5, 30), rng.normal(71, 5, 30)
    assert paired_p(a, b) == pytest.approx(scipy.stats.ttest_rel(a, b).pvalue, rel=1e-9)
    assert paired_p([1.0, 2.0], [1.0, 2.0]) == paired_p([1.0], [0.0]) == 1
    assert paired_p([1.0, 2.0], [0.0, 1.0]) == 0


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])  # 0.04 * 1 is below 0.03 * 2
    assert holm([0.5, 0.9]) == [1, 1]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


def test_friedman_is_scipys_and_nemenyi_is_the_tables():
    rng = np.random.default_rng(3)
    accuracies = rng.integers(0, 6, (50, 4)) + np.array([0, 0, 1, 2])  # with ties
    found = ranking(accuracies)
    assert found.p_value == pytest.approx(scipy.stats.friedmanchisquare(*accuracies.T).pvalue, rel=1e-9)
    assert found.ranks.argmin() == 3
    assert found.ranks.sum() == pytest.approx(4 * 5 / 2)
    np.testing.assert_array_equal(found.ranks, mean_ranks(accuracies))
    # Demsar's table of q at 0.05: 2.569 for four methods, 3.164 for ten
    assert found.critical_difference == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 50)), rel=1e-3)
    ten = ranking(rng.random((30, 10)))
    assert ten.critical_difference == pytest.approx(3.164 * math.sqrt(10 * 11 / (6 * 30)), rel=1e-3)
    assert ranking(np.ones((5, 3))).p_value == 1
