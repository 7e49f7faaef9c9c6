"""Checks that every method must pass, for this package's tests and for those of third parties.

``check_method(method)`` runs all of them. A test suite with a test for each check parametrises over ``CHECKS`` and
calls ``check(subject, task)`` with tasks of its own or of ``random_task``.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from a2lp.arrays import NDArray, namespace, softmax, to_numpy
from a2lp.errors import A2LPWarning
from a2lp.features.statistics import BaseStatistics
from a2lp.methods.base import Method
from a2lp.tasks.batch import Prediction, TaskBatch

LIBRARIES = ("torch", "array_api_strict")


class Task(NamedTuple):
    """A batch of tasks as arrays."""

    support: NDArray  # (b, s, d)
    labels: NDArray  # (b, s)
    query: NDArray  # (b, q, d)
    unlabelled: NDArray | None = None  # (b, u, d)


@dataclass(frozen=True)
class Subject:
    """A method and its expected properties; see ``check_method``."""

    method: Method
    transductive: bool = True
    class_order: bool = False
    atol: float = 1e-9
    named: bool = False
    point_order: bool = False

    def solve(self, task: Task, convert: Callable[[Any], Any] = np.asarray, **change: Any) -> Prediction:
        """Solve a task with some arrays changed.

        A method that uses base statistics gets those of random data. With names, the vector of a name is the mean of
        its class's support.
        """
        task = task._replace(**change)
        method = self.method
        if method.reads_statistics and (method.base is None or method.base.mean.shape != task.query.shape[-1:]):
            method = dataclasses.replace(method, base=random_base(task.query.shape[-1]))
        arrays = [None if array is None else convert(array) for array in task]
        names = {"prototypes": convert(name_vectors(task))} if self.named else {}
        return self._predict(method, TaskBatch(*arrays, **names))

    def solve_without_shots(self, task: Task, **change: Any) -> Prediction:
        """Solve a task from the names of its classes alone."""
        names = {"prototypes": name_vectors(task), "classes": np.stack([np.unique(row) for row in task.labels])}
        task = task._replace(**change)
        none = task.support[:, :0], task.labels[:, :0]
        return self._predict(self.method, TaskBatch(*none, task.query, task.unlabelled, **names))

    def _predict(self, method: Method, batch: TaskBatch) -> Prediction:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", A2LPWarning)  # such as fewer points than neighbours
            return method.predict(batch)

    def same(self, found: Any, expected: Any, what: str) -> None:
        """Fail unless two arrays of scores are the same up to rounding."""
        message = f"{what} ({type(self.method).__name__})"
        np.testing.assert_allclose(to_numpy(found), to_numpy(expected), rtol=0, atol=self.atol, err_msg=message)

    def same_labels(self, found: Any, expected: Any, scores: Any) -> None:
        """Fail unless labels are the same, except where scores are tied up to rounding."""
        ordered = np.sort(to_numpy(scores), axis=-1)
        decided = ordered[..., -1] - ordered[..., -2:-1].max(axis=-1, initial=-np.inf) > 10 * self.atol
        message = f"labels ({type(self.method).__name__})"
        np.testing.assert_array_equal(to_numpy(found)[decided], to_numpy(expected)[decided], err_msg=message)


def random_task(
    seed: int, *, b: int = 2, c: int = 3, extra: int = 2, q: int = 9, u: int = 3, d: int = 8, dtype: Any = np.float64
) -> Task:
    """Clustered continuous vectors without ties, with unequal shots in random order.

    b tasks of c classes, q queries and u unlabelled points in d dimensions; ``extra`` shots beyond one a class.
    """
    rng = np.random.default_rng(seed)
    labels = np.stack([rng.permutation(np.r_[np.arange(c), rng.integers(0, c, extra)]) for _ in range(b)])
    tasks = np.arange(b)[:, None]
    centres = rng.normal(size=(b, c, d))
    support = centres[tasks, labels] + rng.normal(size=(b, c + extra, d))
    query = centres[tasks, rng.integers(0, c, (b, q))] + rng.normal(size=(b, q, d))
    unlabelled = rng.normal(size=(b, u, d))
    return Task(support.astype(dtype), labels, query.astype(dtype), unlabelled.astype(dtype))


def name_vectors(task: Task) -> NDArray:
    """The mean support vector of each class (b, c, d), classes sorted: as good as a vector of its name."""
    means = [
        [vectors[labels == label].mean(axis=0) for label in np.unique(labels)]
        for vectors, labels in zip(task.support, task.labels, strict=True)
    ]
    return np.array(means, dtype=task.support.dtype)


def random_base(d: int) -> BaseStatistics:
    """Statistics of random base classes of ``d`` dimensions."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 10)
    return BaseStatistics.of(rng.normal(size=(6, d))[labels] + 0.5 * rng.normal(size=(60, d)), labels)


