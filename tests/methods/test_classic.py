"""Methods on class means and dense graphs against their equations, written once more for a single task, in float64,
and against the labels that public code gave on the same tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

import a2lp
from a2lp.features import BaseStatistics, load, load_base
from a2lp.tasks.samplers import draw

NDArray = np.ndarray[Any, Any]


class One(NamedTuple):
    """One task, float64."""

    support: NDArray
    labels: NDArray
    query: NDArray
    base_mean: NDArray

    @property
    def classes(self) -> range:
        return range(int(self.labels.max()) + 1)

    def unit(self) -> One:
        return self._replace(support=unit(self.support), query=unit(self.query))

    def cl2n(self) -> One:
        support, query = self.support - self.base_mean, self.query - self.base_mean
        return self._replace(support=support, query=query).unit()

    def means(self) -> NDArray:
        return np.array([self.support[self.labels == c].mean(axis=0) for c in self.classes])


def unit(x: NDArray) -> NDArray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def squared(x: NDArray, w: NDArray) -> NDArray:
    return ((x[:, None, :] - w[None, :, :]) ** 2).sum(axis=-1)


def soft(x: NDArray) -> NDArray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def simple_shot(task: One) -> NDArray:
    task = task.cl2n()
    return -squared(task.query, task.means())


def soft_kmeans(task: One) -> NDArray:
    task = task.unit()
    shares = soft(-10 * squared(task.query, task.means()))
    rows = np.concatenate([task.support, task.query])
    parts = np.concatenate([np.eye(len(task.classes))[task.labels], shares])
    means = np.array([np.average(rows, axis=0, weights=parts[:, c]) for c in task.classes])
    return np.log(soft(-10 * squared(task.query, means)))


def rectify(task: One) -> tuple[NDArray, NDArray]:
    """Class means of BD-CSPN and the moved queries."""
    moved = task.query + task.support.mean(axis=0) - task.query.mean(axis=0)
    rows = np.concatenate([task.support, moved])
    cosines = unit(rows) @ unit(task.means()).T
    weights, best = soft(10 * cosines), cosines.argmax(axis=1)
    return np.array([(weights[best == c, c, None] * rows[best == c]).mean(axis=0) for c in task.classes]), moved


def bd_cspn(task: One) -> NDArray:
    task = task.cl2n()
    return -squared(task.query, rectify(task)[0])


def laplacian_shot(task: One) -> NDArray:
    lam = 0.7 if len(task.labels) == len(task.classes) else 0.5
    means, moved = rectify(task.cl2n())
    unary = squared(moved, means)
    neighbours = NearestNeighbors(n_neighbors=3).fit(moved).kneighbors(moved, return_distance=False)[:, 1:]
    shares = soft(-unary)
    for _ in range(20):
        shares = soft(lam * (shares[neighbours[:, 0]] + shares[neighbours[:, 1]]) - unary)
    return np.log(shares)


def paddle(task: One) -> NDArray:
    low, high = task.query.min(axis=0), task.query.max(axis=0)
    width = np.where(high > low, high - low, 1)
    support, query = task.support / width - low, task.query / width - low
    means, v = task._replace(support=support).means(), np.zeros(len(task.classes))
    hot = np.eye(len(task.classes))[task.labels]
    for _ in range(100):
        u = soft(-0.5 * squared(query, means) + v)
        v = np.log(u.mean(axis=0) + 1e-6) + 1
        means = (u.T @ query + hot.T @ support) / (u.sum(axis=0) + hot.sum(axis=0))[:, None]
    return np.log(u)


def top_k(task: One) -> NDArray:
    support, labels = task.support, task.labels
    for count in (35, 70, None):
        means = np.array([support[labels == c].mean(axis=0) for c in task.classes])
        scores = 7 * unit(task.query) @ unit(means).T
        sure = np.argsort(-scores.max(axis=1))[:count]
        support = np.concatenate([task.support, task.query[sure]])
        labels = np.concatenate([task.labels, scores[sure].argmax(axis=1)])
    return scores


def tpn(task: One) -> NDArray:
    rows = np.concatenate([task.support, task.query])
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    weights = np.exp(-squared(rows, rows) / (2 * 0.3**2))
    mask = np.zeros_like(weights)
    for i, row in enumerate(weights):
        mask[i, np.argsort(-row)[:20]] = 1
    weights = weights * ((mask + mask.T) > 0)
    root = np.diag(weights.sum(axis=0) ** -0.5)
    start = np.zeros((len(rows), len(task.classes)))
    start[np.arange(len(task.labels)), task.labels] = 1
    found = np.linalg.inv(np.eye(len(rows)) - 0.99 * root @ weights @ root) @ start
    return found[len(task.labels) :]


def ep(task: One) -> NDArray:
    def propagator(rows: NDArray, alpha: float) -> NDArray:
        distances = squared(rows, rows) / np.sqrt(rows.shape[1])
        weights = np.exp(-distances / distances[distances != 0].std(ddof=1))
        np.fill_diagonal(weights, 0)
        root = np.diag((weights.sum(axis=1) + 1e-4) ** -0.5)
        return np.linalg.inv(np.eye(len(rows)) - alpha * root @ weights @ root)

    rows = unit(np.concatenate([task.support, task.query]))
    rows = propagator(rows, 0.5) @ rows
    spread = propagator(rows, 0.2)
    spread = spread / np.abs(spread).sum(axis=1, keepdims=True)
    hot = np.eye(len(task.classes))[task.labels]
    return np.log(spread[len(hot) :, : len(hot)] @ hot + 1e-6)


PLAIN: dict[str, Callable[[One], NDArray]] = {
    f.__name__: f for f in (simple_shot, soft_kmeans, bd_cspn, laplacian_shot, paddle, top_k, tpn, ep)
}
# where the scores are not logarithms or logits of probabilities: probabilities are softmax(15 * scores)
BARE = ("simple_shot", "bd_cspn")


@pytest.fixture(scope="module")
def birds() -> Any:
    return load("cub")


@pytest.fixture(scope="module")
def base(birds: Any) -> BaseStatistics:
    return BaseStatistics.of(birds.features, birds.labels)


@pytest.mark.parametrize(("sampler", "n_shot"), [("balanced", 1), ("dirichlet", 5)])
@pytest.mark.parametrize("name", PLAIN)
def test_real_tasks_get_the_labels_of_the_equations(
    name: str, sampler: str, n_shot: int, birds: Any, base: BaseStatistics
) -> None:
    tasks = draw(sampler, birds.labels, seed=3, n_way=5, n_shot=n_shot, n_query=15, n_tasks=50)
    whole = tasks.batch(birds.features.astype(np.float64))
    some = slice(None if n_shot == 1 else 3, None)  # unequal shots
    batch = a2lp.TaskBatch(whole.support[:, some], whole.support_labels[:, some], whole.query)
    found = a2lp.create(name, base=base).predict(batch)
    for i, labels in enumerate(batch.codes):
        one = One(batch.support[i], labels, batch.query[i], base.mean.astype(np.float64))
        scores = PLAIN[name](one)
        np.testing.assert_array_equal(found.labels[i], scores.argmax(axis=1))
        expected = soft(15 * scores if name in BARE else scores)
        np.testing.assert_allclose(found.probabilities[i], expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ["soft_kmeans", "top_k", "tpn"])
def test_what_has_no_public_labels_is_not_prototypical(name: str, birds: Any) -> None:
    tasks = draw("balanced", birds.labels, seed=3, n_way=5, n_shot=1, n_query=15, n_tasks=50)
    batch = tasks.batch(birds.features)
    found, other = (a2lp.create(n).predict(batch).labels for n in (name, "prototypical"))
    assert (found != other).mean() >= 0.01


@pytest.mark.shared
@pytest.mark.parametrize("cell", ["ref_cub_1shot", "dirichlet_cub_5shot"])
@pytest.mark.parametrize(
    ("name", "params", "public"),
    [
        ("simple_shot", {}, "simpleshot_cl2n"),
        ("bd_cspn", {}, "bdcspn_oveilleux"),
        ("laplacian_shot", {"lam": 0.7}, "laplacianshot_rect_l0.7"),
        ("paddle", {}, "paddle"),
        ("ep", {}, "ep_l2"),
        ("ep", {"preprocess": "none"}, "ep"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_public_code_gave_the_same_labels(
    name: str, params: dict[str, Any], public: str, cell: str, shared_data: Path
) -> None:
    vectors = np.load(shared_data / "features/cub_resnet12_test.npz")["features"].astype(np.float32)
    base = load_base(shared_data / "features/cub_resnet12_train.npz")
    part = slice(50)
    with np.load(shared_data / f"reference/{cell}.npz") as saved:
        rows = {key: saved[key][part] for key in ("support", "support_labels", "query")}
    batch = a2lp.TaskBatch(vectors[rows["support"]], rows["support_labels"], vectors[rows["query"]])
    found = a2lp.create(name, base=base, **params).predict(batch)
    with np.load(shared_data / f"reference/public/{public}_{cell}.npz") as saved:
        assert (found.labels == saved["pred"][part]).mean() >= 0.999


def test_tpn_falls_back_on_the_nearest_support_where_no_label_arrives() -> None:
    support = [[[1.0, 0.0], [0.0, 1.0]]]
    query = [[[0.99, 0.1], [-1.0, 0.3], [-1.0, 0.2]]]  # the last two know but each other
    found = a2lp.create("tpn", sigma=0.02, n_neighbors=2).predict(a2lp.TaskBatch(support, [[3, 7]], query))
    assert found.reached.tolist() == [[True, False, False]]
    assert found.labels.tolist() == [[3, 7, 7]]


@pytest.mark.parametrize("name", ["bd_cspn", "laplacian_shot"])
def test_a_single_query_is_not_moved_onto_the_support(name: str) -> None:
    support = [[[1.0, 0.0], [0.0, 1.0]]]
    for query, label in (([[[0.9, 0.2]]], 0), ([[[0.2, 0.9]]], 1)):
        found = a2lp.create(name, preprocess="l2").predict(a2lp.TaskBatch(support, [[0, 1]], query))
        assert found.labels.tolist() == [[label]]
