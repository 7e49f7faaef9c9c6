"""Class names in a pool: the same answer as the task method, labels and names together, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import a2lp
from a2lp import Pool, PoolClassifier, TaskBatch
from a2lp.errors import InputError, ShapeError
from a2lp.pool.graph import from_sparse


def problem(n: int = 150, c: int = 5, d: int = 24, seed: int = 0, noise: float = 1.0) -> tuple[Any, Any, Any]:
    """Points, their classes (the last does not occur), and vectors of the names."""
    rng = np.random.default_rng(seed)
    centres, labels = rng.normal(size=(c, d)), rng.integers(0, c - 1, n)
    points = 1.5 + centres[labels] + noise * rng.normal(size=(n, d))
    return points, labels, 1.5 + rng.normal(size=d) + centres + 0.7 * rng.normal(size=(c, d))


@pytest.mark.parametrize("shots", [0, 3])
def test_the_rounds_are_those_of_the_task_method(shots: int) -> None:
    x, y, text = problem(noise=1.5)
    few = np.concatenate([np.flatnonzero(y == c)[:shots] for c in range(4)]).astype(np.int64)
    rest = np.setdiff1d(np.arange(len(y)), few)
    batch = TaskBatch(x[few][None], y[few][None], x[rest][None], prototypes=text, classes=np.arange(5))
    task = a2lp.create("a2lp_em").predict(batch)
    labels = np.full(len(y), -1)
    labels[few] = y[few]
    pool = Pool(x, labels, classes=np.arange(5), prototypes=text, method="names")
    nearest_name = a2lp.create("zero_shot").predict(batch).labels[0]
    assert (nearest_name != task.labels[0]).any()
    np.testing.assert_array_equal(pool.answer.labels[rest], task.labels[0])
    np.testing.assert_allclose(pool.answer.probabilities[rest], task.probabilities[0], atol=5e-3)  # as the solver's


def test_fewer_points_than_dimensions() -> None:
    x, y, text = problem(n=40, d=96, noise=0.5)
    pool = Pool(x, classes=list("vwxyz"), prototypes=text)
    assert (pool.answer.labels == np.array(list("vwxyz"))[y]).mean() > 0.95
    assert pool.whitening is not None
    assert pool.whitening.matrix.shape == (96, 96)  # names lie outside of what the points span


def test_classes_in_any_order() -> None:
    x, _, text = problem()
    names, order = np.array(list("vwxyz")), np.array([3, 0, 4, 1, 2])
    one, other = (Pool(x, classes=names[rows], prototypes=text[rows]).answer for rows in (np.arange(5), order))
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-5)


def test_labels_mend_a_misleading_name() -> None:
    x, y, text = problem(n=300)
    text[[0, 1]] = text[[1, 0]]  # two names are swapped
    names = Pool(x, classes=np.arange(5), prototypes=text)
    wrong = (names.answer.labels == y).mean()
    assert wrong < 0.6
    rng = np.random.default_rng(0)
    rows = rng.permutation(300)[:40]
    names.label(rows, y[rows], "audit")
    new = ~names.answer.given
    assert (names.answer.labels[new] == y[new]).mean() > wrong + 0.3


def test_a_random_sample_tells_how_good_names_are() -> None:
    x, y, text = problem(n=600)
    text[[0, 1]] = text[[1, 0]]
    pool = Pool(x, classes=np.arange(5), prototypes=text)
    assert (pool.assessment.low, pool.assessment.high) == (0, 1)  # nothing was checked
    assert pool.suggest(5).expected is None
    found = pool.suggest(60, audits=1.0)
    assert set(found.how) == {"audit"}
    pool.label(found.rows, y[found.rows], found.how)
    new = ~pool.answer.given
    right = (pool.answer.labels[new] == y[new]).mean()
    assert pool.assessment.low <= right <= pool.assessment.high
    assert pool.assessment.high - pool.assessment.low < 0.4
    assert len(pool.assessment.held_out_rows) == 60  # also the only label of a class: its name is known


def test_labels_one_by_one_and_back() -> None:
    x, y, text = problem()
    pool = Pool(x, classes=np.arange(5), prototypes=text)
    before = pool.answer.labels.copy()
    assert repr(pool) == "Pool(150 points, 0 labelled: 0 classes, 5 named)"
    pool.label(3, y[3])
    assert pool.answer.labels[3] == y[3]
    with pytest.raises(InputError, match="label 7 is none of the 5 named classes"):
        pool.label(4, 7)
    assert pool.given.sum() == 1  # the refused one left nothing
    pool.undo()
    np.testing.assert_array_equal(pool.answer.labels, before)


def test_what_does_not_fit() -> None:
    x, _, text = problem()
    with pytest.raises(InputError, match="prototypes is None; every named class needs a vector"):
        Pool(x, classes=np.arange(5))
    with pytest.raises(InputError, match="classes is None"):
        Pool(x, prototypes=text)
    with pytest.raises(ShapeError, match="classes has 4 names and prototypes has 5 rows"):
        Pool(x, classes=np.arange(4), prototypes=text)
    with pytest.raises(ShapeError, match="prototypes has 23 dimensions and the points have 24"):
        Pool(x, classes=np.arange(5), prototypes=text[:, :-1])
    with pytest.raises(InputError, match="'a' at 0 and at 2; a class is named once"):
        Pool(x, classes=list("abacd"), prototypes=text)
    with pytest.raises(InputError, match="only a graph was given"):
        Pool(from_sparse(np.ones((3, 3))), classes=[0, 1], prototypes=text[:2])
    with pytest.raises(InputError, match="no class is known"):
        a2lp.label(x, None)


def test_the_estimator() -> None:
    x, y, text = problem(n=300, seed=1, noise=0.7)
    names = np.array(["v", "w", "x", "y", "z"])
    classifier = PoolClassifier(classes=names, prototypes=text).fit(x[:200])
    assert classifier.classes_.tolist() == names.tolist()
    assert (classifier.transduction_ == names[y[:200]]).mean() > 0.95
    assert (classifier.predict(x[200:]) == names[y[200:]]).mean() > 0.9  # not fitted
    np.testing.assert_allclose(classifier.predict_proba(x[200:]).sum(axis=1), 1, rtol=1e-5)
    far = classifier.predict(-x[:1])  # no neighbour: the nearest name
    assert far.shape == (1,)
    some = np.full(200, "", dtype=object)
    some[:20] = names[y[:20]]
    both = PoolClassifier(classes=names, prototypes=text).fit(x[:200], some)
    assert (both.transduction_[:20] == names[y[:20]]).all()
    assert both.score(x[200:], names[y[200:]]) > 0.9
    with pytest.raises(InputError, match="requires y"):
        PoolClassifier().fit(x)


def test_the_pool_and_the_call_agree() -> None:
    x, _, text = problem()
    names = list("vwxyz")
    result = a2lp.label(x, classes=names, prototypes=text)
    np.testing.assert_array_equal(result.labels, Pool(x, classes=names, prototypes=text).answer.labels)
    assert not result.checked
    assert "not checked" in result._repr_html_()
    assert [len(result.suggest(5)), len(a2lp.suggest(x, n=5, classes=names, prototypes=text, audits=1))] == [5, 5]
    np.testing.assert_array_equal(a2lp.label(result.pool).labels, result.labels)
    with pytest.raises(InputError, match="has its names from the start"):
        a2lp.label(result.pool, classes=names, prototypes=text)
