"""The exact interval of an audit."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from a2lp.serve.summary import exact_interval


@pytest.mark.parametrize(("right", "n"), [(0, 0), (0, 7), (7, 7), (1, 50), (43, 50), (999, 1000)])
def test_it_is_clopper_and_pearsons(right, n):
    low, high = exact_interval(right, n)
    if n == 0:
        assert (low, high) == (0, 1)
    else:
        expected = binomtest(right, n).proportion_ci(method="exact")
        assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)
