"""What answers are said to be worth, against the truth."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs

from a2lp.pool.confidence import assess
from a2lp.pool.held_out import draw_folds, predict_held_out
from a2lp.pool.prepare import whitened_graph
from a2lp.pool.session import Pool


@pytest.fixture(scope="module")
def digits():
    x, truth = load_digits(return_X_y=True)
    rows = np.random.default_rng(1).permutation(len(x))[:700]
    return whitened_graph(x[rows].astype(np.float32)), truth[rows]


def some_labels(truth, per_class, seed):
    rng = np.random.default_rng(seed)
    labels = np.full(len(truth), -1)
    for value in np.unique(truth):
        labels[rng.choice(np.flatnonzero(truth == value), per_class, replace=False)] = value
    return labels


def calibration_error(confidence, right):
    place = np.minimum((confidence * 10).astype(int), 9)
    gaps = [abs(confidence[place == b].sum() - right[place == b].sum()) for b in range(10)]
    return sum(gaps) / len(right)


@pytest.mark.parametrize(("per_class", "bias", "width"), [(1, 0.15, 0.45), (2, 0.10, 0.35), (5, 0.06, 0.25)])
def test_the_interval_holds_the_truth(digits, per_class, bias, width, answer):
    prepared, truth = digits
    off, inside, errors = [], [], []
    for seed in range(6):
        made = answer(prepared, some_labels(truth, per_class, seed))
        found = assess(made)
        new = ~made.given
        right = made.labels[new] == truth[new]
        assert found.low < found.accuracy < found.high
        assert found.high - found.low < width
        np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, atol=1e-4)
        confidence = found.probabilities[new].max(axis=1)
        assert confidence.mean() == pytest.approx(found.accuracy, abs=0.005)
        np.testing.assert_array_equal(found.probabilities.argmax(axis=1), made.probabilities.argmax(axis=1))
        off.append(found.accuracy - right.mean())
        inside.append(found.low <= right.mean() <= found.high)
        errors.append(calibration_error(confidence, right))
    assert abs(np.mean(off)) < bias
    assert sum(inside) >= 5
    assert per_class < 5 or np.mean(errors) < 0.08


def test_suggested_labels_are_not_taken_for_random_ones(digits):
    (_, points, _), truth = digits
    pool = Pool(points)
    while pool.given.sum() < 120:
        found = pool.suggest(20)
        pool.label(found.rows, truth[found.rows], found.how)
    right = (pool.answer.labels == truth)[~pool.given].mean()
    worth = pool.assessment
    held_out = worth.held_out_probabilities.argmax(axis=1) == pool.answer.task.codes[worth.held_out_rows]
    assert held_out.mean() < right - 0.15  # they are difficult
    assert worth.low <= right <= worth.high
    assert worth.accuracy > assess(pool.answer).accuracy  # where it is not known that they were suggested


def test_kinds_without_a_label():
    centres = 20 * np.eye(4, 6)
    x, truth = make_blobs([200] * 4, centers=centres, random_state=0)
    labels = np.full(800, -1)
    for kind in (0, 1):
        labels[np.flatnonzero(truth == kind)[:3]] = kind
    pool = Pool(x, labels)
    worth, new = pool.assessment, ~pool.given
    confidence = worth.probabilities.max(axis=1)
    assert not pool.answer.reached[truth > 1].any()
    assert confidence[truth > 1].max() < 0.1 < 0.8 < confidence[truth < 2].min()
    assert worth.unseen == pytest.approx(0.5, abs=0.05)
    assert worth.low <= (pool.answer.labels == truth)[new].mean() <= worth.high


def test_some_of_the_points(digits, answer):
    prepared, truth = digits
    made = answer(prepared, some_labels(truth, 5, 0))
    found = assess(made)
    assert found.of(~made.given) == found.of(slice(None)) == (found.accuracy, found.low, found.high)
    confidence = np.where(made.given, -1, found.probabilities.max(axis=1))
    order = np.argsort(-confidence, kind="stable")[: int((~made.given).sum())]
    for target in (0.9, 0.95, 0.99):
        kept = found.reaching(target)
        most = max(k for k in range(len(order) + 1) if k == 0 or confidence[order[:k]].mean() >= target)
        assert kept.sum() == pytest.approx(most, abs=1)
        assert found.of(kept).accuracy >= target
        assert (made.labels == truth)[kept].mean() > target - 0.05
        few = found.reaching(target, np.arange(len(truth)) % 2 == 0)
        assert few.any() and not few[1::2].any()
    assert not found.reaching(1).any()


def test_no_answer_is_promised_from_noise(answer):
    rng = np.random.default_rng(0)
    x, truth = rng.normal(size=(300, 20)), rng.integers(3, size=300)
    found = assess(answer(x, np.where(np.arange(300) < 90, truth, -1)))
    assert found.low < 1 / 3 < found.high
    assert found.accuracy < 0.5


def test_wrong_labels_are_found(digits, answer):
    prepared, truth = digits
    labels = some_labels(truth, 8, 0)
    wrong = np.random.default_rng(0).choice(np.flatnonzero(labels >= 0), 6, replace=False)
    labels[wrong] = (labels[wrong] + 5) % 10
    found = assess(answer(prepared, labels))
    hits = np.isin(found.mistakes, wrong)
    assert hits.sum() >= 3
    assert hits.mean() > 0.5
    assert (np.diff(found.suspicion) <= 0).all()


def test_nothing_to_judge(digits, answer):
    prepared, truth = digits
    found = assess(answer(prepared, truth))
    assert (found.accuracy, found.low, found.high) == (1, 1, 1)
    lone = np.full(len(truth), -1)
    lone[0] = 3
    assert assess(answer(prepared, lone)).mistakes.size == 0


def test_a_hidden_label_is_not_seen():
    codes = np.array([0, 0, 0, 1, 1, 2, -1, -1])
    folds = draw_folds(codes, 3, seed=0)
    assert sorted(folds[:3]) == [0, 1, 2]
    assert (folds[5:] == -1).all()  # the only label of its class, and the unlabelled
    shown = []
    rows = predict_held_out(codes, folds, lambda given, held_out: (shown.append(given), given[held_out])[1])
    np.testing.assert_array_equal(rows, [-1] * 5)
    for given in shown:
        assert (given == 0).sum() == 2
        assert given[5] == 2
