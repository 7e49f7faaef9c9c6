"""Random and degenerate tasks through every method and engine: finite, in the classes, and the same one at a time."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.arrays import to_numpy
from a2lp.errors import A2LPError
from a2lp.methods.registry import create, list_methods
from a2lp.testing import Subject, Task, random_task

NDArray = np.ndarray[Any, Any]


def usual(task: Task, rng: np.random.Generator) -> Task:
    return task


def scaled(task: Task, rng: np.random.Generator) -> Task:
    """Very small or very large vectors."""
    factor = 10.0 ** rng.integers(-12, 13)
    return task._replace(support=task.support * factor, query=task.query * factor)


def equal(task: Task, rng: np.random.Generator) -> Task:
    """Queries that are copies of each other or of labelled points."""
    points = np.concatenate([task.support, task.query], axis=1)
    rows = rng.integers(0, rng.integers(1, points.shape[1] + 1), task.query.shape[1])
    return task._replace(query=points[:, rows])


def zeros(task: Task, rng: np.random.Generator) -> Task:
    """Some points at the origin."""
    kept = rng.random(task.query.shape[:2]) < 0.5
    return task._replace(query=task.query * kept[..., None], support=task.support * rng.integers(0, 2))


def flat(task: Task, rng: np.random.Generator) -> Task:
    """All points on a line, or with the same value in most dimensions."""
    keep = np.arange(task.query.shape[-1]) < rng.integers(1, 3)
    return task._replace(support=np.where(keep, task.support, 1.0), query=np.where(keep, task.query, 1.0))


def positive(task: Task, rng: np.random.Generator) -> Task:
    """As after a ReLU: many zeros."""
    return task._replace(support=np.maximum(task.support, 0), query=np.maximum(task.query, 0))


def far(task: Task, rng: np.random.Generator) -> Task:
    """All points far from the origin, so that they look alike, or one far from all others."""
    shift = 10.0 ** rng.integers(1, 5)
    if rng.random() < 0.5:
        return task._replace(support=task.support + shift, query=task.query + shift)
    query = task.query.copy()
    query[:, 0] += shift
    return task._replace(query=query)


KINDS = (usual, scaled, equal, zeros, flat, positive, far)


@cache
def methods() -> tuple[tuple[str, str | None], ...]:
    """All methods that need no weights, with each engine of theirs that runs without a GPU."""
    found: list[tuple[str, str | None]] = []
    for name in list_methods():
        method = create(name)
        if hasattr(method, "weights"):
            continue
        engines = [each for each in method.loop.names if "cuda" not in each] if method.loop else [None]
        found += [(name, engine) for engine in engines]
    return tuple(found)


def run(case: int, folder: Path) -> str:
    """One task batch through one method and engine."""
    rng = np.random.default_rng(case)
    name, engine = methods()[int(rng.integers(len(methods())))]
    kind = KINDS[int(rng.integers(len(KINDS)))]
    c, dtype = int(rng.integers(1, 7)), rng.choice([np.float32, np.float64])
    sizes = {"b": int(rng.integers(1, 4)), "c": c, "extra": int(rng.integers(0, 6)), "q": int(rng.integers(1, 30))}
    task = kind(random_task(case, **sizes, u=0, d=int(rng.integers(1, 40))), rng)
    task = Task(task.support.astype(dtype), task.labels, task.query.astype(dtype))
    method = create(name) if engine is None else dataclasses.replace(create(name), engine=engine)
    subject = Subject(method, named=method.uses_names == "required")
    words = f"{name}, engine {engine}, {kind.__name__}, {sizes}, d={task.query.shape[-1]}, {np.dtype(dtype).name}"
    try:
        found = subject.solve(task)
    except A2LPError:
        return "refused"
    scores, shares = to_numpy(found.scores), to_numpy(found.probabilities)
    assert np.isfinite(scores).all() and np.isfinite(shares).all(), f"not finite: {words}"
    np.testing.assert_allclose(shares.sum(axis=-1), 1, rtol=0, atol=1e-3, err_msg=words)
    for row, labels in enumerate(to_numpy(found.labels)):
        assert np.isin(labels, task.labels[row]).all(), f"a label that is no class: {words}"
    check_one_by_one(subject, task, found, words)
    return f"{name}: solved"


def check_one_by_one(subject: Subject, task: Task, found: Any, words: str) -> None:
    """A task alone has the labels that it has in the batch, unless two classes are about equally likely."""
    for row in range(len(task.support)):
        alone = subject.solve(Task(task.support[row : row + 1], task.labels[row : row + 1], task.query[row : row + 1]))
        ordered = np.sort(to_numpy(found.probabilities)[row], axis=-1)
        decided = ordered[:, -1] - (ordered[:, -2] if ordered.shape[1] > 1 else 0) > 0.05
        one, all_together = to_numpy(alone.labels)[0], to_numpy(found.labels)[row]
        assert (one == all_together)[decided].all(), f"task {row} alone gives other labels: {words}"
