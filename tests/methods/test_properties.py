"""What must hold for every method, whatever the task: symmetries, kinds of arrays, probabilities."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import a2lp
from a2lp.arrays import namespace, softmax, to_numpy

TUNED = {"steps": 15, "lr": 1e-3, "tau": 5.0}  # enough for the anchors to move and for labels to change
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "prototypical": ("prototypical", {}),
    "imprinting": ("imprinting", TUNED | {"numerics": "exact"}),
    "lp-batched": ("lp", {"engine": "batched"}),
    "lp-fused_cpu": ("lp", {"engine": "fused_cpu"}),
    "a2lp-batched": ("a2lp", TUNED | {"engine": "batched"}),
    "a2lp-fused_cpu": ("a2lp", TUNED | {"engine": "fused_cpu"}),
}
PROPAGATES = [case for case, (method, _) in CASES.items() if method in ("lp", "a2lp")]
LIBRARIES = {"numpy": np.asarray, "torch": torch.asarray, "array_api_strict": array_api_strict.asarray}

every_method = pytest.mark.parametrize("case", CASES)


def test_every_method_is_here() -> None:
    assert {method for method, _ in CASES.values()} == set(a2lp.methods())


class Task:
    """Clustered continuous data, so no similarities are equal, with unequal shots in any order."""

    def __init__(
        self, seed: int, b: int = 2, c: int = 3, extra: int = 2, q: int = 9, u: int = 3, d: int = 8, near: float = 0.3
    ) -> None:
        self.rng = rng = np.random.default_rng(seed)
        s = c + extra
        codes = np.stack([rng.permutation(np.r_[np.arange(c), rng.integers(0, c, extra)]) for _ in range(b)])
        centres = rng.normal(size=(b, c, d))
        tasks = np.arange(b)[:, None]
        self.labels = codes
        self.support = centres[tasks, codes] + rng.normal(size=(b, s, d))
        self.query = centres[tasks, rng.integers(0, c, (b, q))] + rng.normal(size=(b, q, d))
        self.unlabelled = rng.normal(size=(b, u, d))
        self.k = 1 + round(near * (s + q + u - 2))

    def solve(self, case: str, preprocess: str = "l2", convert: Any = None, **change: Any) -> a2lp.Prediction:
        """The method's answer to this task with some arrays changed."""
        method, params = CASES[case]
        if case in PROPAGATES:
            params = params | {"n_neighbors": self.k}
        arrays = {"support": self.support, "support_labels": self.labels, "query": self.query}
        arrays |= {"unlabelled": self.unlabelled} | change
        if convert is not None:
            arrays = {name: convert(x) for name, x in arrays.items()}
        return a2lp.create(method, preprocess=preprocess, **params).predict(a2lp.TaskBatch(**arrays))


tasks = st.builds(
    Task,
    seed=st.integers(0, 2**32 - 1),
    b=st.integers(1, 3),
    c=st.integers(2, 5),
    extra=st.integers(0, 4),
    q=st.integers(1, 12),
    u=st.integers(0, 4),
    d=st.sampled_from([3, 8, 33]),
    near=st.floats(0, 1),
)
preprocessings = st.sampled_from(["l2", "plc"])
few = settings(max_examples=20, deadline=None)


def same_numbers(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), rtol=0, atol=1e-9)


def same_answer(found: a2lp.Prediction, expected: a2lp.Prediction) -> None:
    same_numbers(found.scores, expected.scores)
    same_numbers(found.probabilities, expected.probabilities)
    for name in ("labels", "reached", "steps", "converged"):
        np.testing.assert_array_equal(to_numpy(getattr(found, name)), to_numpy(getattr(expected, name)))


@every_method
@few
@given(task=tasks, preprocess=preprocessings)
def test_answers_are_probabilities_of_the_scores(case: str, task: Task, preprocess: str) -> None:
    found = task.solve(case, preprocess)
    b, q, c = *task.query.shape[:2], task.labels.max() + 1
    assert found.scores.shape == found.probabilities.shape == (b, q, c)
    assert found.labels.shape == found.reached.shape == (b, q)
    assert np.isfinite(found.scores).all()
    np.testing.assert_allclose(found.probabilities.sum(axis=-1), 1, rtol=1e-12)
    np.testing.assert_array_equal(found.probabilities, softmax(CASES[case][1].get("tau", 15.0) * found.scores))
    best = np.take_along_axis(found.classes, found.scores.argmax(axis=-1), axis=1)
    np.testing.assert_array_equal(found.labels[found.reached], best[found.reached])
    assert (found.scores[~found.reached] == 0).all()
    np.testing.assert_array_equal(found.steps, CASES[case][1].get("steps", 0))


