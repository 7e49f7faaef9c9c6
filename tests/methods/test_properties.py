"""What must hold for every method, whatever the task: the suite of ``a2lp.testing`` over the table of cases.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import a2lp
from a2lp import testing
from a2lp.arrays import softmax
from a2lp.methods.base import scored
from a2lp.testing import Subject, Task, random_task

CASES = run_path(str(Path(__file__).with_name("cases.py")))["CASES"]
PROPAGATES = [name for name, case in CASES.items() if case.method in ("lp", "a2lp")]

every_method = pytest.mark.parametrize("case", CASES)


def subject(case: str, **params: Any) -> Subject:
    """The method of a line of the table, with some of its parameters changed."""
    _, given_params, transductive, class_order, _, atol, named, point_order = CASES[case]
    method = a2lp.create(CASES[case].method, **given_params | params)
    return Subject(method, transductive, class_order, atol, named, point_order)


def with_neighbours(one: Subject, task: Task, near: float) -> Subject:
    """The same, choosing some share of the points as neighbours where it has a graph."""
    if not hasattr(one.method, "n_neighbors"):
        return one
    n = sum(array.shape[1] for array in (task.support, task.query, task.unlabelled) if array is not None)
    return dataclasses.replace(one, method=dataclasses.replace(one.method, n_neighbors=1 + round(near * (n - 2))))


tasks = st.builds(
    random_task,
    seed=st.integers(0, 2**32 - 1),
    b=st.integers(1, 3),
    c=st.integers(2, 5),
    extra=st.integers(0, 4),
    q=st.integers(1, 12),
    u=st.integers(0, 4),
    d=st.sampled_from([3, 8, 33]),
)


def test_every_method_has_a_line() -> None:
    assert {case.method for case in CASES.values()} == set(a2lp.list_methods())


@every_method
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@given(task=tasks, near=st.floats(0, 1))
def test_what_must_hold(case: str, check: Callable[[Subject, Task], None], task: Task, near: float) -> None:
    check(with_neighbours(subject(case), task, near), task)


@pytest.mark.parametrize(("case", "library"), [(name, lib) for name, case in CASES.items() for lib in case.libraries])
@given(task=tasks, near=st.floats(0, 1))
def test_any_library_gives_the_same_numbers(case: str, library: str, task: Task, near: float) -> None:
    testing.check_library(with_neighbours(subject(case), task, near), task, library)


@every_method
@pytest.mark.parametrize("edge", testing.edge_tasks())
def test_tasks_at_the_edge_have_answers(case: str, edge: str) -> None:
    task = testing.edge_tasks()[edge]
    testing.check_edge(subject(case), task)
    narrow = task._replace(support=task.support.astype(np.float32), query=task.query.astype(np.float32))
    testing.check_edge(subject(case), narrow)


@every_method
def test_float32_stays_float32(case: str) -> None:
    testing.check_shapes(subject(case), random_task(5, dtype=np.float32))


@pytest.mark.parametrize("preprocess", ["l2", "plc", "cl2n", "whiten", "none"])
@every_method
def test_any_preprocessing_will_do(case: str, preprocess: str) -> None:
    testing.check_shapes(subject(case, preprocess=preprocess), random_task(6))


@every_method
def test_unlabelled_points_matter_to_the_transductive_alone(case: str) -> None:
    one, task = with_neighbours(subject(case), random_task(1, u=5), 0.3), random_task(1, u=5)
    moved = np.abs(one.solve(task).scores - one.solve(task, unlabelled=None).scores).max()
    assert moved > 1e-6 if one.transductive else moved < 1e-12


class Broken(a2lp.Method):
    """Scores are inner products with the first support vectors; ``spoil`` does something that no method may do."""

    def _solve(self, points: Any) -> Any:
        first = np.array([[row.tolist().index(c) for c in range(points.n_classes)] for row in points.codes])
        chosen = np.take_along_axis(points.support, first[:, :, None], axis=1)
        return scored(self.spoil(points.query @ chosen.transpose(0, 2, 1)))


BROKEN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "check_batch_is_loop": ("in a batch", lambda scores: scores - scores.mean(axis=0)),
    "check_query_order": ("permuted queries", lambda scores: scores + np.arange(scores.shape[1])[:, None]),
    "check_support_order": ("permuted support", lambda scores: scores),
    "check_relabelling": ("not equal", lambda scores: scores * np.arange(1, scores.shape[2] + 1)),
    "check_unlabelled_join": ("as unlabelled", lambda scores: scores - scores.mean(axis=1, keepdims=True)),
    "check_determinism": ("scores", lambda scores: scores + np.random.default_rng().random()),
    "check_shapes": ("shape", lambda scores: scores[:, :, :1]),
    "check_edge": ("invalid value", lambda scores: scores / np.abs(scores).sum(axis=-1, keepdims=True)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_suite_notices(name: str) -> None:
    words, spoil = BROKEN[name]
    broken = Subject(type("Spoiled", (Broken,), {"spoil": staticmethod(spoil)})())
    task = testing.edge_tasks()["all zero"] if name == "check_edge" else random_task(7)
    with pytest.raises((AssertionError, RuntimeWarning), match=words):
        getattr(testing, name)(broken, task)


names = st.one_of(
    st.lists(st.integers(-(2**60), 2**60), min_size=5, max_size=5, unique=True),
    st.lists(st.text("abcxyzé ", max_size=4), min_size=5, max_size=5, unique=True),
    st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=5, unique=True),
)


@pytest.mark.parametrize("case", ["prototypical", "a2lp-batched"])
@given(task=tasks, values=names)
def test_labels_of_any_kind_come_back(case: str, task: Task, values: list[Any]) -> None:
    value_of = np.array(values)
    one = subject(case)
    straight, renamed = one.solve(task), one.solve(task, labels=value_of[task.labels])
    np.testing.assert_array_equal(renamed.labels, value_of[straight.labels])
    assert renamed.labels.dtype == value_of.dtype
    for classes, expected in zip(renamed.classes, straight.classes, strict=True):
        assert classes.tolist() == sorted(value_of[expected].tolist())


@pytest.mark.parametrize("case", PROPAGATES)
@given(task=tasks)
def test_each_anchor_keeps_its_place_among_the_callers(case: str, task: Task) -> None:
    order = np.random.default_rng(8).permutation(task.support.shape[1])
    one = with_neighbours(subject(case), task, 0.3)
    permuted = one.solve(task, support=task.support[:, order], labels=task.labels[:, order])
    one.same(permuted.anchors, one.solve(task).anchors[:, order], "anchors")


@pytest.mark.parametrize("case", ["imprinting", *PROPAGATES])
def test_steps_are_counted(case: str) -> None:
    found = subject(case).solve(random_task(9))
    np.testing.assert_array_equal(found.steps, CASES[case].params.get("steps", 0))
    np.testing.assert_array_equal(found.probabilities, softmax(CASES[case].params.get("tau", 15.0) * found.scores))


def test_a_tensor_that_wants_a_gradient_gets_numbers_without_one() -> None:
    """A graph over all steps would fill the memory: the loop's own gradient is a closed form."""
    task, one = random_task(2), subject("a2lp-batched", n_neighbors=5)
    support, query = torch.tensor(task.support, requires_grad=True), torch.tensor(task.query)
    found = one.method.predict(a2lp.TaskBatch(support, task.labels, query))
    assert not found.scores.requires_grad
    one.same(found.scores, one.solve(task, unlabelled=None).scores, "with and without a gradient")


