"""Memory and time that are told before a pool is made."""

from __future__ import annotations

import numpy as np
import pytest

from a2lp import Pool
from a2lp.errors import InputError
from a2lp.pool import prepare
from a2lp.pool.forecast import forecast


def test_a_pool_that_needs_too_much_is_refused_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "neighbour_whitening", None)
    x = np.lib.stride_tricks.as_strided(np.ones(4, np.float16), (3_000_000, 512), (0, 0))
    with pytest.raises(
        InputError, match=r"3,000,000 points of 512 dimensions takes about .* memory_limit allows 2 GiB"
    ):
        Pool(x, memory_limit=2 << 30)


def test_more_takes_more() -> None:
    small, classes, large = forecast(20_000, 64), forecast(20_000, 64, 200), forecast(2_000_000, 64)
    assert small.n_bytes < classes.n_bytes < large.n_bytes < 16 << 30
    assert small.seconds < classes.seconds < large.seconds
    assert str(large).startswith("about ") and "GiB of memory and " in str(large)