@every_method
@few
@given(task=tasks, preprocess=preprocessings)
def test_batch_is_loop(case: str, task: Task, preprocess: str) -> None:
    together = task.solve(case, preprocess)
    for i in range(len(task.support)):
        one = slice(i, i + 1)
        alone = task.solve(
            case,
            preprocess,
            support=task.support[one],
            support_labels=task.labels[one],
            query=task.query[one],
            unlabelled=task.unlabelled[one],
        )
        same_numbers(alone.scores, together.scores[one])
        np.testing.assert_array_equal(alone.labels, together.labels[one])
        if together.losses is not None:
            same_numbers(alone.losses, together.losses[one])
        same_numbers(alone.anchors, together.anchors[one])


@every_method
@few
@given(task=tasks, preprocess=preprocessings)
def test_permuting_queries_permutes_the_answer(case: str, task: Task, preprocess: str) -> None:
    order = task.rng.permutation(task.query.shape[1])
    straight = task.solve(case, preprocess)
    permuted = task.solve(case, preprocess, query=task.query[:, order])
    same_numbers(permuted.scores, straight.scores[:, order])
    np.testing.assert_array_equal(permuted.labels, straight.labels[:, order])
    np.testing.assert_array_equal(permuted.reached, straight.reached[:, order])


@every_method
@few
@given(task=tasks, preprocess=preprocessings)
def test_the_order_of_the_support_does_not_matter(case: str, task: Task, preprocess: str) -> None:
    order = task.rng.permutation(task.support.shape[1])
    straight = task.solve(case, preprocess)
    permuted = task.solve(case, preprocess, support=task.support[:, order], support_labels=task.labels[:, order])
    same_answer(permuted, straight)
    if case in PROPAGATES:  # each anchor keeps its place among the caller's
        same_numbers(permuted.anchors, straight.anchors[:, order])


names = st.one_of(
    st.lists(st.integers(-(2**60), 2**60), min_size=5, max_size=5, unique=True),
    st.lists(st.text("abcxyzé ", max_size=4), min_size=5, max_size=5, unique=True),
    st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=5, unique=True),
)


@every_method
@few
@given(task=tasks, values=names)
def test_relabelling_classes_relabels_the_answer(case: str, task: Task, values: list[Any]) -> None:
    value_of = np.array(values)
    straight = task.solve(case)
    renamed = task.solve(case, support_labels=value_of[task.labels])
    np.testing.assert_array_equal(renamed.labels, value_of[straight.labels])
    assert renamed.labels.dtype == value_of.dtype
    for i, classes in enumerate(renamed.classes):
        assert classes.tolist() == sorted(value_of[straight.classes[i]].tolist())
        column = [classes.tolist().index(v) for v in value_of[straight.classes[i]].tolist()]
        same_numbers(renamed.scores[i][:, column], straight.scores[i])


@every_method
@few
@given(task=tasks)
def test_classes_of_each_task_are_its_own(case: str, task: Task) -> None:
    """Tasks of a batch need not share label values."""
    c = task.labels.max() + 1
    value_of = np.array([task.rng.permutation(100)[:c] for _ in task.labels])
    straight = task.solve(case)
    renamed = task.solve(case, support_labels=np.take_along_axis(value_of, task.labels, axis=1))
    np.testing.assert_array_equal(renamed.labels, np.take_along_axis(value_of, straight.labels, axis=1))


@every_method
@few
@given(task=tasks, preprocess=preprocessings, share=st.floats(0, 1))
def test_unlabelled_points_join_and_are_not_scored(case: str, task: Task, preprocess: str, share: float) -> None:
    """A query is answered the same whether the others are queries or unlabelled."""
    order = task.rng.permutation(task.query.shape[1])
    stay = order[: 1 + int(share * (len(order) - 1))]
    go = np.setdiff1d(order, stay)
    whole = task.solve(case, preprocess)
    others = np.concatenate([task.query[:, go], task.unlabelled], axis=1)
    part = task.solve(case, preprocess, query=task.query[:, stay], unlabelled=others)
    assert part.scores.shape[1] == len(stay)
    same_numbers(part.scores, whole.scores[:, stay])
    np.testing.assert_array_equal(part.labels, whole.labels[:, stay])
    np.testing.assert_array_equal(part.reached, whole.reached[:, stay])


