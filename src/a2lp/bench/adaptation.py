"""How the steps of ``a2lp`` change a task: curves and a picture for the report."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from a2lp.arrays import chunks, to_numpy
from a2lp.bench.predict import mover, new_record
from a2lp.bench.protocol import Cell, Episodes
from a2lp.bench.records import Record, RecordStore, content_key
from a2lp.bench.run import Progress
from a2lp.bench.statistics import Matrix, estimate
from a2lp.engines.contract import Step
from a2lp.preprocess import l2, preprocess

TASKS = 100  # enough for a curve
BLOCK = 20  # tasks between two updates of a progress bar
POINTS = 26  # of a curve


class TaskPicture(NamedTuple):
    """One task in two dimensions, before and after adaptation."""

    anchors_before: Matrix  # (s, 2)
    anchors_after: Matrix  # (s, 2)
    anchor_labels: Matrix  # (s,)
    queries: Matrix  # (q, 2)
    query_labels: Matrix  # (q,)
    right_before: Matrix  # (q,)
    right_after: Matrix  # (q,)
    explained: float  # share of the variance that the two axes show


def adaptation(cell: Cell, store: RecordStore | None, progress: Progress) -> Record:
    """Accuracy, loss and movement of the anchors along the steps of ``a2lp``, on the first tasks of a cell.

    The curves are in the record's ``trace``: ``steps``, ``accuracy`` and its ``ci95``, ``loss``, ``shift`` (mean
    distance of the anchors from where they started) and ``norm`` (their mean length).
    """
    cell = dataclasses.replace(cell, episodes=Episodes(cell.episodes.features, cell.episodes.tasks[:TASKS]))
    config = cell.config | {"study": "adaptation", "points": POINTS}
    if store and (stored := store.get(content_key(config))):
        return stored
    tasks, move = cell.episodes.tasks, mover(cell.device)
    method: Any = cell.method
    steps = np.unique(np.linspace(0, method.steps - 1, POINTS).round().astype(int))
    curves = {name: np.full((len(steps), len(tasks)), np.nan) for name in ("accuracy", "loss", "shift", "norm")}
    begun, engine = time.perf_counter(), ""
    progress(cell, 0)
    for block in chunks(len(tasks), BLOCK):
        part = tasks[block]
        callback = _recorder(steps, part.query_labels, {name: curve[:, block] for name, curve in curves.items()})
        engine = method.predict(move(part.batch(cell.episodes.features.features)), callback).engine
        progress(cell, block.stop)
    for curve in curves.values():
        for i in range(1, len(steps)):  # a task that stopped early keeps its last value
            curve[i] = np.where(np.isnan(curve[i]), curve[i - 1], curve[i])
    trace = {name: curve.mean(axis=1).tolist() for name, curve in curves.items()}
    trace |= {"steps": steps.tolist(), "ci95": [estimate(row).ci95 for row in curves["accuracy"].tolist()]}
    seconds = time.perf_counter() - begun
    record = new_record(method, config, curves["accuracy"][-1].tolist(), seconds, engine, trace=trace)
    if store:
        store.put(record)
    return record


def _recorder(steps: Matrix, query_labels: Matrix, curves: dict[str, Matrix]) -> Callable[[Step], None]:
    """A callback that writes accuracy, loss, shift and norm at some of the steps into ``curves``."""
    rows = {int(step): row for row, step in enumerate(steps)}
    start = np.empty(0)

    def record(step: Step) -> None:
        nonlocal start
        if step.number not in rows:
            return
        anchors = to_numpy(step.anchors)
        if step.number == 0:
            start = anchors
        s, labels = anchors.shape[1], query_labels[step.tasks]
        z = to_numpy(step.z)[:, s : s + labels.shape[1]]
        right = (z.argmax(axis=-1) == labels) & (z.max(axis=-1) > 0)
        where = rows[step.number], step.tasks
        curves["accuracy"][where] = 100.0 * right.mean(axis=1)
        curves["loss"][where] = to_numpy(step.losses)
        curves["shift"][where] = np.linalg.norm(anchors - start, axis=-1).mean(axis=1)
        curves["norm"][where] = np.linalg.norm(anchors, axis=-1).mean(axis=1)

    return record


def most_helped(cell: Cell, record: Record) -> int:
    """Which of the first tasks gained most from adaptation, against the same method without steps."""
    method: Any = cell.method
    tasks = cell.episodes.tasks[:TASKS]
    labels = dataclasses.replace(method, steps=0).predict(tasks.batch(cell.episodes.features.features)).labels
    before = 100.0 * (labels == tasks.query_labels).mean(axis=1)
    return int(np.argmax(np.array(record.accuracies[:TASKS]) - before))


def task_picture(cell: Cell, index: int) -> TaskPicture:
    """One task of an ``a2lp`` cell on the two main axes of its points."""
    tasks = cell.episodes.tasks[index : index + 1]
    batch = tasks.batch(cell.episodes.features.features)
    method: Any = cell.method
    before, after = dataclasses.replace(method, steps=0).predict(batch), method.predict(batch)
    points = l2(preprocess(method.preprocess, batch.points, method.base))[0]
    queries = points[batch.n_support : batch.n_support + batch.n_query]
    centre = points.mean(axis=0)
    _, sizes, axes = np.linalg.svd(points - centre, full_matrices=False)
    vectors = (before.anchors[0], after.anchors[0], queries)
    before_2d, after_2d, queries_2d = ((x - centre) @ axes[:2].T for x in vectors)
    labels = tasks.query_labels[0]
    explained = float((sizes[:2] ** 2).sum() / (sizes**2).sum())
    right = (before.labels[0] == labels, after.labels[0] == labels)
    return TaskPicture(before_2d, after_2d, tasks.support_labels[0], queries_2d, labels, *right, explained)
