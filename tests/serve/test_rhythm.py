"""How often full answers are asked for."""

from __future__ import annotations

from itertools import pairwise

import pytest

from a2lp.serve.rhythm import Rhythm


def asked(times: list[float]) -> list[float]:
    """When answers are asked for, if labels come at these times."""
    rhythm, found = Rhythm(), []
    due = float("inf")
    for now in [*times, float("inf")]:
        if due <= now and due < float("inf"):
            rhythm.asked(due)
            found.append(due)
        if now < float("inf"):
            due = now + rhythm.labelled(now)
    return found


def test_a_label_is_answered_soon_and_so_is_each_of_those_that_wait_for_their_answers():
    assert asked([10.0]) == pytest.approx([10.15])
    assert asked([10.0, 10.3, 10.6]) == pytest.approx([10.15, 10.45, 10.75])


@pytest.mark.parametrize("apart", [0.05, 0.1, 0.2])
def test_twenty_labels_in_quick_succession_are_answered_together(apart):
    times = [10 + apart * i for i in range(20)]
    found = asked(times)
    assert len(found) <= 3 and found[-1] <= times[-1] + 0.25
    assert max(b - a for a, b in pairwise([times[0], *found])) <= 2.25  # and still every two seconds


def test_the_last_label_is_always_answered():
    for n in range(1, 40):
        times = [10 + 0.13 * i for i in range(n)]
        assert times[-1] < asked(times)[-1] <= times[-1] + 0.25
