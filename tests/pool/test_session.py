"""A pool that takes labels one by one gives the answers of one that gets them at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from a2lp import Pool
from a2lp.errors import InputError, ShapeError
from a2lp.pool.methods import choose_weights

N = 300


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    x, truth = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(x))[:N]
    return x[rows].astype(np.float32), truth[rows]


def test_labels_one_by_one_in_bulk_and_back(digits: Any) -> None:
    x, truth = digits
    pool, whole = Pool(x), Pool(x, np.where(np.arange(N) < 40, truth, -1))
    for row in range(20):
        pool.label(row, int(truth[row]))
    pool.label(range(20, 60), truth[20:60])
    pool.label([55, 56], None)
    pool.undo()
    assert pool.given.sum() == 60
    pool.label(slice(40, None), None)
    assert pool.labels.tolist() == [*truth[:40].tolist(), *[None] * (N - 40)]
    np.testing.assert_array_equal(pool.answer.probabilities, whole.answer.probabilities)
    np.testing.assert_array_equal(pool.assessment.probabilities, whole.assessment.probabilities)
    np.testing.assert_array_equal(pool.novelty, whole.novelty)
    np.testing.assert_array_equal(pool.suggest(5).rows, whole.suggest(5).rows)
    assert repr(pool) == "Pool(300 points, 40 labelled: 10 classes)"


changes = st.lists(
    st.tuples(st.lists(st.integers(0, 11), min_size=1, max_size=4, unique=True), st.sampled_from([None, "a", "b"])),
    min_size=1,
    max_size=8,
)


@settings(max_examples=50)
@given(changes=changes)
def test_undo_goes_back_through_any_changes(changes: list[tuple[list[int], str | None]]) -> None:
    pool = Pool(np.eye(12) + 0.5, ["a", "b", *[None] * 10])
    states = [pool.labels.tolist()]
    for rows, label in changes:
        pool.label(rows, label)
        states.append(pool.labels.tolist())
    for state in reversed(states[:-1]):
        pool.undo()
        assert pool.labels.tolist() == state
    with pytest.raises(InputError, match="no change of labels to undo"):
        pool.undo()


def test_answers_are_computed_once_and_again_after_a_change(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, truth = digits
    pool = Pool(x, np.where(np.arange(N) < 30, truth, -1), method="lp")
    first = pool.answer
    assert pool.answer is first and pool.assessment is pool.assessment
    pool.label(100, int(truth[100]))
    assert pool.answer is not first and pool.answer.given[100] and not first.given[100]


def test_weights_are_fitted_again_after_many_single_labels(digits: Any) -> None:
    """A twentieth of the labels may change since the weights were fitted, not since the answer before."""
    x, truth = digits
    pool = Pool(x, np.where(np.arange(N) < 80, truth, -1))
    fitted = pool.answer.task.weights
    for row in range(80, 84):
        pool.label(row, int(truth[row]))
        assert pool.answer.task.weights is fitted
        assert "those of the answer before" in pool.answer.reason
    for row in range(84, 120):
        pool.label(row, int(truth[row]))
        _ = pool.answer
    assert pool.answer.task.weights is not fitted
    fresh = Pool(x, np.where(np.arange(N) < 120, truth, -1))
    np.testing.assert_allclose(pool.answer.probabilities, fresh.answer.probabilities, atol=0.1)
    # a new class has no weights yet
    pool.label(200, 99)
    expected, _ = choose_weights(pool.answer.task)
    np.testing.assert_array_equal(pool.answer.task.weights, expected)


def test_what_cannot_be_labelled(digits: Any) -> None:
    pool = Pool(digits[0], [1, 2, *[None] * (N - 2)])
    before = pool.labels.tolist()
    for rows, labels, error, words in (
        (N, 1, InputError, "300 points, 0 to 299"),
        ("auk", 1, InputError, "rows='auk'"),
        ([0, 1], [1, 2, 3], ShapeError, r"labels has shape \(3,\) and 2 points"),
        (5, "auk", InputError, "number and str"),
        (5, 0.5, InputError, "continuous"),
    ):
        with pytest.raises(error, match=words):
            pool.label(rows, labels)
        assert pool.labels.tolist() == before
    with pytest.raises(InputError, match="none of the 300 points is labelled"):
        _ = Pool(digits[0]).answer
    with pytest.raises(InputError, match="n_samples=1"):
        Pool(np.ones((1, 3)))


def test_how_labels_were_chosen():
    x, truth = load_digits(return_X_y=True)
    pool = Pool(x[:200], [*truth[:10], *[-1] * 190], how="random")
    pool.label([20, 21], truth[20:22], ["suggested", "audit"])
    pool.label(5, None)
    assert pool.how[[0, 5, 20, 21, 30]].tolist() == ["random", "", "suggested", "audit", ""]
    before = pool.assessment.accuracy
    pool.label(slice(0, 22), truth[:22], "suggested")
    assert set(pool.how[:22]) == {"suggested"}
    pool.undo()
    pool.undo()
    assert pool.how[[0, 5, 20, 21]].tolist() == ["random", "random", "suggested", "audit"]
    pool.label(5, None)
    assert pool.assessment.accuracy == before
    with pytest.raises(InputError, match="how='guessed' is none of"):
        pool.label(1, 1, "guessed")
    with pytest.raises(ShapeError, match="how has shape"):
        pool.label([1, 2], 1, ["audit"])
