"""The scikit-learn face: its own checks, labels as people write them, and independent closed forms."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import a2lp
from a2lp import (
    A2LPClassifier,
    ImprintingClassifier,
    LabelPropagationClassifier,
    PoolClassifier,
    PrototypicalClassifier,
    TaskBatch,
    create,
)
from a2lp.errors import A2LPWarning, InputError
from a2lp.estimators.base import preprocess_beside
from a2lp.preprocess import preprocess

ALL = [
    A2LPClassifier(n_neighbors=5, steps=20),
    LabelPropagationClassifier(n_neighbors=5),
    PrototypicalClassifier(),
    ImprintingClassifier(steps=20),
]
GRAPHS = ALL[:2]

MINUS_ONE = {
    "check_classifiers_classes": "it ends with the labels -1 and 1, and -1 means unlabelled here as in "
    "sklearn.semi_supervised, whose classes the check exempts by name; its other parts are in "
    "test_classes_are_the_labels_given"
}


@parametrize_with_checks(
    [A2LPClassifier(steps=20), LabelPropagationClassifier(), LabelPropagationClassifier(kernel="precomputed"),
     PrototypicalClassifier(), ImprintingClassifier(steps=20), PoolClassifier()],
    expected_failed_checks=lambda estimator: MINUS_ONE,
)  # fmt: skip
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def few_labels(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some digits with 0 to 4: points, what is known of their labels (-1 where nothing is), and the truth."""
    X, y = load_digits(n_class=5, return_X_y=True)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(X))[:n]
    X, y = X[rows], y[rows]
    known = np.where(rng.random(n) < 0.1, y, -1)
    known[:5] = -1
    for c in range(5):  # at least three labels for each class
        known[np.flatnonzero(y == c)[-3:]] = c
    return X, known, y


