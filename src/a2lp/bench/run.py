"""Run cells: gather tasks in blocks, time ``predict``, compute accuracies, keep records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from a2lp import environment
from a2lp.bench.blocks import run_on
from a2lp.bench.predict import block_size, bytes_per_task, free_memory, mover, new_record, predict
from a2lp.bench.protocol import Cell
from a2lp.bench.records import Record, RecordStore
from a2lp.errors import InputError
from a2lp.scale import Cluster

Progress = Callable[[Cell, int], None]

_log = logging.getLogger(__name__)


def run(
    cells: Sequence[Cell],
    store: RecordStore | None = None,
    progress: Progress | None = None,
    *,
    limit: float | None = None,
    keep_going: bool = False,
    cluster: Cluster | None = None,
) -> list[Record]:
    """The records of some cells, in their order; cells with a record in ``store`` are not run again.

    A cell is stopped after ``limit`` seconds of prediction. Its record has the tasks that were done; a higher limit
    continues from there, on the same machine and code. With ``keep_going``, a method that raises an error is recorded
    as failed, and the others run; if all fail, the first error is raised.

    On a ``cluster``, all cells run at once, in blocks of tasks that are kept as files until a cell is whole. Workers
    share machines, so the seconds of such a record are no measure of speed, and tables leave them out.
    """
    if cluster is not None and limit is not None:
        raise InputError(
            f"limit={limit} is a time on one machine, which a cluster does not measure. Leave out the limit or the "
            "scheduler."
        )
    if store is not None and (done := sum(cell.key in store for cell in cells)):
        _log.info("%d of %d cells are in %s and are not run again.", done, len(cells), store.folder)
    records: dict[str, Record] = {}
    begun: dict[str, Record] = {}  # cells that a limit stopped
    for cell in cells:
        record = None if store is None else store.get(cell.key)
        if record is not None:
            whole = record.whole or (limit is not None and record.seconds >= limit)
            (records if whole else begun)[cell.key] = record
    left = list({cell.key: cell for cell in cells if cell.key not in records}.values())
    if cluster is not None:
        found = run_on(cluster, left, store) if left else iter(())
    else:
        found = _one_by_one(left, progress or no_progress, limit, begun)
    first_error: Exception | None = None
    for cell, result in found:
        if isinstance(result, Record):
            if store:
                store.put(result)
        elif not keep_going:
            raise result
        else:
            first_error = first_error or result
            failed = f"{type(result).__name__}: {result}"
            result = new_record(cell.method, cell.config, [], 0.0, "", failed=failed)
        records[cell.key] = result
    if first_error is not None and all(record.failed for record in records.values()):
        raise first_error
    return [records[cell.key] for cell in cells]


def _one_by_one(
    cells: Sequence[Cell], progress: Progress, limit: float | None, begun: Mapping[str, Record]
) -> Iterator[tuple[Cell, Record | Exception]]:
    """Cells with their records, or with the exception that a method raised."""
    for cell in cells:
        try:
            result: Record | Exception = _measure(cell, progress, limit, begun.get(cell.key))
        except Exception as error:
            result = error
        yield cell, result


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
        found, took, engine = predict(cell, done, move)
        seconds += took
        accuracies += found
        progress(cell, len(accuracies))
        size = next_size(took, len(found))
    stopped = limit if len(accuracies) < len(tasks) else None
    named = cell.episodes.text is not None and cell.method.uses_names != "no"
    return new_record(cell.method, cell.config, accuracies, seconds, engine, limit=stopped, uses_names=named)


def no_progress(cell: Cell, done: int) -> None:
    """A progress callback that does nothing."""
