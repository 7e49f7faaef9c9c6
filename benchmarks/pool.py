"""Time and memory of large pools, beside scikit-learn's LabelSpreading.

    .venv/bin/python benchmarks/pool.py                      # 10,000 and 100,000 points: ten minutes
    .venv/bin/python benchmarks/pool.py --points 1000000     # then a million
    .venv/bin/python benchmarks/pool.py --device cuda        # "auto" on a GPU, in a record of its own
    .venv/bin/python benchmarks/pool.py --quick              # 2,000 and 5,000 points, no record

Points are made up: 50 classes around random centres, float16, read from a file by memory map; 5 labels per class.
Every run has its own process, so that its peak memory is its own. "auto" is ``a2lp.label``, the default of ``a2lp
classify``, with the accuracy to expect; "exact" and "cells" are label propagation alone. ``relabel`` is the answer
after one more label, ``relabel_with_estimate`` with the accuracy to expect as well; ``suggest`` chooses 20 points.
"beside a busy process" is "auto" while another process keeps one core busy. Runs of one commit are kept together. On a
GPU, torch is loaded and a pool of the first 25,000 points was labelled before the clock starts, and the peak and the
forecast are those of the GPU's memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from a2lp import label
from a2lp.bench.records import write_text
from a2lp.environment import commit, stamp
from a2lp.features import load
from a2lp.pool.device import needed as memory_on_device
from a2lp.pool.forecast import forecast
from a2lp.pool.graph import neighbour_graph
from a2lp.pool.propagate import propagate
from a2lp.pool.push import push

RECORD = Path(__file__).parent / "records" / "pool.json"
RECORD_CUDA = RECORD.with_name("pool_cuda.json")
GPU_RUN = "a2lp, auto, on a GPU"
CLASSES, LABELS, K = 50, 5, 20
WARM = 25_000
PATIENCE = 1800  # seconds that a run may take


def make_file(path: Path, n: int, d: int) -> None:
    """A file of n points in classes that overlap, written a block at a time; row i is of class i % CLASSES."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, d)).astype(np.float32)
    points = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(n, d))
    for start in range(0, n, 10_000):
        rows = np.arange(start, min(start + 10_000, n))
        points[rows] = centres[rows % CLASSES] + 3 * rng.standard_normal((len(rows), d), dtype=np.float32)
    points.flush()


