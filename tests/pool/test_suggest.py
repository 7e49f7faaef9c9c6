"""Which points to label next, against the plain greedy choice and against random labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, make_blobs

from a2lp.errors import InputError
from a2lp.pool import suggest as module
from a2lp.pool.graph import from_sparse
from a2lp.pool.kinship import Kinship
from a2lp.pool.prepare import whitened_graph
from a2lp.pool.session import Pool
from a2lp.pool.suggest import expected_gain


@pytest.fixture(scope="module")
def digits():
    x, truth = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(x))[:700]
    return x[rows].astype(np.float32), truth[rows]


def dense(graph):
    near = Kinship(graph)
    k = np.zeros((graph.n, graph.n))
    for row in range(graph.n):
        columns, values = near.row(row)
        k[row, columns] = values
    return k


def accuracy(pool, truth, rows, how=""):
    labels = np.full(len(truth), -1)
    labels[rows] = truth[rows]
    pool.label(slice(None), labels, how)
    return (pool.answer.labels == truth)[labels < 0].mean()


def test_kinship_is_that_of_paths_of_two_edges(digits):
    *_, graph = whitened_graph(digits[0])
    s = graph.normalised.toarray().astype(np.float64)
    k = np.eye(len(s)) + 0.8 * s + 0.64 * s @ s
    scale = np.sqrt(np.diag(k))
    np.testing.assert_allclose(dense(graph), k / scale / scale[:, None], atol=1e-6)


@pytest.mark.parametrize("per_class", [0, 1, 6])
def test_choice_is_the_greedy_one(per_class, digits, monkeypatch):
    """Every gain computed anew for every choice gives the same points."""
    monkeypatch.setattr(module, "_TIED", 0)
    x, truth = digits
    labels = np.full(len(truth), -1)
    for digit in range(10):
        labels[np.flatnonzero(truth == digit)[:per_class]] = digit
    pool = Pool(x, labels)
    found = pool.suggest(15)
    k = dense(pool.graph)
    covered = k[:, labels >= 0].max(axis=1, initial=0)
    need = np.ones(len(truth))
    if per_class == 6:
        p = np.sort(pool.answer.probabilities.astype(np.float64), axis=1)
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
    pool = Pool(x)
    found = pool.suggest(4)
    assert sorted(truth[found.rows]) == [0, 1, 2, 3]
    assert found.expected is None
    assert found.why[0].startswith("typical of ")
    known = truth[found.rows[0]]
    pool.label(found.rows[0], known)
    again = pool.suggest(3)
    assert sorted([known, *truth[again.rows]]) == [0, 1, 2, 3]  # also where one class is known


def test_better_than_random(digits):
    x, truth = digits
    pool = Pool(x)
    for _ in range(3):
        rows = pool.suggest(10).rows
        pool.label(rows, truth[rows])
    suggested = np.flatnonzero(pool.given)
    drawn = [accuracy(pool, truth, np.random.default_rng(s).permutation(len(truth))[:30]) for s in range(5)]
    assert accuracy(pool, truth, suggested) > np.mean(drawn) + 0.04


def test_doubtful_points_come_later_and_say_so(digits):
    x, truth = digits
    labels = np.where(np.random.default_rng(0).permutation(len(truth)) < 150, truth, -1)
    pool = Pool(x, labels)
    found = pool.suggest(10)
    p = np.sort(pool.answer.probabilities, axis=1)
    margin = p[:, -1] - p[:, -2]
    assert margin[found.rows].mean() < margin[labels < 0].mean() - 0.3
    assert sum("between" in why for why in found.why) >= 5


def test_what_they_bring(digits):
    x, truth = digits
    pool = Pool(x)
    first = pool.suggest(20).rows
    before = accuracy(pool, truth, first, "suggested")
    found = pool.suggest(20)
    # one more brings less than twenty
    assert 0 <= expected_gain(pool.answer, pool.assessment, pool.how, found.rows[:1]) < found.expected
    after = accuracy(pool, truth, np.append(first, found.rows), "suggested")
    assert found.expected == pytest.approx(after - before, abs=0.05)
    # and so do twenty when there are many
    pool.label(slice(None), np.where(np.random.default_rng(1).permutation(len(truth)) < 300, truth, -1))
    assert pool.suggest(20).expected < found.expected


def test_audits_are_a_random_share(digits):
    x, truth = digits
    pool = Pool(x)
    assert set(pool.suggest(20, audits=0.5).how) == {"suggested"}  # there is no answer to check yet
    pool.label(np.arange(60), truth[:60])
    drawn, places, counts = [], [], []
    for seed in range(150):
        pool.seed = seed
        found = pool.suggest(10, audits=0.25)
        assert len(set(found.rows.tolist())) == len(found.rows) == len(found.how) == len(found.why) == 10
        audit = np.array(found.how) == "audit"
        assert all(("random" in why) == one for why, one in zip(found.why, audit, strict=True))
        assert (np.diff(found.gains[~audit]) <= 0.02).all() and not found.gains[audit].any()
        drawn += found.rows[audit].tolist()
        places += np.flatnonzero(audit).tolist()
        counts.append(audit.sum())
    assert set(counts) == {2, 3} and np.mean(counts) == pytest.approx(2.5, abs=0.15)
    assert min(drawn) >= 60
    assert np.bincount((np.array(drawn) - 60) // 64, minlength=10) == pytest.approx(37.5, abs=22)  # uniform
    assert np.bincount(places, minlength=10) == pytest.approx(37.5, abs=22)
    with pytest.raises(InputError, match="audits=2"):
        pool.suggest(5, audits=2)


def test_suggestions_depend_on_the_seed(digits):
    one, same, other = (Pool(digits[0], seed=seed).suggest(30) for seed in (0, 0, 1))
    assert one.rows.tolist() == same.rows.tolist()
    assert one.rows.tolist() != other.rows.tolist()


def test_a_graph_and_few_points():
    ends = np.array([[0, 1], [1, 2], [2, 3], [4, 5]])
    graph = from_sparse(sparse.coo_array((np.ones(4), ends.T), shape=(7, 7)))
    found = Pool(graph).suggest(7)
    assert sorted(found.rows.tolist()) == list(range(7))
    assert found.why[found.rows.tolist().index(6)] == "apart from all others"
    left = Pool(graph, ["a", "", "", "b", "", "", ""]).suggest(20)
    assert sorted(left.rows.tolist()) == [1, 2, 4, 5, 6]
    with pytest.raises(InputError, match="all 7 points are labelled"):
        Pool(graph, list("aabbccd")).suggest()
    with pytest.raises(InputError, match="n=0"):
        Pool(graph).suggest(0)