def edge_tasks() -> dict[str, Task]:
    """Edge cases by name: equal points, zeros, one class, one query and the like."""
    rng = np.random.default_rng(0)
    zeros = np.zeros
    return {
        "all points equal": _one(np.full((3, 4), 2.0), [1, 0, 0], np.full((5, 4), 2.0)),
        "all zero": _one(zeros((2, 3)), [1, 0], zeros((3, 3))),
        "only the support is not zero": _one([[3, 4], [4, 3]], [1, 0], zeros((2, 2))),
        "a zero support vector": _one([[0, 0], [0, 1], [1, 0]], [0, 2, 1], [[3, 4], [4, 3]]),
        "a zero query": _one([[1, 0], [0, 1]], [1, 0], [[0, 0], [3, 4]]),
        "at right angles": _one([[1, 0, 0], [0, 1, 0]], ["b", "a"], [[3, 1, 0], [0, 0, 2], [1, 3, 0]]),
        "opposite": _one([[1, 0], [0, 1]], [7, 3], [[-1, -2], [-2, -1], [2, 1]]),
        "the support among the queries": _one([[2, 0, 0], [0, 2, 0]], [1, 0], [[2, 0, 0], [0, 2, 0], [0, 2, 0]]),
        "one vector under two labels": _one([[1, 0], [1, 0], [0, 1]], [1, 0, 1], [[1, 0], [3, 4]]),
        "one class": _one(rng.random((3, 4)), ["x", "x", "x"], rng.random((6, 4))),
        "one query": _one(rng.random((4, 5)), [0, 1, 1, 2], rng.random((1, 5))),
        "one support vector, one query": _one([[1, 2]], [4], [[2, 1]]),
        "one dimension": _one([[2], [-3], [1]], [1, 0, 0], [[5], [-1], [0], [4]]),
        "classes without queries": _one(5 * np.eye(4), [0, 1, 2, 3], 5 * np.eye(4)[0] + 0.1 * rng.random((9, 4))),
        "twenty ways, unequal shots": _one(
            rng.random((27, 9)), [*range(19, -1, -1), 3, 3, 3, 19, 0, 7, 3], rng.random((20, 9))
        ),
        "more shots than queries": _one(rng.random((30, 6)), [0, 1] * 15, rng.random((4, 6))),
        "large numbers": _one(1e4 * rng.normal(size=(4, 6)), [0, 1, 1, 0], 1e4 * rng.normal(size=(9, 6))),
        "small numbers": _one(1e-4 * rng.normal(size=(4, 6)), [0, 1, 1, 0], 1e-4 * rng.normal(size=(9, 6))),
    }


