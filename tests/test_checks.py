"""Values in error messages: plain numbers, and only the beginning and the end of long ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import a2lp
from a2lp.checks import shown
from a2lp.errors import UnknownNameError

X = np.random.default_rng(0).random((12, 4))
MISTAKES: dict[str, Callable[[], object]] = {
    "a parameter": lambda: a2lp.create("lp", n_neighbors=np.int64(-5)),
    "a number that is no name": lambda: a2lp.create("lp", preprocess=np.int64(5)),
    "NumPy's text": lambda: a2lp.create(np.str_("l")),
    "a size": lambda: a2lp.draw("balanced", np.repeat(np.arange(3), 4), seed=0, n_way=np.int64(5), n_query=1),
    "a class": lambda: a2lp.draw("balanced", np.repeat(np.arange(3), 4), seed=0, n_way=2, n_shot=np.int64(9)),
    "a key": lambda: a2lp.label(X, {np.int64(99): 1, np.int64(0): 2}),
    "one class": lambda: a2lp.label(X, {0: np.int64(5), 1: np.int64(5)}),
    "a row": lambda: a2lp.TaskList(np.array([[0, 1]]), [[0, 1]], np.array([[np.int64(1)]]), [[0]]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_numbers_of_numpy_are_plain(mistake: str) -> None:
    with pytest.raises(a2lp.A2LPError) as caught:
        MISTAKES[mistake]()
    assert "np." not in str(caught.value) and "int64" not in str(caught.value), caught.value


def test_long_values_are_cut() -> None:
    long = "x" * 10**6
    assert len(shown(long)) < 200 and len(shown([long])) < 200
    message = str(UnknownNameError("method", long, ["lp"]))
    assert len(message) < 200 and f"'{'x' * 80}'." in message
    with pytest.raises(a2lp.A2LPError) as caught:
        a2lp.create("lp", alpha=long)
    assert len(str(caught.value)) < 300
