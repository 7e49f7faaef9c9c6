"""Which points to label next, against the plain greedy choice and against random labels."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, make_blobs

from a2lp.errors import InputError
from a2lp.pool import suggest as module
from a2lp.pool.graph import from_sparse
from a2lp.pool.solve import prepare, solve
from a2lp.pool.suggest import expected_gain, kinship, suggest


@pytest.fixture(scope="module")
def digits():
    x, truth = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(x))[:700]
    return prepare(x[rows].astype(np.float32)), truth[rows]


def accuracy(prepared, truth, rows):
    labels = np.full(len(truth), -1)
    labels[rows] = truth[rows]
    answer = solve(prepared, labels)
    return (answer.labels == truth)[labels < 0].mean()


def test_kinship_is_that_of_paths_of_two_edges(digits):
    s = digits[0].graph.normalised().toarray().astype(np.float64)
    k = np.eye(len(s)) + 0.8 * s + 0.64 * s @ s
    scale = np.sqrt(np.diag(k))
    np.testing.assert_allclose(kinship(digits[0].graph).toarray(), k / scale / scale[:, None], atol=1e-6)


@pytest.mark.parametrize("per_class", [0, 1, 6])
def test_choice_is_the_greedy_one(per_class, digits, monkeypatch):
    """Every gain computed anew for every choice gives the same points."""
    monkeypatch.setattr(module, "_TIED", 0)
    prepared, truth = digits
    labels = np.full(len(truth), -1)
    for digit in range(10):
        labels[np.flatnonzero(truth == digit)[:per_class]] = digit
    found = suggest(prepared, labels, 15)
    k = kinship(prepared.graph).toarray().astype(np.float64)
    covered = k[:, labels >= 0].max(axis=1, initial=0)
    need = np.ones(len(truth))
    if per_class == 6:
        p = np.sort(solve(prepared, labels).probabilities.astype(np.float64), axis=1)
        need = (1 - p[:, -1] + p[:, -2]) ** 0.75
    need[labels >= 0] = 0
    for row, gain in zip(found.rows, found.gains, strict=True):
        gains = need @ np.maximum(k - covered[:, None], 0)
        gains[(labels >= 0) | np.isin(np.arange(len(k)), found.rows[: list(found.rows).index(row)])] = -1
        assert gain == pytest.approx(gains.max(), rel=1e-4)
        assert gains[row] == pytest.approx(gains.max(), rel=1e-4)
        covered = np.maximum(covered, k[:, row])


def test_the_first_ones_are_one_of_each_cluster():
    x, truth = make_blobs([400, 200, 100, 50], 12, cluster_std=1.0, random_state=0)
    found = suggest(x, n=4)
    assert sorted(truth[found.rows]) == [0, 1, 2, 3]
    assert found.expected is None
    assert found.answer is None
    assert found.why[0].startswith("typical of ")
    known = truth[found.rows[0]]
    again = suggest(x, np.where(np.arange(len(x)) == found.rows[0], known, -1), n=3)
    assert sorted([known, *truth[again.rows]]) == [0, 1, 2, 3]  # also where one class is known


def test_better_than_random(digits):
    prepared, truth = digits
    labels = np.full(len(truth), -1)
    answer = None
    for _ in range(3):
        found = suggest(prepared, labels, 10, start=answer)
        labels[found.rows] = truth[found.rows]
        answer = found.answer
    drawn = [accuracy(prepared, truth, np.random.default_rng(s).permutation(len(truth))[:30]) for s in range(5)]
    assert accuracy(prepared, truth, np.flatnonzero(labels >= 0)) > np.mean(drawn) + 0.04


def test_doubtful_points_come_later_and_say_so(digits):
    prepared, truth = digits
    labels = np.where(np.random.default_rng(0).permutation(len(truth)) < 150, truth, -1)
    found = suggest(prepared, labels, 10)
    p = np.sort(found.answer.probabilities, axis=1)
    margin = p[:, -1] - p[:, -2]
    assert margin[found.rows].mean() < margin[labels < 0].mean() - 0.3
    assert sum("between" in why for why in found.why) >= 5


def test_what_they_bring(digits):
    prepared, truth = digits
    labels = np.full(len(truth), -1)
    first = suggest(prepared, n=20).rows
    labels[first] = truth[first]
    found = suggest(prepared, labels, 20)
    before = accuracy(prepared, truth, np.flatnonzero(labels >= 0))
    after = accuracy(prepared, truth, np.append(np.flatnonzero(labels >= 0), found.rows))
    assert found.expected == pytest.approx(after - before, abs=0.05)
    # one more brings less than twenty, and so do twenty when there are many
    assert 0 <= expected_gain(found.answer, found.rows[:1]) < found.expected
    many = suggest(prepared, np.where(np.random.default_rng(1).permutation(len(truth)) < 300, truth, -1), 20)
    assert many.expected < found.expected


def test_seeds(digits):
    one, same, other = (suggest(digits[0], n=30, seed=seed) for seed in (0, 0, 1))
    assert one.rows.tolist() == same.rows.tolist()
    assert one.rows.tolist() != other.rows.tolist()


def test_a_graph_and_few_points():
    ends = np.array([[0, 1], [1, 2], [2, 3], [4, 5]])
    graph = from_sparse(sparse.coo_array((np.ones(4), ends.T), shape=(7, 7)))
    found = suggest(graph, n=7)
    assert sorted(found.rows.tolist()) == list(range(7))
    assert found.why[found.rows.tolist().index(6)] == "apart from all others"
    left = suggest(graph, ["a", "", "", "b", "", "", ""], n=20)
    assert sorted(left.rows.tolist()) == [1, 2, 4, 5, 6]
    with pytest.raises(InputError, match="all 7 points are labelled"):
        suggest(graph, list("aabbccd"))
    with pytest.raises(InputError, match="n=0"):
        suggest(graph, n=0)


@pytest.mark.slow
def test_quick_enough(digits):
    x = np.random.default_rng(0).normal(size=(10_000, 32)) + 4 * np.random.default_rng(1).normal(
        size=(50, 1, 32)
    ).repeat(200, axis=1).reshape(10_000, 32)
    labels = np.where(np.arange(10_000) % 200 < 2, np.arange(10_000) // 200, -1)
    start = solve(x, labels)
    began = time.process_time()
    suggest(x, labels, start=start)
    assert time.process_time() - began < 20