@given(task=tasks)
def test_prototypical_is_the_plain_loop(task: Task) -> None:
    found = subject("prototypical", preprocess="l2").solve(task)
    for i, labels in enumerate(task.labels):
        unit = [v / np.linalg.norm(v) for v in task.support[i]]
        means = [np.mean([v for v, label in zip(unit, labels, strict=True) if label == c], axis=0) for c in set(labels)]
        for query, scores in zip(task.query[i], found.scores[i], strict=True):
            expected = [-np.sum((query / np.linalg.norm(query) - mean) ** 2) for mean in means]
            np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)


@given(task=tasks)
def test_imprinting_is_torchs_adam_on_torchs_gradient(task: Task) -> None:
    one = subject("imprinting")
    found, tuned = one.solve(task), one.method
    for i, labels in enumerate(task.labels):
        support, query = (torch.nn.functional.normalize(torch.tensor(x[i]), dim=1) for x in (task.support, task.query))
        target = torch.tensor(labels)
        weights = torch.stack([support[target == c].mean(0) for c in range(int(labels.max()) + 1)]).requires_grad_()
        adam = torch.optim.Adam([weights], lr=tuned.lr)
        for step in range(tuned.steps):
            logits = -0.5 * ((support[:, None] - weights[None]) ** 2).sum(-1)
            loss = torch.nn.functional.cross_entropy(tuned.tau * logits, target)
            assert float(found.losses[i, step]) == pytest.approx(loss.item(), rel=1e-9)
            adam.zero_grad()
            loss.backward()
            adam.step()
        scores = -0.5 * ((query[:, None] - weights[None]) ** 2).sum(-1)
        one.same(found.scores[i], scores.detach(), "scores")
        one.same(found.anchors[i], weights.detach(), "weights")


