"""Run cells: gather tasks in blocks, time ``predict``, count right answers, keep records."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from a2lp import environment
from a2lp.arrays import chunks, to_numpy
from a2lp.bench.protocol import Cell
from a2lp.bench.records import Record, RecordStore
from a2lp.errors import InputError, MissingExtraError
from a2lp.tasks.batch import TaskBatch

Progress = Callable[[Cell, int], None]

BLOCK = 100  # tasks whose vectors are gathered at a time, so memory does not grow with their number


def run(cells: Sequence[Cell], store: RecordStore | None = None, progress: Progress | None = None) -> list[Record]:
    """The records of some cells, in their order; those that ``store`` has already are not run again.

    Parameters
    ----------
    cells : sequence of Cell
        What to measure.
    store : RecordStore, optional
        Where finished cells are kept.
    progress : callable, optional
        Called as ``progress(cell, n_done)`` with the number of tasks done, from 0 to all of them.
    """
    report = progress or no_progress
    return [kept(store, cell.key, partial(measure, cell, report)) for cell in cells]


def kept(store: RecordStore | None, key: str, make: Callable[[], Record]) -> Record:
    """The record that the store has under a key, or a new one, which it has from now on."""
    record = store.get(key) if store else None
    if record is None:
        record = make()
        if store:
            store.put(record)
    return record


def measure(cell: Cell, progress: Progress) -> Record:
    """Run one cell."""
    features, tasks = cell.episodes.features.features, cell.episodes.tasks
    move = mover(cell.device)
    accuracies: list[float] = []
    seconds, engine = 0.0, ""
    progress(cell, 0)
    cell.method.predict(move(tasks[:1].batch(features)))  # what is compiled or loaded at first is not the method's time
    for block in chunks(len(tasks), BLOCK):
        part = tasks[block]
        batch = move(part.batch(features))
        start = time.perf_counter()
        prediction = cell.method.predict(batch)
        answers = to_numpy(prediction.labels)  # also waits for a device that works on its own
        seconds += time.perf_counter() - start
        accuracies += (100.0 * (answers == part.query_labels).mean(axis=1)).tolist()
        engine = prediction.engine
        progress(cell, block.stop)
    return new_record(cell.config, cell.key, accuracies, seconds, engine)


def new_record(
    config: dict[str, Any],
    key: str,
    accuracies: list[float],
    seconds: float,
    engine: str,
    trace: dict[str, Any] | None = None,
) -> Record:
    """A record of now and here."""
    return Record(
        key=key,
        config=config,
        accuracies=accuracies,
        seconds=seconds,
        engine=engine,
        trace=trace,
        versions=environment.versions(),
        hardware=environment.hardware(config["device"]),
        commit=environment.commit(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
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