def closed_form(X: np.ndarray, y: np.ndarray, k: int, gamma: float, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Label propagation in a few lines of NumPy: graph W, scores Z."""
    V = X / np.linalg.norm(X, axis=1)[:, None]
    A = np.clip(V @ V.T, 0, None) ** gamma
    np.fill_diagonal(A, 0)
    for row in A:
        row[np.argsort(-row, kind="stable")[k:]] = 0
    W = (A + A.T) / 2
    S = W / np.sqrt(np.outer(W.sum(0), W.sum(0)))
    Y = (y[:, None] == np.unique(y[y != -1])).astype(float)
    return W, np.linalg.inv(np.eye(len(X)) - alpha * S) @ Y


def softmax(z: np.ndarray) -> np.ndarray:
    return np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("kind", [str, object])
@pytest.mark.parametrize("names", [["one", "two"], ["one", "two", "three"]])
def test_classes_are_the_labels_given(estimator: Any, kind: type, names: list[str]) -> None:
    X, y = make_blobs(n_samples=30, centers=len(names), random_state=0, cluster_std=0.1)
    labels = np.array(names)[y].astype(kind)
    fitted = clone(estimator).fit(X, labels)
    assert fitted.classes_.tolist() == sorted(names)
    assert fitted.predict(X).tolist() == labels.tolist()


NAMES = np.array(["ant", "bee", "cat", "doe", "elk"])
pd = pytest.importorskip("pandas")

# how labels may be written: known (integers, -1 for unlabelled) -> y, and the classes it then has
WRITTEN = {
    "integers": (lambda known: known, range(5)),
    "small integers": (lambda known: known.astype(np.int8), range(5)),
    "floats with NaN": (lambda known: np.where(known < 0, np.nan, known), range(5)),
    "list with None": (lambda known: [None if c < 0 else int(c) for c in known], range(5)),
    "strings with empty": (lambda known: np.where(known < 0, "", NAMES[known]), NAMES),
    "object with None": (lambda known: np.where(known < 0, None, NAMES[known].astype(object)), NAMES),
    "object with -1": (lambda known: np.where(known < 0, -1, NAMES[known].astype(object)), NAMES),
    "list of names and NaN": (lambda known: [np.nan if c < 0 else str(NAMES[c]) for c in known], NAMES),
    "list of names and -1": (lambda known: [-1 if c < 0 else str(NAMES[c]) for c in known], NAMES),
    "pandas names": (lambda known: pd.Series([None if c < 0 else NAMES[c] for c in known]), NAMES),
    "pandas nullable": (
        lambda known: pd.array([pd.NA if c < 0 else int(c) for c in known], dtype="Int64"),
        range(5),
    ),
    "pandas categorical": (lambda known: pd.Categorical([None if c < 0 else NAMES[c] for c in known]), NAMES),
}


@pytest.mark.parametrize("way", WRITTEN)
def test_unlabelled_points_as_people_mark_them(way: str) -> None:
    X, known, _ = few_labels()
    write, classes = WRITTEN[way]
    plain = LabelPropagationClassifier(n_neighbors=5).fit(X, known)
    fitted = LabelPropagationClassifier(n_neighbors=5).fit(X, write(known))
    assert fitted.classes_.tolist() == list(classes)
    assert fitted.transduction_.tolist() == np.array(list(classes))[plain.transduction_].tolist()
    np.testing.assert_array_equal(fitted.label_distributions_, plain.label_distributions_)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([-1, -1, None, np.nan], "labels none of the 4 points"),
        (["a", 1, "b", None], "number and str"),
        ([0.5, 1.0, 2.0, np.nan], "continuous. y holds 0.5"),
        ([0.0, np.inf, 1.0, 2.0], "y holds inf"),
        ([0, 1, -1], "inconsistent numbers of samples"),
        (np.array([b"a", b"b", b"a", b"b"]), "bytes"),
        (None, "target y is None"),
    ],
)
def test_unusable_labels_are_refused(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LabelPropagationClassifier(n_neighbors=2).fit(np.eye(4), y)


def test_a_class_called_nan_is_pointed_out() -> None:
    y = np.array(["ant", "bee", np.nan, "ant"])  # NumPy has made the string "nan" of it
    with pytest.warns(A2LPWarning, match="holds 'nan' 1 times"):
        PrototypicalClassifier().fit(np.eye(4), y)


@pytest.mark.parametrize("preprocess_name", ["l2", "plc", "none"])
@pytest.mark.parametrize("estimator", ALL)
def test_fit_is_the_method_on_one_task(estimator: Any, preprocess_name: str) -> None:
    X, known, _ = few_labels()
    if preprocess_name == "none":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    fitted = clone(estimator).set_params(preprocess=preprocess_name).fit(X, known)
    params = {name: value for name, value in fitted.get_params().items() if name != "kernel"}
    method = create(fitted._method, **params)
    labelled = known >= 0
    expected = method.predict(TaskBatch(X[labelled][None], known[labelled][None], X[~labelled][None]))
    np.testing.assert_array_equal(fitted.transduction_[~labelled], expected.labels[0])
    np.testing.assert_array_equal(fitted.label_distributions_[~labelled], expected.probabilities[0])
    np.testing.assert_array_equal(fitted.transduction_[labelled], known[labelled])
    np.testing.assert_array_equal(fitted.label_distributions_[labelled], np.eye(5)[known[labelled]])
    if expected.anchors is not None:
        np.testing.assert_array_equal(fitted.anchors_, expected.anchors[0])
    assert fitted.reached_.all()
    assert fitted.n_iter_ == (20 if hasattr(fitted, "steps") else 1)
    assert fitted.n_features_in_ == 64


def test_label_propagation_equals_the_closed_form() -> None:
    X, known, truth = few_labels(400)
    fitted = LabelPropagationClassifier(n_neighbors=7, gamma=2, alpha=0.6, tau=4).fit(X, known)
    _, Z = closed_form(X, known, 7, 2, 0.6)
    rest = known < 0
    np.testing.assert_allclose(fitted.label_distributions_[rest], softmax(4 * Z[rest]), rtol=1e-8)
    assert (fitted.transduction_[rest] == Z[rest].argmax(axis=1)).all()
    assert (fitted.transduction_[rest] == truth[rest]).mean() > 0.9


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csr_matrix, sparse.coo_array])
def test_a_precomputed_graph_gives_the_closed_form(form: Any) -> None:
    X, known, _ = few_labels()
    W, Z = closed_form(X, known, 7, 3, 0.8)
    lopsided = np.triu(2 * W) + 5 * np.eye(len(W))  # symmetrised and without self-loops, it is W again
    fitted = LabelPropagationClassifier(kernel="precomputed").fit(form(lopsided), known)
    rest = known < 0
    np.testing.assert_allclose(fitted.label_distributions_[rest], softmax(15 * Z[rest]), rtol=1e-8)
    np.testing.assert_array_equal(fitted.predict(form(lopsided)), fitted.transduction_)
    new = form(W[:3] + W[10:13])
    mean = (W[:3] + W[10:13]) @ fitted.label_distributions_
    np.testing.assert_allclose(fitted.predict_proba(new), mean / mean.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_array_equal(fitted.predict_proba(new), fitted.predict_proba(np.asarray(W[:3] + W[10:13])))


def test_a_precomputed_graph_can_be_searched() -> None:
    X, known, _ = few_labels()
    W, _ = closed_form(X, known, 20, 3, 0.8)
    search = GridSearchCV(LabelPropagationClassifier(kernel="precomputed"), {"alpha": [0.5, 0.9]}, cv=3).fit(W, known)
    assert search.best_score_ > 0.5


def large_pool(dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """2,000 points, what is known of their labels, and 100 new points."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 2100)
    X = (rng.normal(size=(10, 32))[y] + 1.5 * rng.normal(size=(2100, 32))).astype(dtype)
    return X[:2000], np.where(rng.random(2000) < 0.03, y[:2000], -1), X[2000:]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "estimator",
    [
        LabelPropagationClassifier(n_neighbors=15, gamma=2),
        LabelPropagationClassifier(preprocess="plc"),
        A2LPClassifier(steps=10, lr=1e-2),
        A2LPClassifier(steps=10, lr=1e-2, numerics="official"),
    ],
)
def test_a_sparse_graph_answers_as_a_dense_one(estimator: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, known, new = large_pool(dtype)
    dense = clone(estimator).fit(X, known)
    expected = dense.predict_proba(new)
    monkeypatch.setattr("a2lp.estimators.propagation.DENSE_POINTS", 1999)
    monkeypatch.setattr("a2lp.tasks.batch.TaskBatch.__post_init__", None)  # no dense task is made
    fitted = clone(estimator).fit(X, known)
    np.testing.assert_allclose(fitted.label_distributions_, dense.label_distributions_, atol=2e-5)
    np.testing.assert_allclose(fitted.anchors_, dense.anchors_, atol=1e-5)
    np.testing.assert_allclose(fitted.predict_proba(new), expected, atol=2e-5)
    assert (fitted.transduction_ == dense.transduction_).mean() > 0.999
    assert fitted.n_iter_ == dense.n_iter_
    assert fitted.label_distributions_.dtype == dense.label_distributions_.dtype


@pytest.mark.parametrize("estimator", GRAPHS)
def test_many_points_that_no_label_reaches(estimator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = two_islands()
    dense = clone(estimator).fit(X, y)
    new = np.r_[X[10:] + 0.1 * X[11], -X[:3], np.zeros((1, 8))]
    expected = dense.predict(new)
    monkeypatch.setattr("a2lp.estimators.propagation.DENSE_POINTS", 0)
    fitted = clone(estimator).fit(X, y)
    np.testing.assert_array_equal(fitted.reached_, dense.reached_)
    np.testing.assert_array_equal(fitted.transduction_, dense.transduction_)
    np.testing.assert_allclose(fitted.label_distributions_, dense.label_distributions_, atol=1e-6)
    np.testing.assert_array_equal(fitted.predict_proba(new), 0.5)
    np.testing.assert_array_equal(fitted.predict(new), expected)
    labelled = clone(estimator).fit(X[:10], np.arange(10) % 2)  # nothing to propagate
    assert labelled.predict(X[:10] + 0.01).shape == (10,)


def test_memory_of_many_points_is_not_quadratic() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12_000, 8)).astype(np.float32)
    y = np.where(np.arange(12_000) < 20, np.arange(12_000) % 2, -1)
    LabelPropagationClassifier().fit(X[:3000], y[:3000])  # compiled now
    tracemalloc.start()
    try:
        fitted = LabelPropagationClassifier().fit(X, y)
        fitted.predict(X[:2000] + 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12_000**2  # bytes: a quarter of a dense graph


def two_islands() -> tuple[np.ndarray, np.ndarray]:
    """Two orthogonal clusters, the second without labels; most labels, and the first, are of class 1."""
    rng = np.random.default_rng(0)
    X = np.zeros((20, 8))
    X[:10, :4] = rng.uniform(1, 2, (10, 4))
    X[10:, 4:] = rng.uniform(1, 2, (10, 4))
    y = np.full(20, -1)
    y[:3] = [1, 0, 1]
    return X, y


@pytest.mark.parametrize("estimator", GRAPHS)
def test_points_that_no_label_reaches(estimator: Any) -> None:
    X, y = two_islands()
    fitted = clone(estimator).fit(X, y)
    np.testing.assert_array_equal(fitted.reached_, np.arange(20) < 10)
    np.testing.assert_array_equal(fitted.label_distributions_[10:], 0.5)
    assert set(fitted.transduction_[10:]) == {1}  # all labelled points are as far: the first one's label
    new = np.r_[X[10:] + 0.1 * X[11], -X[:3], np.zeros((1, 8))]  # beside the lost ones; opposite to all; nowhere
    np.testing.assert_array_equal(fitted.predict_proba(new), 0.5)
    nearest = (new @ X[:3].T / np.linalg.norm(X[:3], axis=1)).argmax(axis=1)
    np.testing.assert_array_equal(fitted.predict(new), y[nearest])


def test_points_that_no_label_reaches_in_a_precomputed_graph() -> None:
    X, y = two_islands()
    for graph in (X @ X.T, sparse.csr_array(X @ X.T)):
        with pytest.warns(A2LPWarning, match="10 of the 20 points have no path"):
            fitted = LabelPropagationClassifier(kernel="precomputed").fit(graph, y)
        np.testing.assert_array_equal(fitted.reached_, np.arange(20) < 10)
        np.testing.assert_array_equal(fitted.label_distributions_[10:], 0.5)
        assert set(fitted.transduction_[10:]) == {1}
        nowhere = np.zeros((1, 20))
        assert fitted.predict(nowhere) == [1]
        np.testing.assert_array_equal(fitted.predict_proba(nowhere), 0.5)


@pytest.mark.parametrize("estimator", ALL)
def test_fitted_rows_get_their_fitted_answer(estimator: Any) -> None:
    X, known, _ = few_labels()
    X[3] = X[known == 2][0]  # an unlabelled copy of a labelled point, which comes later
    fitted = clone(estimator).fit(X, known)
    again = np.random.default_rng(1).permutation(len(X))
    assert (fitted.predict(X[again]) == fitted.transduction_[again]).mean() >= 1 - 1 / len(X)
    assert fitted.predict(X[3:4]) == [2]
    minus = np.where(X == 0, -0.0, X)
    np.testing.assert_array_equal(fitted.predict_proba(minus), fitted.predict_proba(X))
    np.testing.assert_array_equal(fitted.predict_proba(X.astype(np.float32)), fitted.predict_proba(X))
    before = fitted.predict_proba(X[:1] + X[1:2])
    X[0] += X[1]  # the caller's array is not ours: this is a new point now
    np.testing.assert_array_equal(fitted.predict_proba(X[:1]), before)


@pytest.mark.parametrize("preprocess_name", ["l2", "plc"])
@pytest.mark.parametrize("estimator", GRAPHS)
def test_new_points_average_their_neighbours(estimator: Any, preprocess_name: str) -> None:
    X, known, truth = few_labels(400)
    fitted = clone(estimator).set_params(preprocess=preprocess_name).fit(X[:250], known[:250])
    new = X[250:]
    V = preprocess(preprocess_name, X[:250])
    V[known[:250] >= 0] = fitted.anchors_
    if preprocess_name == "plc":
        root = [np.sqrt(x + 1e-6) / np.linalg.norm(np.sqrt(x + 1e-6), axis=1, keepdims=True) for x in (X[:250], new)]
        new = root[1] - root[0].mean(axis=0)
    A = np.clip(new / np.linalg.norm(new, axis=1, keepdims=True) @ V.T, 0, None) ** 3
    for row in A:
        row[np.argsort(-row)[5:]] = 0
    expected = A @ fitted.label_distributions_ / A.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.predict_proba(X[250:]), expected, rtol=1e-9)
    assert (fitted.predict(X[250:]) == truth[250:]).mean() > 0.85


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), which=st.integers(0, 3))
def test_the_order_of_rows_does_not_matter(seed: int, which: int) -> None:
    rng = np.random.default_rng(seed)
    X, known = rng.normal(size=(30, 10)), np.r_[0, 1, 2, rng.integers(-1, 3, 27)]
    order = rng.permutation(30)
    one, other = clone(ALL[which]).fit(X, known), clone(ALL[which]).fit(X[order], known[order])
    np.testing.assert_allclose(other.label_distributions_, one.label_distributions_[order], rtol=1e-6)
    new = rng.normal(size=(8, 10))
    np.testing.assert_allclose(other.predict_proba(new), one.predict_proba(new), rtol=1e-6)


