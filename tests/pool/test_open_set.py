"""Strangers among the points."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from a2lp.features import load
from a2lp.pool.graph import from_sparse
from a2lp.pool.open_set import novelty


def digits(rng):
    x, truth = load_digits(return_X_y=True)
    rows = rng.permutation(len(x))[:600]
    return x[rows], truth[rows]


def birds(rng):
    data = load("cub")
    rows = np.isin(data.labels, rng.choice(50, 10, replace=False))
    return data.features[rows].astype(np.float32), np.unique(data.labels[rows], return_inverse=True)[1]


@pytest.mark.parametrize("pool", [digits, birds])
def test_better_than_the_largest_probability(pool, answer):
    gains = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, truth = pool(rng)
        labels = np.full(len(x), -1)
        for code in range(5):
            labels[rng.choice(np.flatnonzero(truth == code), 5, replace=False)] = code
        found = answer(x, labels)
        scores = novelty(found)
        new = ~found.given
        assert (scores[found.given] == 0).all()
        assert ((scores[new] > 0) & (scores[new] <= 1)).all()
        doubt = 1 - found.probabilities[new].max(axis=1)
        stranger = truth[new] >= 5
        gains.append(roc_auc_score(stranger, scores[new]) - roc_auc_score(stranger, doubt))
    assert np.mean(gains) > 0.05


def test_a_graph_alone(answer):
    ends = np.array([[0, 1], [1, 2], [3, 4]])
    graph = from_sparse(sparse.coo_array((np.ones(3), ends.T), shape=(5, 5)))
    scores = novelty(answer(graph, ["a", "", "b", "", ""]))
    assert scores[3] > scores[1]  # no path leads to 3 and 4
    assert scores[3] == scores[4]
