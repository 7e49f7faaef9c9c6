"""Every method on a GPU: seconds of a whole call, and its labels beside those of the processor.

    .venv/bin/python benchmarks/gpu_methods.py                     # on a machine with CUDA
    .venv/bin/python benchmarks/gpu_methods.py --only pt_map ease --tasks 200

Tasks are 5-way with 75 queries, 1- and 5-shot, from the bundled CUB features (640 dimensions). They are on the device
before the clock starts. Methods that need class names or trained parameters are left out. A run goes on where an
earlier one on the same code, machine and tasks stopped; a method that fails is recorded with its error. Times need a
machine without other work, labels do not: ``--part times`` and ``--part labels`` measure one of them.
"""

from __future__ import annotations

import argparse
import itertools
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
ENOUGH = 10.0  # seconds after which a slow method is not timed again


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


def times(method: Method, batch: a2lp.TaskBatch) -> dict[str, Any]:
    """Seconds of some calls after a first one, each until the device has finished."""
    there = on_device(batch)
    method.predict(there)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    seconds: list[float] = []
    while len(seconds) < REPEATS and sum(seconds) < ENOUGH:
        torch.cuda.synchronize()
        start = time.perf_counter()
        engine = method.predict(there).engine
        torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - start, 6))
    return {"engine": engine, "seconds": seconds, "peak_bytes": torch.cuda.max_memory_allocated() - held}


def labels(method: Method, batch: a2lp.TaskBatch, truth: Any) -> dict[str, Any]:
    """The share of labels that are equal to those of the processor, accuracy, and paired difference in accuracy."""
    found, expected = (np.asarray(method.predict(x).labels) for x in (on_device(batch), batch))
    right, right_there = (100 * (x == truth).mean(axis=1) for x in (expected, found))
    difference = right_there - right
    error = 1.96 * float(np.std(difference, ddof=1)) / len(truth) ** 0.5
    return {
        "compared": len(truth),
        "equal": float((found == expected).mean()),
        "accuracy": float(right_there.mean()),
        "difference": [float(difference.mean()), error],
    }


def show(cell: str, found: dict[str, Any]) -> None:
    line = f"{cell:24}"
    if "seconds" in found:
        line += f"{statistics.median(found['seconds']):9.4f} s  {found['engine']:10}"
    if "equal" in found:
        line += (
            f"  equal {100 * found['equal']:8.4f} %  accuracy {found['accuracy']:6.2f} {found['difference'][0]:+.3f}"
        )
    print(line + "".join(f"  {part} failed: {why[:120]}" for part, why in found.get("failed", {}).items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="methods by name")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--compared", type=int, default=1000, help="tasks whose labels are compared")
    parser.add_argument("--part", nargs="+", choices=("times", "labels"), default=("times", "labels"))
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--commit", metavar="HASH", help="the commit of the code, on a machine without a checkout")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    names = options.only or methods()
    cub = a2lp.load("cub")
    head = {"n_tasks": options.tasks, "compared": options.compared, "set": "CUB", "device": "cuda"} | stamp("cuda")
    if options.commit is not None:
        head["commit"] = options.commit
    same = ("n_tasks", "compared", "versions", "hardware", "commit")
    record: dict[str, Any] = head | {"cells": {}}
    if options.out.exists():
        before = json.loads(options.out.read_text(encoding="utf-8"))
        if all(before[key] == head[key] for key in same):
            record = before
    parts = {"times": "seconds", "labels": "equal"}
    for part, n_shot, name in itertools.product(options.part, (1, 5), names):
        cell = f"{name}, {n_shot}-shot"
        found = record["cells"].setdefault(cell, {})
        if parts[part] not in found:
            n_tasks = options.tasks if part == "times" else min(options.compared, options.tasks)
            tasks = a2lp.draw("balanced", cub.labels, seed=0, n_way=5, n_shot=n_shot, n_query=15, n_tasks=n_tasks)
            batch, method = tasks.batch(cub.features), create(name)
            found.get("failed", {}).pop(part, None)
            try:
                found |= times(method, batch) if part == "times" else labels(method, batch, tasks.query_labels)
            except Exception as error:  # the others can still be measured
                found.setdefault("failed", {})[part] = f"{type(error).__name__}: {error}".splitlines()[0]
            write_text(options.out, json.dumps(record, indent=1) + "\n")
        show(cell, found)
    print(f"record: {options.out}")


if __name__ == "__main__":
    main()
