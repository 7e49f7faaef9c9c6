"""Run cells: gather tasks in blocks, time ``predict``, count right answers, keep records."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from a2lp import environment
from a2lp.arrays import to_numpy
from a2lp.bench.protocol import Cell
from a2lp.bench.records import Record, RecordStore
from a2lp.errors import InputError, MissingExtraError
from a2lp.methods.base import Method
from a2lp.tasks.batch import TaskBatch

Progress = Callable[[Cell, int], None]

BLOCK = 100  # tasks whose vectors are gathered at a time, so memory does not grow with their number


def run(
    cells: Sequence[Cell],
    store: RecordStore | None = None,
    progress: Progress | None = None,
    *,
    limit: float | None = None,
    keep_going: bool = False,
) -> list[Record]:
    """The records of some cells, in their order; what ``store`` has already is not run again.

    Parameters
    ----------
    cells : sequence of Cell
        What to measure.
    store : RecordStore, optional
        Where finished cells are kept.
    progress : callable, optional
        Called as ``progress(cell, n_done)`` with the number of tasks done, from 0 to all of them.
    limit : float, optional
        Seconds of prediction after which a cell is stopped; its record has the tasks that were done, and goes on from
        there under a higher limit.
    keep_going : bool
        Whether a method that raises an error is recorded as failed and the others go on. Where all fail, the first
        error is raised.
    """
    report = progress or no_progress
    records: list[Record] = []
    first_error: Exception | None = None
    for cell in cells:
        try:
            records.append(_finished(cell, store, report, limit))
        except Exception as error:
            if not keep_going:
                raise
            first_error = first_error or error
            reason = f"{type(error).__name__}: {error}"
            records.append(replace(new_record(cell.config, cell.key, [], 0.0, "", method=cell.method), failed=reason))
    if first_error is not None and all(record.failed for record in records):
        raise first_error
    return records


def kept(store: RecordStore | None, key: str, make: Callable[[], Record]) -> Record:
    """The record that the store has under a key, or a new one, which it has from now on."""
    record = store.get(key) if store else None
    if record is None:
        record = make()
        if store:
            store.put(record)
    return record


def _finished(cell: Cell, store: RecordStore | None, progress: Progress, limit: float | None) -> Record:
    """The record of a cell from the store, or measured as far as the limit allows."""
    begun = store.get(cell.key) if store else None
    if begun is not None and (begun.whole or (limit is not None and begun.seconds >= limit)):
        return begun
    record = measure(cell, progress, limit, begun)
    if store:
        store.put(record)
    return record


def measure(cell: Cell, progress: Progress, limit: float | None = None, begun: Record | None = None) -> Record:
    """Run one cell, from the start or from where an earlier record of it stopped."""
    features, tasks = cell.episodes.features.features, cell.episodes.tasks
    move = mover(cell.device)
    accuracies: list[float] = list(begun.accuracies) if begun else []
    seconds, engine = (begun.seconds, begun.engine) if begun else (0.0, "")
    size = BLOCK
    progress(cell, 0)
    start = time.perf_counter()
    cell.method.predict(move(tasks[:1].batch(features)))  # what is compiled or loaded at first is not the method's time
    if limit is not None:
        size = _block(limit - seconds, time.perf_counter() - start, 1)
    while len(accuracies) < len(tasks) and (limit is None or seconds < limit or not accuracies):
        part = tasks[len(accuracies) : len(accuracies) + size]
        batch = move(part.batch(features))
        start = time.perf_counter()
        prediction = cell.method.predict(batch)
        answers = to_numpy(prediction.labels)  # also waits for a device that works on its own
        took = time.perf_counter() - start
        seconds += took
        accuracies += (100.0 * (answers == part.query_labels).mean(axis=1)).tolist()
        engine = prediction.engine
        progress(cell, len(accuracies))
        if limit is not None:
            size = _block(limit - seconds, took, len(part))
    stopped = limit if len(accuracies) < len(tasks) else None
    record = new_record(cell.config, cell.key, accuracies, seconds, engine, method=cell.method)
    return replace(record, limit=stopped)


def _block(left: float, took: float, n: int) -> int:
    """How many tasks to do next so that a limit is not passed by much, if the last ``n`` took so long."""
    return max(1, min(BLOCK, int(left / (took / n + 1e-9))))


def new_record(
    config: dict[str, Any],
    key: str,
    accuracies: list[float],
    seconds: float,
    engine: str,
    trace: dict[str, Any] | None = None,
    *,
    method: Method,
) -> Record:
    """A record of now and here."""
    return Record(
        key=key,
        config=config,
        accuracies=accuracies,
        seconds=seconds,
        engine=engine,
        trace=trace,
        **environment.stamp(config["device"]),
        uniform=method.uniform,
        uses_base=method.uses_base,
    )


def mover(device: str) -> Callable[[TaskBatch], TaskBatch]:
    """A function that brings a batch to a device."""
    if device == "cpu":
        return lambda batch: batch
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(f"device {device!r}", "torch", "torch") from error
    try:
        where = torch.device("cpu" if device == "torch" else device)
        torch.zeros(1, device=where)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(
            f"device {device!r} cannot be used ({reason}). Use 'cpu' (NumPy), 'torch' (torch on the CPU), or a device "
            "that this torch has."
        ) from error

    def move(batch: TaskBatch) -> TaskBatch:
        support, query = (torch.from_numpy(x).to(where) for x in (batch.support, batch.query))
        unlabelled = None if batch.unlabelled is None else torch.from_numpy(batch.unlabelled).to(where)
        return TaskBatch(support, batch.support_labels, query, unlabelled)

    return move


def no_progress(cell: Cell, done: int) -> None:
    """For those who do not want to know."""
