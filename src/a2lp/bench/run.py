"""Run cells: gather tasks in blocks, time ``predict``, compute accuracies, keep records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from a2lp import environment
from a2lp.arrays import to_numpy
from a2lp.bench.protocol import Cell, Episodes
from a2lp.bench.records import Record, RecordStore, content_key
from a2lp.errors import InputError, MissingExtraError
from a2lp.methods.base import Method
from a2lp.tasks.batch import TaskBatch

Progress = Callable[[Cell, int], None]

HOST_BLOCK = 100  # tasks gathered at a time on the CPU, where larger blocks are no faster
DEVICE_BYTES = 2 << 30  # of vectors gathered at a time for an accelerator; also bounds the memory of the host

_log = logging.getLogger(__name__)


def run(
    cells: Sequence[Cell],
    store: RecordStore | None = None,
    progress: Progress | None = None,
    *,
    limit: float | None = None,
    keep_going: bool = False,
) -> list[Record]:
    """The records of some cells, in their order; cells with a record in ``store`` are not run again.

    A cell is stopped after ``limit`` seconds of prediction. Its record has the tasks that were done; a higher limit
    continues from there, on the same machine and code. With ``keep_going``, a method that raises an error is recorded
    as failed, and the others run; if all fail, the first error is raised.
    """
    if store is not None and (done := sum(cell.key in store for cell in cells)):
        _log.info("%d of %d cells are in %s and are not run again.", done, len(cells), store.folder)
    records: list[Record] = []
    first_error: Exception | None = None
    for cell in cells:
        try:
            record = store.get(cell.key) if store else None
            if record is None or not (record.whole or (limit is not None and record.seconds >= limit)):
                record = _measure(cell, progress or no_progress, limit, record)
                if store:
                    store.put(record)
            records.append(record)
        except Exception as error:
            if not keep_going:
                raise
            first_error = first_error or error
            failed = f"{type(error).__name__}: {error}"
            records.append(new_record(cell.method, cell.config, [], 0.0, "", failed=failed))
    if first_error is not None and all(record.failed for record in records):
        raise first_error
    return records


def _measure(cell: Cell, progress: Progress, limit: float | None, begun: Record | None) -> Record:
    """Run one cell, from the start or from where an earlier record of it stopped."""
    tasks = cell.episodes.tasks
    move = mover(cell.device)
    if begun is not None:  # a record has one stamp: all of it is measured by the same code on the same machine
        stamp = environment.stamp(cell.device)
        versions = {name: begun.versions.get(name) for name in stamp["versions"]}  # others are not loaded yet
        if (versions, begun.hardware, begun.commit) != (stamp["versions"], stamp["hardware"], stamp["commit"]):
            begun = None
    accuracies = list(begun.accuracies) if begun else []
    seconds, engine = (begun.seconds, begun.engine) if begun else (0.0, "")
    largest = block_size(cell.device, bytes_per_task(cell.episodes), free_memory(cell.device))
    progress(cell, 0)
    start = time.perf_counter()
    cell.method.predict(move(cell.episodes.batch(slice(0, 1))))  # compiling and loading is not the method's time

    def next_size(took: float, n_tasks: int) -> int:
        """How many tasks to do next without exceeding the limit by much, at the speed of the last ones."""
        if limit is None:
            return largest
        return max(1, min(largest, int((limit - seconds) / (took / n_tasks + 1e-9))))

    size = next_size(time.perf_counter() - start, 1)
    while len(accuracies) < len(tasks) and (limit is None or seconds < limit or not accuracies):
        done = slice(len(accuracies), len(accuracies) + size)
        part, batch = tasks[done], move(cell.episodes.batch(done))
        start = time.perf_counter()
        prediction = cell.method.predict(batch)
        labels = to_numpy(prediction.labels)  # also waits for a device that computes asynchronously
        took = time.perf_counter() - start
        seconds += took
        accuracies += (100.0 * (labels == part.query_labels).mean(axis=1)).tolist()
        engine = prediction.engine
        progress(cell, len(accuracies))
        size = next_size(took, len(part))
    stopped = limit if len(accuracies) < len(tasks) else None
    named = cell.episodes.text is not None and cell.method.uses_names != "no"
    return new_record(cell.method, cell.config, accuracies, seconds, engine, limit=stopped, uses_names=named)


def block_size(device: str, task_bytes: int, free_bytes: int | None) -> int:
    """How many tasks are predicted at a time: their vectors take at most an eighth of a device's free memory."""
    if device in ("cpu", "torch"):
        return HOST_BLOCK
    budget = DEVICE_BYTES // 8 if free_bytes is None else min(DEVICE_BYTES, free_bytes // 8)
    return max(1, budget // task_bytes)


def bytes_per_task(episodes: Episodes) -> int:
    """Bytes of the float32 vectors of a task."""
    tasks = episodes.tasks
    vectors = sum(rows.shape[1] for rows in (tasks.support, tasks.query, tasks.unlabelled) if rows is not None)
    return 4 * int(vectors) * int(episodes.features.features.shape[1])


def free_memory(device: str) -> int | None:
    """Bytes that are free on a CUDA device; None for others."""
    if not device.startswith("cuda"):
        return None
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


def new_record(
    method: Method, config: dict[str, Any], accuracies: list[float], seconds: float, engine: str, **more: Any
) -> Record:
    """A record with the stamp of this moment, on this machine."""
    more |= environment.stamp(config["device"]) | {"uniform": method.uniform, "uses_base": method.uses_base}
    return Record(content_key(config), config, accuracies, seconds, engine, **more)


def mover(device: str) -> Callable[[TaskBatch], TaskBatch]:
    """A function that moves a batch to a device."""
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
        if batch.prototypes is None:
            return TaskBatch(support, batch.support_labels, query, unlabelled)
        names = torch.from_numpy(np.array(batch.prototypes)).to(where)
        return TaskBatch(support, batch.support_labels, query, unlabelled, prototypes=names, classes=batch.classes)

    return move


def no_progress(cell: Cell, done: int) -> None:
    """A progress callback that does nothing."""