@pytest.mark.parametrize("estimator", ALL[2:])
def test_weights_do_not_depend_on_unlabelled_points(estimator: Any) -> None:
    X, known, _ = few_labels()
    labelled = known >= 0
    together = clone(estimator).fit(X, known)
    alone = clone(estimator).fit(X[labelled], known[labelled])
    np.testing.assert_allclose(alone.anchors_, together.anchors_, rtol=1e-12)
    np.testing.assert_allclose(alone.predict_proba(X), together.label_distributions_, rtol=1e-9)


def test_preprocessing_beside_fitted_points_is_preprocessing() -> None:
    points = np.random.default_rng(0).normal(size=(30, 6))
    for name in ("l2", "plc", "none"):
        np.testing.assert_allclose(preprocess_beside(name, points, points), preprocess(name, points), rtol=1e-12)
    base = a2lp.BaseStatistics.of(points, np.arange(30) % 3)
    for name in ("cl2n", "whiten"):
        np.testing.assert_array_equal(preprocess_beside(name, points, points, base), preprocess(name, points, base))


@pytest.mark.parametrize("estimator", ALL)
def test_in_pipelines_searches_and_files(estimator: Any, tmp_path: Any) -> None:
    X, known, truth = few_labels(300)
    train, test, y_train, _, _, y_test = train_test_split(X, known, truth, random_state=0)
    pipeline = make_pipeline(StandardScaler(), clone(estimator)).fit(train, y_train)
    assert pipeline.score(test, y_test) > 0.7
    grid = {"tau": np.array([5, 15]), "preprocess": ["l2", "plc"]}
    if hasattr(estimator, "n_neighbors"):
        grid["n_neighbors"] = np.arange(5, 8, 2)  # NumPy integers, as searches have them
    search = GridSearchCV(clone(estimator), grid, cv=2, error_score="raise").fit(train, y_train)
    assert search.best_score_ > 0.6  # over labelled points: unlabelled ones would count as errors
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict_proba(test), search.predict_proba(test))