def separable(scale: float = 1.0) -> Task:
    """Three classes far apart, all entries positive as after a ReLU, in float32."""
    rng = np.random.default_rng(10)
    labels = np.tile(np.repeat(np.arange(3), 2), (2, 1))
    truth = np.tile(np.arange(12) % 3, (2, 1))
    centres = 0.05 + np.kron(np.eye(3), np.ones(4))  # (3, 12)
    support, query = (centres[of] + 0.05 * rng.random((*of.shape, 12)) for of in (labels, truth))
    return Task((scale * support).astype(np.float32), labels, (scale * query).astype(np.float32))


@pytest.mark.parametrize("preprocess", ["own", "none"])
@pytest.mark.parametrize("scale", [1e15, 1e30, 1e38])
@every_method
def test_large_values_have_answers_in_finite_numbers(case: str, scale: float, preprocess: str) -> None:
    one = subject(case, **{} if preprocess == "own" else {"preprocess": preprocess})
    try:
        found = one.solve(separable(scale))
    except a2lp.A2LPError as error:  # a network that sees raw vectors may say no
        assert "not finite" in str(error) and (case, preprocess) == ("tpn_learned", "none")
        return
    assert np.isfinite(found.scores).all() and np.isfinite(found.probabilities).all()
    if CASES[case].method != "dpgn":  # an untrained network knows nothing
        assert (found.labels == np.arange(12) % 3).mean() > 0.9, found.labels


@every_method
def test_one_vector_out_of_all_proportion_is_no_nan(case: str) -> None:
    task = separable()
    for change in ("support", "query"):
        for scale in (1e20, 1e37):
            arrays = {name: getattr(task, name).copy() for name in ("support", "query")}
            arrays[change][:, 0] *= np.float32(scale)
            found = subject(case).solve(task, **arrays)
            assert np.isfinite(found.scores).all() and np.isfinite(found.probabilities).all()
            if change == "query" and subject(case).method.preprocess == "l2":  # its direction is what it was
                np.testing.assert_array_equal(found.labels, subject(case).solve(task).labels)


@every_method
def test_a_dimension_of_next_to_nothing_is_no_nan(case: str) -> None:
    """All queries are zero there, but for one that is 1e-22; the support is not."""
    task = separable()
    support, query = (np.pad(x, ((0, 0), (0, 0), (0, 1))) for x in (task.support, task.query))
    support[:, ::2, -1], query[:, 0, -1] = 0.1, 1e-22
    found = subject(case).solve(task, support=support, query=query)
    assert np.isfinite(found.scores).all() and np.isfinite(found.probabilities).all()
    if CASES[case].method != "dpgn":
        assert (found.labels == np.arange(12) % 3).mean() > 0.9, found.labels


def test_scores_that_are_not_finite_are_an_error() -> None:
    spoiled = type("Spoiled", (Broken,), {"spoil": staticmethod(lambda scores: np.where(scores > 0, np.nan, scores))})()
    with pytest.raises(a2lp.A2LPError, match=r"the scores of task 0 are not finite.*float64 vectors"):
        spoiled.predict(a2lp.TaskBatch(*separable()[:3]))
