"""How many points belong to classes without a label."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2lp.pool.unseen import spread, unseen_mass


def mass(labels, how):
    """Of labels such as "aab", all chosen in one way or each in its own."""
    codes = np.unique(list(labels), return_inverse=True)[1]
    words = [how] * len(labels) if isinstance(how, str) else how
    return unseen_mass(np.append(codes, [-1] * 5), np.array([*words, *[""] * 5], dtype=object))


@pytest.mark.parametrize("n_classes", [10, 25, 50])
def test_random_labels_tell_how_much_is_unknown(n_classes):
    found, true = [], []
    for seed in range(200):
        codes = np.random.default_rng(seed).integers(n_classes, size=30)
        mean, variance = mass(codes, "random")
        found.append((mean, np.sqrt(variance)))
        true.append(1 - len(set(codes)) / n_classes)
    off = np.array(true) - [mean for mean, _ in found]
    assert abs(off.mean()) < 0.03
    assert np.mean(np.abs(off) <= 2 * np.array([sd for _, sd in found]) + 1e-9) >= 0.9


def test_labels_that_the_user_chose():
    assert mass("aabbcc", "") == mass("abc", "") == mass("aaabbccc", "") == (0, 0)  # class by class
    assert mass("aaaabc", "") == mass("aaaabc", "random")  # not so
    assert mass("aaaabc", "")[0] == pytest.approx((2 * 0.3 + 0.15) / (6 * 0.3 + 0.15))
    mean, variance = mass("aabcde", "")  # may be either
    random = mass("aabcde", "random")[0]
    assert 0 < mean < random / 4  # it is less likely to be random
    assert mean + 2 * np.sqrt(variance) > 0.9 * random  # but cannot be excluded
    assert mass("aabbccddeeffgghhij", "")[0] < 0.01  # random draws would have met one three times


def test_suggested_labels_and_audits():
    alone, _ = mass("abcdefgh", "suggested")
    assert 0.4 < alone < 0.7
    assert mass("aabbccdd" * 5, "suggested")[0] < 0.05
    # an audit that finds a class which suggestions have missed says more than they do
    labels, how = "aabbccdd" * 2 + "xyzab", ["suggested"] * 16 + ["audit"] * 5
    assert mass(labels, how)[0] > 2 * mass(labels, "suggested")[0]


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 60), st.floats(0, 0.9), st.floats(0, 0.5), st.integers(0, 99))
def test_spread_has_the_mass_and_follows_novelty(n, share, cut, seed):
    rng = np.random.default_rng(seed)
    novelty, reached = rng.permutation(n) / n + 1 / n, rng.random(n) >= cut
    found = spread(share, novelty, reached)
    assert ((found >= 0) & (found <= 0.95)).all()
    np.testing.assert_array_equal(found[~reached], 0.95)
    assert found.mean() == pytest.approx(max(share, 0.95 * (~reached).mean()), abs=1e-6)
    assert (np.diff(found[reached][np.argsort(novelty[reached])]) >= 0).all()