@every_method
def test_unlabelled_points_matter_to_the_graph_alone(case: str) -> None:
    task = Task(seed=1, u=5)
    without = task.solve(case, unlabelled=None)
    empty = task.solve(case, unlabelled=task.unlabelled[:, :0])
    moved = np.abs(task.solve(case).scores - without.scores).max()
    assert moved > 1e-3 if case in PROPAGATES else moved < 1e-12
    same_answer(empty, without)


@every_method
@few
@given(task=tasks, preprocess=preprocessings)
def test_the_same_again_is_the_same_to_the_bit(case: str, task: Task, preprocess: str) -> None:
    before = [task.support.copy(), task.query.copy(), task.unlabelled.copy()]
    first, second = task.solve(case, preprocess), task.solve(case, preprocess)
    for name in ("scores", "probabilities", "labels", "anchors", "losses"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    for array, kept in zip([task.support, task.query, task.unlabelled], before, strict=True):
        np.testing.assert_array_equal(array, kept)


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
@pytest.mark.parametrize("case", [case for case in CASES if "fused" not in case])
@few
@given(task=tasks, preprocess=preprocessings)
def test_any_library_gives_the_same_numbers_in_its_own_arrays(
    case: str, library: str, task: Task, preprocess: str
) -> None:
    expected = task.solve(case, preprocess)
    found = task.solve(case, preprocess, convert=LIBRARIES[library])
    same_answer(found, expected)
    own = namespace(LIBRARIES[library]([0.0]))
    for name in ("scores", "probabilities", "labels", "classes", "reached", "steps", "converged", "anchors", "losses"):
        value = getattr(found, name)
        assert value is None or namespace(value) is own, name
    assert to_numpy(found.labels).dtype == np.int64
    if expected.losses is not None:
        same_numbers(found.losses, expected.losses)
    same_numbers(found.anchors, expected.anchors)


def test_a_tensor_that_wants_a_gradient_gets_numbers_without_one() -> None:
    """A graph over all steps would fill the memory: the loop's own gradient is a closed form."""
    task = Task(seed=2)
    support, query = torch.tensor(task.support, requires_grad=True), torch.tensor(task.query)
    found = task.solve("a2lp-batched", support=support, query=query, unlabelled=None)
    assert not found.scores.requires_grad
    same_answer(found, task.solve("a2lp-batched", unlabelled=None))


@few
@given(task=tasks)
def test_prototypical_is_the_plain_loop(task: Task) -> None:
    found = task.solve("prototypical")
    for i, labels in enumerate(task.labels):
        unit = [v / np.linalg.norm(v) for v in task.support[i]]
        means = [np.mean([v for v, label in zip(unit, labels, strict=True) if label == c], axis=0) for c in set(labels)]
        for query, scores in zip(task.query[i], found.scores[i], strict=True):
            expected = [-np.sum((query / np.linalg.norm(query) - mean) ** 2) for mean in means]
            np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)


@settings(max_examples=5, deadline=None)
@given(task=tasks)
def test_imprinting_is_torchs_adam_on_torchs_gradient(task: Task) -> None:
    found = task.solve("imprinting")
    for i, labels in enumerate(task.labels):
        support, query = (torch.nn.functional.normalize(torch.tensor(x[i]), dim=1) for x in (task.support, task.query))
        target = torch.tensor(labels)
        weights = torch.stack([support[target == c].mean(0) for c in range(int(labels.max()) + 1)]).requires_grad_()
        adam = torch.optim.Adam([weights], lr=TUNED["lr"])
        for step in range(TUNED["steps"]):
            logits = -0.5 * ((support[:, None] - weights[None]) ** 2).sum(-1)
            loss = torch.nn.functional.cross_entropy(TUNED["tau"] * logits, target)
            assert float(found.losses[i, step]) == pytest.approx(loss.item(), rel=1e-9)
            adam.zero_grad()
            loss.backward()
            adam.step()
        scores = -0.5 * ((query[:, None] - weights[None]) ** 2).sum(-1)
        same_numbers(found.scores[i], scores.detach())
        same_numbers(found.anchors[i], weights.detach())
