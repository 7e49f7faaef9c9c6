"""Answers that start from the one before, and folds on a part of the pool, against those without such savings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from a2lp import Pool
from a2lp.pool import methods, part, session
from a2lp.pool import propagate as propagation
from a2lp.pool.methods import Task

N, C = 3000, 12


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    truth = np.concatenate([np.arange(C), rng.integers(0, C, N - C)])
    return (rng.normal(size=(C, 40))[truth] + 1.6 * rng.normal(size=(N, 40))).astype(np.float32), truth


def labels(truth: Any, count: int) -> Any:
    return np.where(np.arange(N) < count, truth, -1)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The columns of each product with the graph."""
    from a2lp.pool import _solver as kernels

    done: list[int] = []
    multiply = kernels.multiply

    def counted(*arguments: Any) -> None:
        if arguments[-2] == 0:  # the first block of rows
            done.append(arguments[4].shape[1])
        multiply(*arguments)

    monkeypatch.setattr(kernels, "multiply", counted)
    return done


def test_one_more_label_takes_a_fraction_of_the_work(
    data: Any, products: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, truth = data
    monkeypatch.setattr(session, "_REMEMBER", 0)
    pool = Pool(x, labels(truth, 80))
    _ = pool.answer
    products.clear()
    for row in range(100, 103):
        pool.label(row, int(truth[row]))
        warm = pool.answer
    after = sum(products) / 3
    products.clear()
    fresh = Task(pool.points, pool.graph, warm.task.codes, C, weights=warm.task.weights)
    cold = fresh.pinned(methods.auto(fresh))
    assert after < 0.6 * sum(products)
    assert (warm.probabilities.argmax(axis=1) == cold.argmax(axis=1)).mean() > 0.998
    np.testing.assert_allclose(warm.probabilities, cold, atol=0.15)  # em magnifies what is within its tolerance
    assert np.abs(warm.probabilities - cold).mean() < 1e-3


def test_labels_taken_back_and_new_classes(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, truth = data
    monkeypatch.setattr(session, "_REMEMBER", 0)
    pool = Pool(x, labels(truth, 60), method="lp")
    first = pool.answer
    pool.label(200, int(truth[200]))
    _ = pool.answer
    pool.label(201, 99)  # a new class
    assert 99 in pool.answer.classes
    pool.undo()
    pool.undo()
    np.testing.assert_allclose(pool.answer.probabilities, first.probabilities, atol=2e-3)
    kept = first.probabilities.copy()
    pool.label(5, None)
    _ = pool.answer
    np.testing.assert_array_equal(first.probabilities, kept)  # an answer is never changed


def test_folds_see_nothing_of_the_labels_that_they_hide(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, truth = data
    monkeypatch.setattr(session, "_REMEMBER", 0)
    remembering = Pool(x, labels(truth, 80))
    _ = remembering.assessment
    monkeypatch.setattr(session, "_REMEMBER", N)
    forgetting = Pool(x, labels(truth, 80))
    np.testing.assert_array_equal(
        remembering.assessment.held_out_probabilities, forgetting.assessment.held_out_probabilities
    )


def test_folds_on_a_part_estimate_the_same_accuracy(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, truth = data
    whole = Pool(x, labels(truth, 90)).assessment
    monkeypatch.setattr(Task.sample, "__defaults__", (1000,))
    monkeypatch.setattr(part, "WHOLE", 1000)
    sizes: list[int] = []
    known = methods._models

    def models(task: Task) -> Any:
        sizes.append(len(task.codes))
        return known(task)

    monkeypatch.setattr(methods, "_models", models)
    pool = Pool(x, labels(truth, 90))
    found = pool.assessment
    assert sizes[-5:] == [1000 + (~np.isin(np.arange(90), pool._memory.part.rows)).sum()] * 5
    assert sorted(found.held_out_rows) == sorted(whole.held_out_rows)
    assert found.accuracy == pytest.approx(whole.accuracy, abs=0.05)
    assert found.low < (pool.answer.labels == truth)[90:].mean() < found.high


def test_tolerances_are_those_of_the_methods(data: Any) -> None:
    """A warm start is checked by the residual, so it can never be worse than asked for."""
    x, truth = data
    graph = Pool(x).graph
    y = np.eye(C, dtype=np.float32)[truth]
    found = propagation.propagate(graph, y, 0.5, tolerance=1e-2, start=np.zeros_like(y, np.float16))
    assert (found.residual <= 1e-2).all() and found.iterations > 0


def test_nothing_depends_on_the_number_of_cores(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, truth = data
    monkeypatch.setattr(session, "_REMEMBER", 0)
    found = []
    for n_cores in (1, 2, 8):
        monkeypatch.setenv("A2LP_CORES", str(n_cores))
        pool = Pool(x, labels(truth, 80))
        first = pool.assessment
        pool.label(100, int(truth[100]))
        found.append((pool.answer.probabilities, first.probabilities, pool.novelty, pool.suggest(5).rows))
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)