def test_the_pool_as_an_estimator_is_the_pool_and_beats_plain_propagation() -> None:
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(X))
    X, y, new, truth = X[rows[:900]], y[rows[:900]], X[rows[900:]], y[rows[900:]]
    known = np.where(np.arange(900) < 30, y, -1)
    fitted = PoolClassifier().fit(X, known)
    answer = a2lp.Pool(X, known).answer
    np.testing.assert_array_equal(fitted.transduction_, answer.labels)
    np.testing.assert_allclose(fitted.label_distributions_, answer.probabilities, atol=1e-7)
    assert fitted.pool_.assessment.low < (fitted.transduction_ == y)[30:].mean() < fitted.pool_.assessment.high
    plain = LabelPropagationClassifier().fit(X, known)
    assert (fitted.predict(new) == truth).mean() > (plain.predict(new) == truth).mean() + 0.02
    assert (fitted.predict(X) == fitted.transduction_).all()


def test_score_counts_labelled_points_only() -> None:
    X, known, _ = few_labels()
    fitted = PrototypicalClassifier().fit(X, known)
    assert fitted.score(X, known) == 1.0
    with pytest.raises(InputError, match="nothing to score"):
        fitted.score(X[:2], [None, ""])


def test_feature_names_are_kept() -> None:
    X, known, _ = few_labels()
    frame = pd.DataFrame(X, columns=[f"pixel{i}" for i in range(64)])
    fitted = LabelPropagationClassifier(n_neighbors=5).fit(frame, pd.Series(known))
    assert fitted.feature_names_in_.tolist() == frame.columns.tolist()
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(frame[frame.columns[::-1]])