def check_shapes(subject: Subject, task: Task) -> None:
    """Scores, probabilities and labels have the right shapes, and fit together."""
    found = subject.solve(task)
    (b, q, _), c = task.query.shape, len(np.unique(task.labels[0]))
    assert found.scores.shape == found.probabilities.shape == (b, q, c), f"scores have shape {found.scores.shape}"
    assert found.labels.shape == found.reached.shape == (b, q)
    assert found.steps.shape == found.converged.shape == (b,)
    assert found.scores.dtype == task.query.dtype, f"scores of {task.query.dtype} vectors are {found.scores.dtype}"
    assert np.isfinite(found.scores).all(), "scores are not finite"
    np.testing.assert_allclose(found.probabilities.sum(axis=-1), 1, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(found.probabilities, softmax(subject.method.tau * found.scores))
    best = np.take_along_axis(found.classes, found.scores.argmax(axis=-1), axis=1)
    np.testing.assert_array_equal(found.labels[found.reached], best[found.reached])
    assert (found.scores[~found.reached] == 0).all(), "queries that are not reached must have scores of zero"
    assert found.engine and found.reason


def check_batch_is_loop(subject: Subject, task: Task) -> None:
    """A batch gives the same as its tasks one by one."""
    together = subject.solve(task)
    for i in range(len(task.support)):
        one = slice(i, i + 1)
        arrays: list[Any] = [None if array is None else array[one] for array in task]
        alone = subject.solve(Task(*arrays))
        subject.same(alone.scores, together.scores[one], "a task alone and in a batch")
        subject.same_labels(alone.labels, together.labels[one], alone.scores)
        for name in ("anchors", "losses"):
            if getattr(together, name) is not None:
                subject.same(getattr(alone, name), getattr(together, name)[one], f"{name} of a task alone")


def check_query_order(subject: Subject, task: Task) -> None:
    """Permuted queries have permuted scores: the order of the queries does not matter."""
    if subject.point_order:
        return
    order = np.random.default_rng(1).permutation(task.query.shape[1])
    straight, permuted = subject.solve(task), subject.solve(task, query=task.query[:, order])
    subject.same(permuted.scores, straight.scores[:, order], "permuted queries")
    subject.same_labels(permuted.labels, straight.labels[:, order], permuted.scores)


def check_support_order(subject: Subject, task: Task) -> None:
    """The order of the support does not matter."""
    order = np.random.default_rng(2).permutation(task.support.shape[1])
    permuted = subject.solve(task, support=task.support[:, order], labels=task.labels[:, order])
    subject.same(permuted.scores, subject.solve(task).scores, "permuted support vectors")


def check_relabelling(subject: Subject, task: Task) -> None:
    """Renaming the classes, in each task differently, renames the labels only."""
    rng = np.random.default_rng(3)
    c = len(np.unique(task.labels[0]))
    codes = np.stack([np.unique(row, return_inverse=True)[1] for row in task.labels])
    names = np.stack([rng.permutation(100)[:c] for _ in codes])
    if subject.class_order:
        names = np.sort(names, axis=1)
    straight = subject.solve(task, labels=codes)
    renamed = subject.solve(task, labels=np.take_along_axis(names, codes, axis=1))
    subject.same_labels(renamed.labels, np.take_along_axis(names, straight.labels, axis=1), straight.scores)
    columns = np.argsort(np.argsort(names, axis=1), axis=1)[:, None, :]
    subject.same(np.take_along_axis(renamed.scores, columns, axis=2), straight.scores, "renamed classes")


def check_unlabelled_join(subject: Subject, task: Task) -> None:
    """A query has the same scores whether the others are queries or unlabelled points."""
    if subject.point_order:
        return
    q, none = task.query.shape[1], task.query[:, :0]
    stay = np.random.default_rng(4).permutation(q)[: 1 + q // 2]
    go = np.setdiff1d(np.arange(q), stay)
    unlabelled = np.concatenate([task.query[:, go], none if task.unlabelled is None else task.unlabelled], axis=1)
    part = subject.solve(task, query=task.query[:, stay], unlabelled=unlabelled)
    subject.same(part.scores, subject.solve(task).scores[:, stay], "other queries as unlabelled points")
    without, empty = subject.solve(task, unlabelled=None), subject.solve(task, unlabelled=none)
    subject.same(empty.scores, without.scores, "an empty array of unlabelled points")
    if not subject.transductive:
        subject.same(part.scores, subject.solve(task, query=task.query[:, stay], unlabelled=None).scores, "one by one")


def check_without_shots(subject: Subject, task: Task) -> None:
    """A method with names labels tasks without any support, whatever the order of the queries."""
    if not subject.named:
        return
    found, c = subject.solve_without_shots(task), len(np.unique(task.labels[0]))
    assert found.scores.shape == (*task.query.shape[:2], c)
    assert np.isfinite(found.scores).all(), "scores are not finite"
    if subject.point_order:
        return
    order = np.random.default_rng(5).permutation(task.query.shape[1])
    permuted = subject.solve_without_shots(task, query=task.query[:, order])
    subject.same(permuted.scores, found.scores[:, order], "permuted queries without shots")


def check_determinism(subject: Subject, task: Task) -> None:
    """A second call gives the same bits, and the input arrays are unchanged."""
    before = [None if array is None else array.copy() for array in task]
    first, second = subject.solve(task), subject.solve(task)
    for name in ("scores", "probabilities", "labels", "anchors", "losses"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    for array, kept in zip(task, before, strict=True):
        np.testing.assert_array_equal(array, kept, err_msg="the method wrote into its input")


def check_library(subject: Subject, task: Task, library: str) -> None:
    """Arrays of another library give the same numbers, as arrays of that library."""
    asarray = importlib.import_module(library).asarray
    expected, found = subject.solve(task), subject.solve(task, asarray)
    subject.same(found.scores, expected.scores, f"{library} and NumPy")
    subject.same(found.probabilities, expected.probabilities, f"probabilities of {library} and NumPy")
    subject.same_labels(found.labels, expected.labels, expected.scores)
    for name in ("reached", "steps", "converged"):
        np.testing.assert_array_equal(to_numpy(getattr(found, name)), getattr(expected, name), err_msg=name)
    own = namespace(asarray([0.0]))
    for name in ("scores", "probabilities", "labels", "classes", "reached", "steps", "converged", "anchors", "losses"):
        value = getattr(found, name)
        assert value is None or namespace(value) is own, f"{name} is not an array of {library}"
    for name in ("anchors", "losses"):
        if getattr(expected, name) is not None:
            subject.same(getattr(found, name), getattr(expected, name), f"{name} of {library}")


def check_edge(subject: Subject, task: Task) -> None:
    """An edge case gives finite numbers, labels of the task for all queries, and no warnings."""
    found = subject.solve(task)
    assert np.isfinite(found.scores).all(), f"scores {found.scores}"
    assert np.isfinite(found.probabilities).all()
    np.testing.assert_allclose(found.probabilities.sum(axis=-1), 1, rtol=0, atol=1e-5)
    assert set(found.labels[0].tolist()) <= set(task.labels[0].tolist())


CHECKS: tuple[Callable[[Subject, Task], None], ...] = (
    check_shapes,
    check_batch_is_loop,
    check_query_order,
    check_support_order,
    check_relabelling,
    check_unlabelled_join,
    check_without_shots,
    check_determinism,
)


def check_method(
    method: Method,
    *,
    transductive: bool = True,
    class_order: bool = False,
    atol: float = 1e-9,
    named: bool | None = None,
    point_order: bool = False,
    libraries: Iterable[str] | None = None,
) -> None:
    """Run all checks on a method; an AssertionError names what does not hold.

    Parameters
    ----------
    method : Method
        With parameters that make it quick. If it uses statistics of base classes it gets those of random data.
    transductive : bool
        Whether queries may influence each other's scores.
    class_order : bool
        Whether the order of the classes may matter, as for networks with one input per class.
    atol : float
        Largest difference of scores that should be equal, in float64.
    named : bool, optional
        Whether tasks have vectors of class names; by default for methods that require them.
    point_order : bool
        Whether the order of the queries may matter, as for methods of streams.
    libraries : iterable of str, optional
        Array libraries beside NumPy; by default those of ``LIBRARIES`` that are installed.

    Examples
    --------
    >>> import a2lp
    >>> from a2lp.testing import check_method
    >>> check_method(a2lp.create("prototypical"), transductive=False, libraries=[])
    """
    named = method.uses_names == "required" if named is None else named
    subject = Subject(method, transductive, class_order, atol, named, point_order)
    if libraries is None:
        libraries = [name for name in LIBRARIES if importlib.util.find_spec(name) is not None]
    tasks = [random_task(0), random_task(1, b=3, c=5, extra=0, q=12, u=0, d=33), random_task(2, b=1, c=2, q=1)]
    for task in tasks:
        for check in CHECKS:
            check(subject, task)
        for library in libraries:
            check_library(subject, task, library)
    check_shapes(subject, random_task(3, dtype=np.float32))
    for name, task in edge_tasks().items():
        try:
            check_edge(subject, task)
        except Exception as error:
            raise AssertionError(f"at the edge, {name}: {type(error).__name__}: {error}") from error


def _one(support: Any, labels: Iterable[Any], query: Any) -> Task:
    arrays = [np.asarray(x, dtype=np.float64)[None] for x in (support, query)]
    return Task(arrays[0], np.array([list(labels)]), arrays[1])
