"""Every method on a GPU: seconds of a whole call, and its labels beside those of the processor.

    .venv/bin/python benchmarks/gpu_methods.py                     # on a machine with CUDA
    .venv/bin/python benchmarks/gpu_methods.py --only pt_map ease --tasks 200
    # the processor's labels from another machine, for short loans of a GPU; then its cells into the record
    .venv/bin/python benchmarks/gpu_methods.py --only am --compared 200 --solve labels.npz
    .venv/bin/python benchmarks/gpu_methods.py --only am --compared 200 --labels labels.npz --out cells.json
    .venv/bin/python benchmarks/gpu_methods.py --merge cells.json

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


def solve(method: Method, batch: a2lp.TaskBatch) -> tuple[Any, dict[str, Any]]:
    """Labels by the processor, with its engine and seconds."""
    method.predict(batch[:1])  # compiles
    start = time.perf_counter()
    answer = method.predict(batch)
    return answer.labels, {"engine": answer.engine, "seconds": round(time.perf_counter() - start, 6)}


def solve_all(cells: dict[str, tuple[str, Any]], compared: int, out: Path) -> None:
    """Labels of cells by the processor, to a file that :func:`read_labels` reads."""
    found: dict[str, Any] = {}
    for cell, (name, tasks) in cells.items():
        labels, how = solve(create(name), tasks.batch(a2lp.load("cub").features)[:compared])
        print(f"{cell}: {how['seconds']:.1f} s for {compared} tasks", flush=True)
        found |= {cell: labels, f"{cell}, engine": how["engine"]}
    np.savez_compressed(out, commit=str(stamp()["commit"]), **found)


def read_labels(path: Path | None) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Of each cell the labels, with the engine and commit."""
    if path is None:
        return {}
    with np.load(path) as file:
        commit = str(file["commit"])
        return {
            cell: (file[cell], {"engine": str(file[f"{cell}, engine"]), "commit": commit})
            for cell in file if f"{cell}, engine" in file
        }  # fmt: skip


def measure(name: str, tasks: Any, compared: int, known: tuple[Any, dict[str, Any]] | None) -> dict[str, Any]:
    """One method on some tasks; the first ``compared`` of them also on the processor, unless its labels are known."""
    method, batch = create(name), tasks.batch(a2lp.load("cub").features)
    there = on_device(batch)
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    seconds, answer = timed(method, there)
    found: dict[str, Any] = {"engine": answer.engine, "seconds": [round(x, 6) for x in seconds]}
    found["peak_bytes"] = torch.cuda.max_memory_allocated() - held
    expected, found["processor"] = known or solve(method, batch[:compared])
    expected, truth, labels = expected[:compared], tasks.query_labels[:compared], np.asarray(answer.labels)[:compared]
    found["compared"] = compared
    found["equal"] = float((labels == expected).mean())
    right, right_there = (100 * (x == truth).mean(axis=1) for x in (expected, labels))
    difference = right_there - right
    error = 1.96 * float(np.std(difference, ddof=1)) / compared**0.5 if compared > 1 else 0.0
    found |= {"accuracy": float(right_there.mean()), "difference": [float(difference.mean()), error]}
    return found


def show(cell: str, found: dict[str, Any]) -> None:
    if "failed" in found:
        print(f"{cell:24} failed: {found['failed'][:120]}", flush=True)
        return
    seconds, processor = statistics.median(found["seconds"]), found["processor"].get("seconds")
    per_task = "" if processor is None else f"  processor {1000 * processor / found['compared']:.3g} ms a task"
    memory = f"{found['peak_bytes'] / 1e9:5.2f} GB"
    print(
        f"{cell:24}{seconds:9.4f} s  {found['engine']:10} equal {100 * found['equal']:8.4f} %  "
        f"accuracy {found['accuracy']:6.2f} ({found['difference'][0]:+.3f})  {memory}{per_task}",
        flush=True,
    )


def merge(cells: Path) -> None:
    """Cells of a later commit on the same machine into the record; each keeps its commit and date."""
    record, later = (json.loads(path.read_text(encoding="utf-8")) for path in (RECORD, cells))
    for key in ("n_tasks", "set", "device", "hardware"):
        if record[key] != later[key]:
            raise SystemExit(f"{cells} is of {key} {later[key]}, and the record of {record[key]}: measure all anew.")
    for cell, found in later["cells"].items():
        if "seconds" in found:
            record["cells"][cell] = found | {key: later[key] for key in ("commit", "date")}
    write_text(RECORD, json.dumps(record, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="methods by name")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--compared", type=int, help="tasks that the processor solves too; all by default")
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--commit", metavar="HASH", help="the commit of the code, on a machine without a checkout")
    parser.add_argument("--solve", metavar="FILE", type=Path, help="write the processor's labels; takes no GPU")
    parser.add_argument("--labels", metavar="FILE", type=Path, help="the processor's labels, from --solve")
    parser.add_argument("--merge", metavar="FILE", type=Path, help="put a file's cells into the record")
    options = parser.parse_args()
    if options.merge is not None:
        merge(options.merge)
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    names = options.only or methods()
    cub, compared = a2lp.load("cub"), min(options.compared or options.tasks, options.tasks)
    lists = {
        n: a2lp.draw("balanced", cub.labels, seed=0, n_way=5, n_shot=n, n_query=15, n_tasks=options.tasks)
        for n in (1, 5)
    }
    cells = {f"{name}, {n_shot}-shot": (name, tasks) for n_shot, tasks in lists.items() for name in names}
    if options.solve is not None:
        solve_all(cells, compared, options.solve)
        return
    known = read_labels(options.labels)
    head = {"n_tasks": options.tasks, "set": "CUB", "device": "cuda"} | stamp("cuda")
    if options.commit is not None:
        head["commit"] = options.commit
    same = ("n_tasks", "versions", "hardware", "commit")
    record: dict[str, Any] = head | {"cells": {}}
    if options.out.exists():
        before = json.loads(options.out.read_text(encoding="utf-8"))
        if all(before[key] == head[key] for key in same):
            record = before
    for cell, (name, tasks) in cells.items():
        if "seconds" not in record["cells"].get(cell, {}):
            try:
                record["cells"][cell] = measure(name, tasks, compared, known.get(cell))
            except Exception as error:  # the others can still be measured
                record["cells"][cell] = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
            write_text(options.out, json.dumps(record, indent=1) + "\n")
        show(cell, record["cells"][cell])
    print(f"record: {options.out}")


if __name__ == "__main__":
    main()
