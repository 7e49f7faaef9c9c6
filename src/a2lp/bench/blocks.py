"""Cells on a cluster: the tasks of a cell in blocks, each a file, which are joined into a record when all are there.

A folder beside the records holds what workers read (vectors, tasks, statistics, cells as JSON) and what they write. It
is removed at the end of a run.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from a2lp import environment
from a2lp._version import __version__
from a2lp.bench.predict import HOST_BLOCK, mover, new_record, predict
from a2lp.bench.protocol import Cell, Episodes
from a2lp.bench.records import Record, RecordStore, content_key
from a2lp.errors import ClusterError, InputError
from a2lp.features import BaseStatistics, FeatureSet, load, save
from a2lp.files import exists, read_json, write_text, writing
from a2lp.methods.registry import create
from a2lp.scale import Cluster, Work, check_seen, wait_for
from a2lp.tasks.lists import TaskList

TASK_SECONDS = 5.0  # of a cluster's task at least, beside the milliseconds that starting it costs


class _Task(NamedTuple):
    """Some blocks of a cell, for one worker."""

    key: str  # of the cell
    label: str
    first: int
    stop: int

    def __str__(self) -> str:
        return f"{self.label}, tasks {self.first * HOST_BLOCK} to {self.stop * HOST_BLOCK - 1}"


def run_on(cluster: Cluster, cells: Sequence[Cell], store: RecordStore | None) -> Iterator[tuple[Cell, Any]]:
    """Cells with their records, or with the exception that a method raised, in the order in which they end."""
    with _folder(cluster, store) as folder:
        blocks_of = {cell.key: _Blocks(cell, folder) for cell in cells}
        open_cells = dict(blocks_of)
        with cluster.work(sum(len(blocks.missing) for blocks in blocks_of.values())) as work:
            for blocks in blocks_of.values():
                if blocks.missing:
                    blocks.write()
                    blocks.submit(work, first=math.ceil(work.n_workers / len(cells)) or 1)
                else:
                    yield open_cells.pop(blocks.cell.key).cell, blocks.record()
            for task, answer, error in work:
                if task.key not in open_cells:  # another of its blocks failed
                    continue
                blocks = open_cells[task.key]
                if error is not None:
                    yield open_cells.pop(task.key).cell, error
                    continue
                blocks.finish(task, answer)
                if blocks.missing:
                    blocks.submit(work)
                else:
                    yield open_cells.pop(task.key).cell, blocks.record()
        for blocks in blocks_of.values():
            blocks.remove()


@contextmanager
def _folder(cluster: Cluster, store: RecordStore | None) -> Iterator[Path]:
    """The folder of the blocks, one for each state of the code; removed unless another command has cells there."""
    if store is None:
        if not cluster.n_local:
            raise InputError(
                f"scheduler {cluster.scheduler} has workers on other machines, which need a folder that they share "
                "with this one. Name it with --out DIR (in Python: out=)."
            )
        with tempfile.TemporaryDirectory(prefix="a2lp-") as temporary:
            yield Path(temporary)
        return
    top = store.folder.parent.resolve() / "blocks"
    folder = top / (environment.commit() or f"version-{__version__}")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    yield folder
    if not any(top.glob(f"*/{64 * '[0-9a-f]'}*.json")):  # named after keys
        shutil.rmtree(top, ignore_errors=True)


class _Blocks:
    """The blocks of one cell, ``HOST_BLOCK`` tasks each: a task is predicted among the same ones as elsewhere."""

    def __init__(self, cell: Cell, folder: Path) -> None:
        self.cell, self.folder = cell, folder
        self.job = folder / f"{cell.key}.json"  # the file that describes the cell
        self.count = math.ceil(len(cell.episodes.tasks) / HOST_BLOCK)
        # looked up once: on a network file system, a file that was missed may stay invisible for a while
        self.missing = {block for block in range(self.count) if not exists(_block_path(self.job, block))}
        self._asked: set[int] = set()
        there = sorted(set(range(self.count)) - self.missing)
        self._seconds: float | None = _read_block(_block_path(self.job, there[0]))["took"] if there else None

    def write(self) -> None:
        """Write what a worker needs, unless it is there."""
        cell, folder, episodes = self.cell, self.folder, self.cell.episodes
        features = folder / f"features-{content_key(_only_features(episodes.config))[:16]}.npy"
        tasks = folder / f"tasks-{content_key(episodes.config)[:16]}.npz"
        if not exists(features):
            bare = FeatureSet(
                episodes.features.features, classes=episodes.features.classes, text=episodes.features.text
            )
            save(bare, features, force=True)
        if not exists(tasks):
            episodes.tasks.save(tasks)
        params = {f.name: getattr(cell.method, f.name) for f in dataclasses.fields(cell.method)}
        statistics: dict[str, str] = {}
        for name, value in params.items():
            if isinstance(value, BaseStatistics):
                statistics[name] = f"base-{content_key({name: cell.params[name]})[:16]}.npz"
                if not exists(folder / statistics[name]):
                    value.save(folder / statistics[name], force=True)
        if params.get("weights") is not None:
            params["weights"] = str(Path(params["weights"]).resolve())
        job = {
            "key": cell.key,
            "method": cell.name,
            "params": {name: _as_json(value) for name, value in params.items() if name not in statistics},
            "statistics": statistics,
            "features": features.name,
            "name": episodes.features.name,
            "tasks": tasks.name,
            "device": cell.device,
            "commit": environment.commit(),
        }
        write_text(self.job, json.dumps(job))

    def submit(self, work: Work, first: int = 1) -> None:
        """Send the blocks that are missing: the first ones show how long a block takes, and so how many make a task."""
        left, size = sorted(self.missing - self._asked), 1
        if self._seconds is None:
            left = [] if self._asked else left[:first]
        else:
            size = math.ceil(TASK_SECONDS / max(self._seconds, 1e-3))
        while left:
            count = next((i for i in range(1, min(size, len(left))) if left[i] != left[0] + i), min(size, len(left)))
            task = _Task(self.cell.key, self.cell.label, left[0], left[0] + count)
            work.add(task, do_blocks, str(self.job), task.first, task.stop, size=count)
            self._asked.update(left[:count])
            left = left[count:]

    def finish(self, task: _Task, seconds: float) -> None:
        """A worker has written some blocks, and a block took so long."""
        self.missing -= set(range(task.first, task.stop))
        self._seconds = seconds

    def record(self) -> Record:
        """The record of the cell, from all of its blocks."""
        cell = self.cell
        blocks = [_read_block(_block_path(self.job, block)) for block in range(self.count)]
        accuracies = [accuracy for block in blocks for accuracy in block["accuracies"]]
        named = cell.episodes.text is not None and cell.method.uses_names != "no"
        seconds = sum(block["seconds"] for block in blocks)
        record = new_record(cell.method, cell.config, accuracies, seconds, blocks[-1]["engine"], uses_names=named)
        last = max((block["stamp"] for block in blocks), key=lambda stamp: str(stamp["date"]))
        hardware = last["hardware"] | {"workers": len({block["worker"] for block in blocks})}
        return dataclasses.replace(record, **last | {"hardware": hardware})

    def remove(self) -> None:
        """Remove what is the cell's own; its record is written."""
        for path in (self.job, *(_block_path(self.job, block) for block in range(self.count))):
            path.unlink(missing_ok=True)


