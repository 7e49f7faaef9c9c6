"""All 1000 tasks of every reference cell: our labels against the authors' code and an independent float64 run.

    .venv/bin/python benchmarks/reference_outputs.py SHARED_DATA [--tasks 1000]

SHARED_DATA holds ``features/`` and ``reference/``. Prints a Markdown table, and writes
``benchmarks/records/reference_outputs.json``, from which docs/paper-vs-code.md has its table.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import a2lp
from a2lp.bench.environment import commit, hardware, versions
from a2lp.bench.records import write_text

RECORD = Path(__file__).parent / "records" / "reference_outputs.json"

# method and parameters, key of the saved labels, precision of the vectors
RUNS: list[tuple[str, dict[str, Any], str, Any]] = [
    ("prototypical", {}, "prototypical", np.float32),
    ("imprinting", {}, "imprinting", np.float32),
    ("lp", {}, "lp", np.float32),
    ("a2lp", {"numerics": "official"}, "a2lp", np.float32),
    ("a2lp", {"numerics": "exact"}, "a2lp_exact", np.float64),
    ("a2lp", {"numerics": "exact"}, "a2lp_exact", np.float32),
]


def cells(data: Path, n_tasks: int) -> Any:
    for name in ("cub", "mini"):
        vectors = np.load(data / f"features/{name}_resnet12_test.npz")["features"]
        for shot in (1, 5):
            saved = dict(np.load(data / f"reference/ref_{name}_{shot}shot.npz"))
            for preprocess in ("l2", "plc"):
                for method, params, key, dtype in RUNS:
                    yield from one(
                        name, shot, preprocess, method, params, f"{preprocess}_{key}", dtype, vectors, saved, n_tasks
                    )


def one(
    name: str,
    shot: int,
    preprocess: str,
    method: str,
    params: Any,
    key: str,
    dtype: Any,
    vectors: Any,
    saved: Any,
    n: int,
) -> Any:
    features = vectors.astype(dtype)
    start = time.perf_counter()
    labels, gap = [], 0.0
    solver = a2lp.create(method, preprocess=preprocess, **params)
    for first in range(0, n, 250):
        part = slice(first, min(first + 250, n))
        batch = a2lp.TaskBatch(
            features[saved["support"][part]], saved["support_labels"][part], features[saved["query"][part]]
        )
        found = solver.predict(batch)
        labels.append(found.labels)
        if first == 0 and f"{key}_Z8" in saved:
            gap = float(np.abs(found.scores[:8] - saved[f"{key}_Z8"]).max())
    labels = np.concatenate(labels)
    truth = saved["query_labels"][:n]
    yield {
        "features": name, "n_shot": shot, "preprocess": preprocess, "method": method, **params,
        "precision": np.dtype(dtype).name, "against": key, "n_tasks": n,
        "agreement": 100 * float((labels == saved[key][:n]).mean()),
        "accuracy": 100 * float((labels == truth).mean()),
        "their_accuracy": 100 * float((saved[key][:n] == truth).mean()),
        "z_gap_first_8": gap, "engine": found.engine, "seconds": time.perf_counter() - start,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=1000)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print("| features | shots | preprocess | method | numerics, precision | agreement % | accuracy % | theirs % | s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in cells(options.data, options.tasks):
        rows.append(row)
        print(
            f"| {row['features']} | {row['n_shot']} | {row['preprocess']} | {row['method']} "
            f"| {row.get('numerics', '')} {row['precision']} | {row['agreement']:.3f} | {row['accuracy']:.2f} "
            f"| {row['their_accuracy']:.2f} | {row['seconds']:.1f} |",
            flush=True,
        )
        record = {"rows": rows, "versions": versions(), "hardware": hardware("cpu"), "commit": commit()}
        RECORD.parent.mkdir(exist_ok=True)
        write_text(RECORD, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