def ours(path: Path, method: str) -> dict[str, Any]:
    """Graph, propagation, and one more label."""
    neighbour_graph(np.eye(40, dtype=np.float32) + 1)  # compiled before the clock starts
    propagate(neighbour_graph(np.eye(40, dtype=np.float32) + 1), np.eye(40, dtype=np.float32))
    x = np.load(path, mmap_mode="r")
    n = len(x)
    y = np.zeros((n, CLASSES), np.float32)
    labelled = np.arange(CLASSES * LABELS)
    y[labelled, labelled % CLASSES] = 1
    seconds = {}
    graph = timed(seconds, "graph", lambda: neighbour_graph(x, K, method=method))
    first = timed(seconds, "propagate", lambda: propagate(graph, y))
    y[n // 2, (n // 2) % CLASSES] = 1
    timed(seconds, "relabel", lambda: propagate(graph, y, start=first.Z))
    right = first.Z.argmax(axis=1) == np.arange(n) % CLASSES
    return {"seconds": seconds, "accuracy": right.mean()}


def auto(path: Path, device: str = "cpu") -> dict[str, Any]:
    """All that ``a2lp classify`` does with a feature file; then one more label."""
    if device != "cpu":
        return auto_on_gpu(path, device)
    compile_everything()
    answer, first = run_auto(path, device)
    told = forecast(*np.load(path, mmap_mode="r").shape, CLASSES)
    return answer | {
        "first_peak_bytes": first,
        "forecast_bytes": told.n_bytes,
        "forecast_seconds": told.seconds,
    }


def auto_on_gpu(path: Path, device: str) -> dict[str, Any]:
    import torch

    some = load(path).features[:WARM]
    warm = label(some, {row: row % CLASSES for row in range(CLASSES * LABELS)}, device=device)
    warm.pool.label(len(some) // 2, 0)
    warm.pool.suggest(2)
    del warm
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    answer, _ = run_auto(path, device)
    needed = memory_on_device(*np.load(path, mmap_mode="r").shape, CLASSES)
    return answer | {"first_peak_bytes": torch.cuda.max_memory_allocated(), "forecast_bytes": needed}


def run_auto(path: Path, device: str) -> tuple[dict[str, Any], int]:
    """Seconds and accuracies, and the peak of the first answer, which is what is forecast."""
    seconds: dict[str, float] = {}
    x = timed(seconds, "load", lambda: load(path).features)
    labels = {row: row % CLASSES for row in range(CLASSES * LABELS)}
    first = timed(seconds, "label", lambda: label(x, labels, device=device))
    peak = peak_bytes()
    first.pool.label(len(x) // 2, (len(x) // 2) % CLASSES)
    timed(seconds, "relabel", lambda: first.pool.answer)
    timed(seconds, "estimate", lambda: first.pool.assessment)
    seconds["relabel_with_estimate"] = round(seconds["relabel"] + seconds.pop("estimate"), 3)
    timed(seconds, "suggest", lambda: first.pool.suggest(20))
    right = first.table["label"].astype(np.int64) == np.arange(len(x)) % CLASSES
    return {
        "seconds": seconds,
        "accuracy": right.mean(),
        "expected_accuracy": first.assessment.accuracy,
    }, peak


def compile_everything() -> None:
    """One small pool by each way that a large one may take, so that nothing is compiled while the clock runs."""
    x = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float16)
    neighbour_graph(x, method="cells")
    small = label(x, {row: row % 5 for row in range(40)})
    small.pool.label(50, 0)
    small.pool.suggest(2)
    push(small.pool.graph, 0)


def beside_a_busy_process(path: Path) -> dict[str, Any]:
    """``auto`` while another process keeps a core busy."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            return auto(path)
        finally:
            other.kill()


def label_spreading(path: Path, kernel: str) -> dict[str, Any]:
    """scikit-learn on the same points, at unit length and in float32."""
    from sklearn.preprocessing import normalize
    from sklearn.semi_supervised import LabelSpreading

    x = normalize(np.load(path).astype(np.float32))
    truth = np.arange(len(x)) % CLASSES
    known = np.where(np.arange(len(x)) < CLASSES * LABELS, truth, -1)
    seconds: dict[str, float] = {}
    model = LabelSpreading(kernel=kernel, n_neighbors=K, alpha=0.8)
    timed(seconds, "fit", lambda: model.fit(x, known))
    return {"seconds": seconds, "accuracy": (model.transduction_ == truth).mean()}


def timed(seconds: dict[str, float], name: str, work: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    answer = work()
    seconds[name] = round(time.perf_counter() - start, 3)
    return answer


RUNS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "a2lp, auto": auto,
    GPU_RUN: lambda path: auto(path, "cuda"),
    "a2lp, auto, beside a busy process": beside_a_busy_process,
    "a2lp, exact": lambda path: ours(path, "exact"),
    "a2lp, cells": lambda path: ours(path, "cells"),
    "LabelSpreading, knn": lambda path: label_spreading(path, "knn"),
    "LabelSpreading, rbf": lambda path: label_spreading(path, "rbf"),
}


def in_own_process(run: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--run", run, "--file", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {PATIENCE} s"}
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"ended by signal {-done.returncode}: out of memory"]
        return {"failed": reason[0][:200]}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def single(run: str, path: Path) -> None:
    answer = RUNS[run](path)
    answer["peak_bytes"] = answer.pop("first_peak_bytes", None) or peak_bytes()
    print(json.dumps(answer, default=float))


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def known_runs(path: Path) -> list[dict[str, Any]]:
    """The runs of a record, if they are of this commit."""
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return list(record["pools"]) if record.get("commit") == commit() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--points", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--runs", nargs="+", choices=RUNS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        single(options.run, options.file)
        return
    gpu = options.device == "cuda"
    out = options.out or (RECORD_CUDA if gpu else RECORD)
    runs = options.runs or ([GPU_RUN] if gpu else [run for run in RUNS if run != GPU_RUN])
    sizes = [(2_000, 128), (5_000, 128)] if options.quick else [(n, 512) for n in options.points]
    with tempfile.TemporaryDirectory() as folder:
        for n, d in sizes:
            path = Path(folder) / f"{n}.npy"
            make_file(path, n, d)
            for run in runs:
                if (n >= 1_000_000 and run not in ("a2lp, auto", GPU_RUN)) or (n > 10_000 and "busy" in run):
                    continue
                answer = in_own_process(run, path)
                found = {"run": run, "points": n, "dimensions": d, "load": os.getloadavg()[0]} | answer
                print(f"{n:>9,} x {d}  {run:<20} {describe(answer)}", flush=True)
                if not options.quick:
                    provenance = {"device": options.device} | stamp(options.device)
                    others = [one for one in known_runs(out) if (one["points"], one["run"]) != (n, run)]
                    order = sorted([*others, found], key=lambda one: (one["points"], list(RUNS).index(one["run"])))
                    write_text(out, json.dumps({"pools": order} | provenance, indent=1) + "\n")
            path.unlink()


def describe(answer: dict[str, Any]) -> str:
    if "failed" in answer:
        return f"failed: {answer['failed']}"
    parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in answer["seconds"].items())
    return f"{parts}; peak {answer['peak_bytes'] / 2**30:.2f} GiB; accuracy {100 * answer['accuracy']:.1f} %"


if __name__ == "__main__":
    main()
