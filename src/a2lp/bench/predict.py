"""Predict a block of a cell's tasks, and what that needs: block sizes, devices, the record's stamp."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from a2lp import environment
from a2lp.arrays import to_numpy
from a2lp.bench.protocol import Cell, Episodes
from a2lp.bench.records import Record, content_key
from a2lp.errors import InputError, MissingExtraError
from a2lp.methods.base import Method
from a2lp.tasks.batch import TaskBatch

HOST_BLOCK = 100  # tasks gathered at a time on the CPU, where larger blocks are no faster
DEVICE_BYTES = 2 << 30  # of vectors gathered at a time for an accelerator; also bounds the memory of the host


def predict(cell: Cell, tasks: slice, move: Callable[[TaskBatch], TaskBatch]) -> tuple[list[float], float, str]:
    """The accuracy of each of some tasks in percent, the seconds that this took, and the engine."""
    batch = move(cell.episodes.batch(tasks))
    start = time.perf_counter()
    prediction = cell.method.predict(batch)
    labels = to_numpy(prediction.labels)  # also waits for a device that computes asynchronously
    seconds = time.perf_counter() - start
    right = labels == cell.episodes.tasks[tasks].query_labels
    return (100.0 * right.mean(axis=1)).tolist(), seconds, prediction.engine


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
