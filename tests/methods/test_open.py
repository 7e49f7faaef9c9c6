"""BMS, OSLO and BPA against literal loops over points, written from the papers' public code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import a2lp
from a2lp import LabelPropagationClassifier, TaskBatch
from a2lp.errors import InputError
from a2lp.preprocess import bpa, plc


def task(seed: int = 0, shots: int = 2, queries: int = 12, ways: int = 3, d: int = 10, others: int = 0) -> Any:
    """Support, its labels, queries and their classes; ``others`` of the queries belong to no class (-1)."""
    rng = np.random.default_rng(seed)
    centres = np.abs(rng.normal(size=(ways + 2, d)))
    y = np.repeat(np.arange(ways), shots)
    truth = np.concatenate([rng.integers(0, ways, queries - others), rng.integers(ways, ways + 2, others)])
    noise = [0.4 * rng.normal(size=(len(labels), d)) for labels in (y, truth)]
    support, query = (np.abs(centres[labels] + more) for labels, more in zip((y, truth), noise, strict=True))
    return support, y, query, np.where(truth < ways, truth, -1)


def unit(x: Any) -> Any:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max())
    return e / e.sum()


def literal_bms(support: Any, y: Any, query: Any, steps: int) -> Any:
    """Soft labels of the queries (q, c), one class and one point at a time."""
    ways, s = y.max() + 1, len(y)
    x = unit(np.sqrt(np.concatenate([support, query]) + 1e-6))
    x = unit(x - x.mean(axis=0))
    means = [unit(x[:s][y == c].mean(axis=0)) for c in range(ways)]
    least = float(min(np.bincount(y)))
    for _ in range(steps):
        p = np.array([softmax(8.5 * np.array([point @ mean for mean in means])) for point in x[s:]])
        for _ in range(50):
            p = p / p.sum(axis=1, keepdims=True)
            for c in range(ways):
                if (mass := p[:, c].sum()) < least:
                    p[:, c] *= least / mass
        whole = np.concatenate([np.eye(ways)[y], p])
        least = float(min(np.bincount(whole.argmax(axis=1), minlength=ways)))
        means = [unit(whole[:, c] @ x) for c in range(ways)]
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(4))
def test_bms_is_the_literal_loop(seed: int) -> None:
    support, y, query, _ = task(seed)
    found = a2lp.create("bms", steps=6).predict(TaskBatch(support[None], y[None], query[None])).probabilities[0]
    np.testing.assert_allclose(found, literal_bms(support, y, query, 6), rtol=1e-6, atol=1e-9)


def literal_oslo(x: Any, y: Any, s: int) -> tuple[Any, Any]:
    """Outlier scores of the queries, and class means."""
    ways = y.max() + 1
    means = np.array([x[:s][y == c].mean(axis=0) for c in range(ways)])
    z = np.full((len(x) - s, ways), 1 / ways)
    xi = np.zeros(len(x) - s)
    for _ in range(2):
        for i, point in enumerate(x[s:]):
            cosines = np.array([unit(point) @ unit(mean) for mean in means])
            xi[i] = 1 / (1 + np.exp(-(z[i] * cosines).sum() / 0.05))
            z[i] = softmax(xi[i] * cosines / 0.1)
        weights = np.concatenate([np.eye(ways)[y], xi[:, None] * z])
        means = np.array([weights[:, c] @ x / weights[:, c].sum() for c in range(ways)])
    return 1 - xi, means


@pytest.mark.parametrize("seed", range(4))
def test_oslo_is_the_literal_loop(seed: int) -> None:
    support, y, query, truth = task(seed, shots=5, queries=60, others=25)
    batch = TaskBatch(support[None], y[None], query[None])
    method = a2lp.create("oslo")
    outlier, means = literal_oslo(plc(np.concatenate([support, query])), y, len(y))
    np.testing.assert_allclose(method.outliers(batch)[0], outlier, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(method.predict(batch).anchors[0], means, rtol=1e-7)
    assert outlier[truth < 0].mean() > outlier[truth >= 0].mean()


def test_oslo_ranks_every_task_alone() -> None:
    tasks = [task(seed, others=4) for seed in range(3)]
    batch = TaskBatch(*(np.stack([one[i] for one in tasks]) for i in range(3)))
    together = a2lp.create("oslo").outliers(batch)
    for i in range(3):
        np.testing.assert_allclose(a2lp.create("oslo").outliers(batch[i : i + 1])[0], together[i], rtol=1e-9)


def literal_bpa(points: Any) -> Any:
    """In logarithms, one row and one column at a time."""
    x, n = plc(points), len(points)
    cost = 1 - unit(x) @ unit(x).T
    np.fill_diagonal(cost, 1e3)
    kernel, u, v = -cost / 0.1, np.zeros(n), np.zeros(n)
    for _ in range(10):
        u = np.array([-np.log(np.exp(kernel[i] + v).sum()) for i in range(n)])
        v = np.array([-np.log(np.exp(kernel[:, j] + u).sum()) for j in range(n)])
    plan = np.exp(kernel + u[:, None] + v)
    plan /= plan.max()
    np.fill_diagonal(plan, 1)
    return unit(plan)


def test_bpa_is_the_literal_loop() -> None:
    points = np.stack([np.concatenate(task(seed)[::2][:2]) for seed in range(3)])
    found = bpa(points)
    assert found.shape == (3, 18, 18)
    for one, expected in zip(found, points, strict=True):
        np.testing.assert_allclose(one, literal_bpa(expected), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(bpa(points[1]), found[1], rtol=1e-12)
    assert np.isfinite(bpa(np.ones((1, 4, 3)))).all()  # equal points
    np.testing.assert_array_equal(bpa(np.ones((1, 1, 3))), [[[1.0]]])


@pytest.mark.parametrize("method", ["prototypical", "lp", "pt_map"])
def test_bpa_before_a_method(method: str) -> None:
    support, y, query, truth = task(3, shots=3, queries=45)
    batch = TaskBatch(support[None], y[None], query[None])
    found = a2lp.create(method, preprocess="bpa").predict(batch).labels[0]
    assert (found == truth).mean() > 0.9


def test_bpa_has_no_place_for_names_and_new_points() -> None:
    support, y, query, _ = task()
    named = TaskBatch(support[None], y[None], query[None], prototypes=support[::2], classes=[0, 1, 2])
    with pytest.raises(InputError, match="names are no points"):
        a2lp.create("zero_shot", preprocess="bpa").predict(named)
    x = np.concatenate([support, query])
    known = np.concatenate([y, np.full(len(query), -1)])
    classifier = LabelPropagationClassifier(preprocess="bpa", n_neighbors=5).fit(x, known)
    assert len(classifier.predict(x)) == len(x)  # looked up
    with pytest.raises(InputError, match="1 of the points were not fitted"):
        classifier.predict(x[:1] + 1.0)