@pytest.mark.parametrize(
    ("estimator", "X", "message"),
    [
        (
            A2LPClassifier(kernel="precomputed"),
            np.eye(4),
            "moving labelled points. Use LabelPropagationClassifier",
        ),
        (A2LPClassifier(kernel="rbf"), np.eye(4), "unknown kernel 'rbf'"),
        (LabelPropagationClassifier(kernel="knn"), np.eye(4), "unknown kernel 'knn'"),
        (LabelPropagationClassifier(kernel="precomputed"), np.eye(4)[:, :3], "must be square"),
        (LabelPropagationClassifier(kernel="precomputed"), np.eye(4) - 0.5, "smallest affinity is -0.5"),
        (LabelPropagationClassifier(alpha=1), np.eye(4), "alpha=1 must be"),
        (A2LPClassifier(n_neighbors=0), np.eye(4), "n_neighbors=0 must be"),
        (PrototypicalClassifier(preprocess="cl2n"), np.eye(4), "base is None"),
        (
            A2LPClassifier(engine="batched"),
            np.ones((20_001, 2), dtype=np.float32),
            "20,001 points, whose dense graph takes 1.6 GB",
        ),
    ],
)
def test_what_cannot_be_fitted_says_why(estimator: Any, X: np.ndarray, message: str) -> None:
    y = np.full(len(X), -1)
    y[:2] = 0, 1
    with pytest.raises(InputError, match=message):
        estimator.fit(X, y)
