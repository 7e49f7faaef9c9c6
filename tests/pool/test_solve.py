"""The pool's default and its parts, against independent ways to the same answer."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from a2lp.errors import InputError, UnknownNameError
from a2lp.features import load
from a2lp.pool import adapt, logistic, methods
from a2lp.pool.graph import from_sparse, neighbour_graph
from a2lp.pool.methods import METHODS
from a2lp.pool.prepare import whitened_graph
from a2lp.pool.propagate import propagate
from a2lp.pool.weights import fit_weights, mix
from a2lp.preprocess import l2


def some_labels(truth, per_class, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.full(len(truth), -1)
    for value in np.unique(truth):
        labels[rng.choice(np.flatnonzero(truth == value), per_class, replace=False)] = value
    return labels


@pytest.fixture(scope="module")
def digits():
    x, truth = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(x))[:800]
    return x[rows].astype(np.float32), truth[rows]


@pytest.fixture(scope="module")
def prepared(digits):
    return whitened_graph(digits[0])[1:]


def accuracy(found, truth):
    new = ~found.given
    return (found.labels[new] == truth[new]).mean()


@pytest.mark.parametrize("method", [name for name in METHODS if name != "names"])  # which has tests of its own
def test_every_method_labels_digits(method, digits, prepared, answer):
    labels = some_labels(digits[1], 5)
    found = answer(prepared, labels, method)
    assert accuracy(found, digits[1]) > 0.75
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, atol=1e-5)
    assert (found.labels[found.given] == labels[found.given]).all()
    np.testing.assert_array_equal(found.nearest[found.given], np.flatnonzero(found.given))


def test_nearest_is_the_labelled_point_of_the_largest_cosine_even_if_that_is_negative(digits, prepared, answer):
    found = answer(prepared, np.where(np.arange(800) < 2, [7, 8] * 400, -1), "lp")
    cosines = prepared[0] @ prepared[0][:2].T
    assert (cosines.max(axis=1) < 0).sum() > 50
    np.testing.assert_array_equal(found.nearest, cosines.argmax(axis=1))


@pytest.mark.parametrize("per_class", [1, 2, 5])
def test_auto_is_above_logistic_regression_and_near_the_best(per_class, digits, prepared, answer):
    scores = {name: [] for name in ("auto", "lp", "em", "smoothed_lr", "logistic")}
    for seed in range(4):
        labels = some_labels(digits[1], per_class, seed)
        for name, values in scores.items():
            values.append(accuracy(answer(prepared, labels, name), digits[1]))
    means = {name: np.mean(values) for name, values in scores.items()}
    assert means["auto"] > means["logistic"] + 0.03
    assert means["auto"] > max(means.values()) - 0.03


def test_answers_in_the_callers_labels_whatever_marks_the_missing_ones(digits, prepared, answer):
    labels = some_labels(digits[1], 2)
    plain = answer(prepared, labels)
    names = np.array([None if value < 0 else f"digit {value}" for value in labels], dtype=object)
    named = answer(prepared, names)
    assert named.labels.tolist() == [f"digit {value}" for value in plain.labels]
    np.testing.assert_array_equal(named.probabilities, plain.probabilities)


def test_logistic_regression_is_scikit_learns(digits):
    x, truth = digits
    x = x[:100] / np.linalg.norm(x[:100], axis=1, keepdims=True)
    theirs = LogisticRegression(C=1 / 0.1, tol=1e-6, max_iter=2000).fit(x, truth[:100])
    coefficients = logistic.fit(x, np.eye(10, dtype=np.float32)[truth[:100]], 0.1)
    mine = logistic.scores(x, coefficients)
    mine -= mine.mean(axis=1, keepdims=True)
    expected = theirs.decision_function(x)
    np.testing.assert_allclose(mine, expected - expected.mean(axis=1, keepdims=True), atol=0.05)
    # fewer points than dimensions: searched for in their span
    wide = np.hstack([x[:40], x[:40] ** 2])
    few = LogisticRegression(C=1 / 0.1, tol=1e-6, max_iter=2000).fit(wide, truth[:40])
    mine = logistic.scores(wide, logistic.fit(wide, np.eye(10, dtype=np.float32)[truth[:40]], 0.1))
    expected = few.decision_function(wide)
    np.testing.assert_allclose(
        mine - mine.mean(axis=1, keepdims=True), expected - expected.mean(axis=1, keepdims=True), atol=0.05
    )


def test_weights_follow_the_opinion_that_is_right():
    rng = np.random.default_rng(0)
    codes = rng.integers(4, size=300)
    opinions = np.log(rng.dirichlet(np.ones(4), size=(300, 3)))
    opinions[np.arange(300), 1, codes] += 2.0  # the second one knows
    start = np.array([0.5, 0.5, 0.5])
    weights = fit_weights(opinions, codes, start)
    assert weights[1] > 3 * weights[0]
    assert weights[1] > 3 * weights[2]

    def likelihood(w):
        return np.log(mix(opinions, np.asarray(w))[np.arange(300), codes]).sum() - 0.5 * (np.log(w / start) ** 2).sum()

    for step in np.eye(3) * 0.01:
        assert likelihood(weights) > likelihood(weights * np.exp(step))
        assert likelihood(weights) > likelihood(weights * np.exp(-step))


def test_whitening_helps_birds(answer):
    data = load("cub")
    rows = data.labels < 20
    x, truth = data.features[rows].astype(np.float32), data.labels[rows]
    unit = np.asarray(l2(x - x.mean(axis=0)))
    plain, white = (unit, neighbour_graph(unit)), whitened_graph(x)
    scores = [
        [accuracy(answer(pool, some_labels(truth, 1, seed)), truth) for seed in range(4)] for pool in (plain, white)
    ]
    assert np.mean(scores[1]) > np.mean(scores[0]) + 0.02


def test_points_that_no_label_reaches(answer):
    # two chains; only the first has labels
    ends = np.array([[0, 1], [1, 2], [2, 3], [4, 5]])
    graph = from_sparse(sparse.coo_array((np.array([1.0, 0.2, 1.0, 1.0]), ends.T), shape=(6, 6)))
    found = answer(graph, ["b", "b", "", "a", "", ""])
    assert found.labels.tolist() == ["b", "b", "a", "a", "b", "b"]  # the last two: the most frequent label
    assert found.reached.tolist() == [True] * 4 + [False] * 2
    assert found.nearest.tolist() == [0, 1, 3, 3, -1, -1]
    np.testing.assert_allclose(found.probabilities[4:], 0.5)
    with pytest.raises(InputError, match="needs the points themselves"):
        answer(graph, ["b", "", "", "a", "", ""], "em")


@pytest.mark.parametrize("n", [2, 3, 12])
def test_tiny_pools_and_one_class(n, answer):
    x = np.random.default_rng(n).normal(size=(n, 5))
    labels = np.full(n, -1)
    labels[0] = 7
    assert (answer(x, labels).labels == 7).all()
    labels[1] = 8
    found = answer(x, labels)
    assert set(found.labels.tolist()) <= {7, 8}
    assert np.isfinite(found.probabilities).all()


def test_unknown_method(digits, prepared, answer):
    with pytest.raises(UnknownNameError, match=r"unknown method 'atuo'\. Did you mean 'auto'"):
        answer(prepared, some_labels(digits[1], 1), "atuo")


@pytest.mark.shared
def test_validation_pool_of_textures(shared_data, answer):
    data = np.load(shared_data / "features" / "clip_vitb_dtd_val.npz")
    truth = data["labels"]
    prepared = whitened_graph(data["features"])
    for per_class, least in ((1, 0.36), (10, 0.61)):
        scores = [accuracy(answer(prepared, some_labels(truth, per_class, seed)), truth) for seed in range(2)]
        assert np.mean(scores) > least


def test_many_classes_take_the_work_of_their_edges(monkeypatch):
    """Among 900 points of 350 classes, a dense graph would take many times the products of the sparse one."""
    rng = np.random.default_rng(0)
    truth = np.concatenate([np.arange(350), rng.integers(0, 350, 550)])
    x = (rng.normal(size=(350, 32))[truth] + 0.5 * rng.normal(size=(900, 32))).astype(np.float32)
    work = []

    def counted(graph, y, alpha, **options):
        found = propagate(graph, y, alpha, **options)
        work.append(graph.weights.nnz * y.shape[1] * (found.iterations + 1))
        return found

    monkeypatch.setattr(adapt, "propagate", counted)
    monkeypatch.setattr(methods.select, "run", None)  # the dense engine
    points, graph = whitened_graph(x)[1:]
    z = methods.a2lp(methods.Task(points, graph, np.where(np.arange(900) < 350, truth, -1), 350))
    assert (z.argmax(axis=1) == truth).mean() > 0.95
    assert len(work) == 2 * 99 + 1  # once for Z and once for its adjoint, in each step
    assert sum(work) < 100 * (900**3 / 3 + 2 * 350 * 900**2) / 5  # of the factorisations and solves of a dense graph
