"""Answers that are ended on the way, and weights that are chosen anew."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from a2lp import Pool

X, Y = load_digits(return_X_y=True)
X, Y = X[:400], Y[:400]


class Enough(Exception):
    pass


def test_an_answer_can_be_ended_between_its_steps_and_asked_for_again():
    pool = Pool(X, np.where(np.arange(400) < 80, Y, -1))
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise Enough

    pool.check = check
    with pytest.raises(Enough):
        _ = pool.answer
    found = pool.answer
    # three folds and the answer itself, each with the models and three rounds of em
    assert calls > 4 + 4 * 4
    assert (found.probabilities == Pool(X, np.where(np.arange(400) < 80, Y, -1)).answer.probabilities).all()


def test_refit_gives_the_answer_of_a_new_pool():
    pool = Pool(X, np.where(np.arange(400) < 80, Y, -1))
    first = pool.answer
    pool.refit()
    assert pool.answer is first  # its weights are of these labels already
    pool.label(90, Y[90])
    assert "before" in pool.answer.reason
    pool.refit()
    new = Pool(X, pool.labels).answer
    assert (pool.answer.probabilities == new.probabilities).all() and "before" not in pool.answer.reason


def test_a_patient_pool_fits_no_weights_between_a_label_and_its_answer():
    pool = Pool(X, np.where(np.arange(400) < 80, Y, -1))
    pool.patient = True
    weights = pool.answer.task.weights
    pool.label(np.arange(80, 120), Y[80:120])  # half as many again: a pool that is not patient would fit them anew
    assert (pool.answer.task.weights == weights).all()
    pool.refit()
    assert (pool.answer.probabilities == Pool(X, pool.labels).answer.probabilities).all()


def test_a_refit_that_is_ended_costs_the_next_answer_nothing():
    pool = Pool(X, np.where(np.arange(400) < 80, Y, -1))
    pool.patient = True
    _ = pool.answer
    pool.label(np.arange(80, 120), Y[80:120])
    before = pool.answer

    def check() -> None:
        raise Enough

    pool.check = check
    with pytest.raises(Enough):
        pool.refit()
    assert pool.answer is before
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    pool.check = count
    pool.label(120, Y[120])
    _ = pool.answer
    assert calls < 2 * 5  # one answer: the models and three rounds of em, no folds
