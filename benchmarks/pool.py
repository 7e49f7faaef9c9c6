"""One large pool: seconds and peak memory, with scikit-learn's LabelSpreading beside it until it fails.

    .venv/bin/python benchmarks/pool.py              # 10,000 and 100,000 points; some minutes on two cores
    .venv/bin/python benchmarks/pool.py --million    # 1,000,000 points with FAISS too
    .venv/bin/python benchmarks/pool.py --quick      # small pools, printed and not kept

Points are made up: 50 classes around random centres, float16, read from a file by memory map; 5 labels per class.
Every run has its own process, so that its peak memory is its own. "auto" is ``a2lp.label``, the default of ``a2lp
classify``, with the accuracy to expect; "exact" and "faiss" are label propagation alone. ``relabel`` is the answer
after one more label, ``relabel_with_estimate`` with the accuracy to expect as well.
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
from a2lp.environment import stamp
from a2lp.features import load
from a2lp.pool.graph import estimate_memory, neighbour_graph
from a2lp.pool.propagate import propagate

RECORD = Path(__file__).parent / "records" / "pool.json"
CLASSES, LABELS, K = 50, 5, 20
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
    return {"seconds": seconds, "estimated_bytes": estimate_memory(*x.shape, K, CLASSES), "accuracy": right.mean()}


def auto(path: Path) -> dict[str, Any]:
    """All that ``a2lp classify`` does with a feature file; then one more label."""
    label(np.eye(40, dtype=np.float32) + 1, {0: 0, 1: 1})  # compiled before the clock starts
    seconds: dict[str, float] = {}
    x = timed(seconds, "load", lambda: load(path).features)
    labels = {row: row % CLASSES for row in range(CLASSES * LABELS)}
    first = timed(seconds, "label", lambda: label(x, labels))
    first.pool.label(len(x) // 2, (len(x) // 2) % CLASSES)
    timed(seconds, "relabel", lambda: first.pool.answer)
    timed(seconds, "estimate", lambda: first.pool.assessment)
    seconds["relabel_with_estimate"] = round(seconds["relabel"] + seconds.pop("estimate"), 3)
    right = first.table["label"].astype(np.int64) == np.arange(len(x)) % CLASSES
    return {"seconds": seconds, "accuracy": right.mean(), "expected_accuracy": first.assessment.accuracy}


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
    "a2lp, exact": lambda path: ours(path, "exact"),
    "a2lp, faiss": lambda path: ours(path, "faiss"),
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
    answer["peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps(answer, default=float))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        single(options.run, options.file)
        return
    sizes = [(2_000, 128), (5_000, 128)] if options.quick else [(10_000, 512), (100_000, 512)]
    alive = list(RUNS)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for n, d in sizes + ([(1_000_000, 512)] if options.million else []):
            path = Path(folder) / f"{n}.npy"
            make_file(path, n, d)
            for run in ["a2lp, faiss", "a2lp, auto"] if n >= 1_000_000 else list(alive):
                answer = in_own_process(run, path)
                found.append({"run": run, "points": n, "dimensions": d, "load": os.getloadavg()[0]} | answer)
                print(f"{n:>9,} x {d}  {run:<20} {describe(answer)}", flush=True)
                if "failed" in answer:
                    alive.remove(run)
            path.unlink()
    if not options.quick:
        write_text(options.out, json.dumps({"pools": found} | stamp(), indent=1) + "\n")
        print(f"record: {options.out}")


def describe(answer: dict[str, Any]) -> str:
    if "failed" in answer:
        return f"failed: {answer['failed']}"
    parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in answer["seconds"].items())
    return f"{parts}; peak {answer['peak_bytes'] / 2**30:.2f} GiB; accuracy {100 * answer['accuracy']:.1f} %"


if __name__ == "__main__":
    main()
