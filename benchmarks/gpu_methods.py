"""Every method on a GPU: seconds of a whole call, and its labels beside those of the processor.

    .venv/bin/python benchmarks/gpu_methods.py                     # on a machine with CUDA
    .venv/bin/python benchmarks/gpu_methods.py --only pt_map ease --tasks 200

Tasks are 5-way with 75 queries, 1- and 5-shot, from the bundled CUB features (640 dimensions). They are on the device
before the clock starts. Methods that need class names or trained parameters are left out. A run goes on where an
earlier one on the same code, machine and tasks stopped; a method that fails is recorded with its error.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import a2lp
from a2lp.environment import stamp
from a2lp.features import load_base
from a2lp.files import write_text
from a2lp.methods.base import Method
from a2lp.methods.registry import method_class

RECORD = Path(__file__).parent / "records" / "gpu_methods.json"
REPEATS = 7
ENOUGH = 20.0  # seconds after which a slow method is not timed again


def methods() -> list[str]:
    """All that take tasks without names, with their default parameters."""
    classes = {name: method_class(name) for name in a2lp.list_methods()}
    return [
        name for name, method in classes.items()
        if method.uses_names != "required" and method.__module__.startswith("a2lp.methods.")
    ]  # fmt: skip


def create(name: str) -> Method:
    method = a2lp.create(name)
    return a2lp.create(name, base=load_base("cub")) if method.reads_statistics else method


def on_device(batch: a2lp.TaskBatch) -> a2lp.TaskBatch:
    support, query = (torch.from_numpy(np.array(x)).cuda() for x in (batch.support, batch.query))
    return a2lp.TaskBatch(support, batch.support_labels, query)


def timed(method: Method, batch: a2lp.TaskBatch) -> tuple[list[float], a2lp.Prediction]:
    """Seconds of some calls after a first one, each until the device has finished, and the last prediction."""
    method.predict(batch)
    seconds: list[float] = []
    while len(seconds) < REPEATS and (not seconds or sum(seconds) < ENOUGH):
        torch.cuda.synchronize()
        start = time.perf_counter()
        answer = method.predict(batch)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds, answer


def measure(name: str, tasks: Any, compared: int) -> dict[str, Any]:
    """One method on some tasks; the first ``compared`` of them also on the processor."""
    method, batch = create(name), tasks.batch(a2lp.load("cub").features)
    there = on_device(batch)
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    seconds, answer = timed(method, there)
    found: dict[str, Any] = {"engine": answer.engine, "seconds": [round(x, 6) for x in seconds]}
    found["peak_bytes"] = torch.cuda.max_memory_allocated() - held
    method.predict(batch[:1])  # compiles
    start = time.perf_counter()
    expected = method.predict(batch[:compared])
    found["processor"] = {"engine": expected.engine, "seconds": round(time.perf_counter() - start, 6)}
    truth, labels = tasks.query_labels[:compared], np.asarray(answer.labels)[:compared]
    found["compared"] = compared
    found["equal"] = float((labels == expected.labels).mean())
    right, right_there = (100 * (x == truth).mean(axis=1) for x in (expected.labels, labels))
    difference = right_there - right
    error = 1.96 * float(np.std(difference, ddof=1)) / compared**0.5 if compared > 1 else 0.0
    found |= {"accuracy": float(right_there.mean()), "difference": [float(difference.mean()), error]}
    return found


def show(name: str, n_shot: int, found: dict[str, Any]) -> None:
    if "failed" in found:
        print(f"{name:16}{n_shot:2}-shot  failed: {found['failed'][:120]}", flush=True)
        return
    seconds, processor = statistics.median(found["seconds"]), found["processor"]["seconds"]
    per_task = 1000 * processor / found["compared"]
    print(
        f"{name:16}{n_shot:2}-shot {seconds:9.4f} s  {found['engine']:10} equal {100 * found['equal']:8.4f} %  "
        f"accuracy {found['accuracy']:6.2f} ({found['difference'][0]:+.3f})  {found['peak_bytes'] / 1e9:5.2f} GB  "
        f"processor {per_task:.3g} ms a task",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="methods by name")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--compared", type=int, help="tasks that the processor solves too; all by default")
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--commit", metavar="HASH", help="the commit of the code, on a machine without a checkout")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    names = options.only or methods()
    cub, compared = a2lp.load("cub"), min(options.compared or options.tasks, options.tasks)
    head = {"n_tasks": options.tasks, "set": "CUB", "device": "cuda"} | stamp("cuda")
    if options.commit is not None:
        head["commit"] = options.commit
    same = ("n_tasks", "versions", "hardware", "commit")
    record: dict[str, Any] = head | {"cells": {}}
    if options.out.exists():
        before = json.loads(options.out.read_text(encoding="utf-8"))
        if all(before[key] == head[key] for key in same):
            record = before
    for n_shot in (1, 5):
        tasks = a2lp.draw("balanced", cub.labels, seed=0, n_way=5, n_shot=n_shot, n_query=15, n_tasks=options.tasks)
        for name in names:
            cell = f"{name}, {n_shot}-shot"
            if "seconds" not in record["cells"].get(cell, {}):
                try:
                    record["cells"][cell] = measure(name, tasks, compared)
                except Exception as error:  # the others can still be measured
                    record["cells"][cell] = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
                write_text(options.out, json.dumps(record, indent=1) + "\n")
            show(name, n_shot, record["cells"][cell])
    print(f"record: {options.out}")


if __name__ == "__main__":
    main()