# ---- on a worker --------------------------------------------------------------------------------------------------


def do_blocks(job: str, first: int, stop: int) -> float:
    """Compute the blocks of a cell that have no file yet; the seconds that the last one took."""
    for block in range(first, stop):
        path = _block_path(Path(job), block)
        if exists(path):
            continue
        cell = _cell(job)
        start = time.perf_counter()
        done = slice(block * HOST_BLOCK, (block + 1) * HOST_BLOCK)
        accuracies, seconds, engine = predict(cell, done, mover(cell.device))
        found = {"accuracies": accuracies, "seconds": seconds, "engine": engine}
        found |= {"took": time.perf_counter() - start, "worker": f"{socket.gethostname()}:{os.getpid()}"}
        write_text(path, json.dumps(found | {"stamp": environment.stamp(cell.device)}))
    return float(_read_block(_block_path(Path(job), stop - 1))["took"])


@lru_cache(maxsize=2)
def _cell(path: str) -> Cell:
    """The cell of a job, the same as the one that it was written from."""
    check_seen(Path(path))
    job = read_json(path, "a cell (JSON)")
    if job["commit"] != environment.commit():
        raise ClusterError(
            f"the worker on {socket.gethostname()} runs the commit {environment.commit()} of a2lp, and the command "
            f"{job['commit']}. Let both import the same code."
        )
    folder = Path(path).parent
    params = {name: _as_tuple(value) for name, value in job["params"].items()}
    params |= {name: BaseStatistics.load(folder / file) for name, file in job["statistics"].items()}
    episodes = _episodes(str(folder / job["features"]), str(folder / job["tasks"]), job["name"])
    cell = Cell(episodes, job["method"], create(job["method"], **params), job["device"])
    if cell.key != job["key"]:
        raise ClusterError(
            f"the worker on {socket.gethostname()} finds another configuration in {path} than was written there. "
            "Check that it has the same plug-ins and weights."
        )
    cell.method.predict(mover(cell.device)(episodes.batch(slice(0, 1))))  # compiling is not the method's time
    return cell


@lru_cache(maxsize=2)
def _episodes(features: str, tasks: str, name: str) -> Episodes:
    return Episodes(dataclasses.replace(load(features), name=name), TaskList.load(tasks))


def _only_features(config: dict[str, Any]) -> dict[str, Any]:
    return {name: config.get(name) for name in ("features_sha256", "text_sha256")}


def _block_path(job: Path, block: int) -> Path:
    return job.with_name(f"{job.stem}.{block:05d}.json")


def _read_block(path: Path) -> dict[str, Any]:
    wait_for(path)
    block = read_json(path, "a block of a cell (JSON)")
    if (
        not isinstance(block, dict)
        or not {"accuracies", "seconds", "engine", "took", "worker", "stamp"} <= block.keys()
    ):
        raise InputError(f"{path} is not a whole block of a cell. Delete it; the same command makes it again.")
    return block


def _as_json(value: Any) -> Any:
    """A parameter as JSON: named tuples, which methods also take as mappings, and paths."""
    if isinstance(value, Path):
        return str(value.resolve())
    return value._asdict() if hasattr(value, "_asdict") else value


def _as_tuple(value: Any) -> Any:
    """A parameter as a method has it: JSON knows no tuples."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
