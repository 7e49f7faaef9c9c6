"""All 1000 tasks of every reference cell: our labels against the authors' code and an independent float64 run.

    .venv/bin/python benchmarks/reference_outputs.py SHARED_DATA [--tasks 1000]

SHARED_DATA holds ``features/`` and ``reference/``. Rows go to ``benchmarks/records/reference_outputs.json`` one by
one, and a run that was stopped goes on from there; docs/paper-vs-code.md has its table from them.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import a2lp
from a2lp.bench.records import write_text
from a2lp.environment import commit, hardware, versions

RECORD = Path(__file__).parent / "records" / "reference_outputs.json"
PAGE = Path(__file__).parents[1] / "docs" / "paper-vs-code.md"

# method and parameters, key of the saved labels, precision of the vectors
RUNS: list[tuple[str, dict[str, Any], str, Any]] = [
    ("prototypical", {}, "prototypical", np.float32),
    ("imprinting", {}, "imprinting", np.float32),
    ("lp", {}, "lp", np.float32),
    ("a2lp", {"numerics": "official"}, "a2lp", np.float32),
    ("a2lp", {"numerics": "exact"}, "a2lp_exact", np.float64),
    ("a2lp", {"numerics": "exact"}, "a2lp_exact", np.float32),
]


def name_of(row: dict[str, Any]) -> str:
    return " ".join(str(row.get(k)) for k in ("features", "n_shot", "against", "precision", "n_tasks"))


def cells(data: Path, n_tasks: int, done: set[str]) -> Any:
    for name in ("cub", "mini"):
        vectors = np.load(data / f"features/{name}_resnet12_test.npz")["features"]
        for shot in (1, 5):
            saved = dict(np.load(data / f"reference/ref_{name}_{shot}shot.npz"))
            for preprocess in ("l2", "plc"):
                for method, params, key, dtype in RUNS:
                    against, precision = f"{preprocess}_{key}", np.dtype(dtype).name
                    row = {
                        "features": name,
                        "n_shot": shot,
                        "against": against,
                        "precision": precision,
                        "n_tasks": n_tasks,
                    }
                    if name_of(row) not in done:
                        solver = a2lp.create(method, preprocess=preprocess, **params)
                        yield (
                            row
                            | {"method": method, "preprocess": preprocess, **params}
                            | one(row, solver, vectors, saved)
                        )


def one(row: dict[str, Any], solver: a2lp.Method, vectors: Any, saved: Any) -> dict[str, Any]:
    vectors, n, key = vectors.astype(row["precision"]), row["n_tasks"], row["against"]
    start = time.perf_counter()
    parts, gap = [], None
    for first in range(0, n, 250):
        part = slice(first, min(first + 250, n))
        batch = a2lp.TaskBatch(
            vectors[saved["support"][part]], saved["support_labels"][part], vectors[saved["query"][part]]
        )
        found = solver.predict(batch)
        parts.append(found.labels)
        if first == 0 and f"{key}_Z8" in saved:
            z = saved[f"{key}_Z8"][:n]
            gap = float(np.abs(found.scores[: len(z)] - z).max())
    labels, truth = np.concatenate(parts), saved["query_labels"][:n]
    return {
        "agreement": 100 * float((labels == saved[key][:n]).mean()),
        "accuracy": 100 * float((labels == truth).mean()),
        "their_accuracy": 100 * float((saved[key][:n] == truth).mean()),
        "z_gap_first_8": gap, "engine": found.engine, "seconds": time.perf_counter() - start,
        "hardware": hardware("cpu"), "versions": versions(), "commit": commit(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--fresh", action="store_true", help="do again what the record has")
    options = parser.parse_args()
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["rows"] if RECORD.exists() and not options.fresh else []
    done = {name_of(row) for row in rows}
    for row in cells(options.data, options.tasks, done):
        rows.append(row)
        print(
            f"{row['features']} {row['n_shot']}-shot {row['preprocess']}, {row['method']} {row.get('numerics', '')} "
            f"{row['precision']}: {row['agreement']:.3f} % agree, accuracy {row['accuracy']:.2f}, theirs "
            f"{row['their_accuracy']:.2f} ({row['seconds']:.1f} s)",
            flush=True,
        )
        RECORD.parent.mkdir(exist_ok=True)
        write_text(RECORD, json.dumps({"rows": rows}, indent=1) + "\n")
    write_table(rows)


def write_table(rows: list[dict[str, Any]]) -> None:
    """The agreement table of docs/paper-vs-code.md, between its two marks."""
    columns = [("prototypical", "", "float32"), ("imprinting", "", "float32"), ("lp", "", "float32")]
    columns += [("a2lp", "official", "float32"), ("a2lp", "exact", "float64")]
    found = {
        (r["features"], r["n_shot"], r["preprocess"], r["method"], r.get("numerics", ""), r["precision"]): r
        for r in rows
        if r["n_tasks"] == 1000
    }
    lines = [
        "| features, shots, preprocess | prototypical | imprinting | lp | a2lp, official | accuracy, ours / theirs "
        "| a2lp, exact, float64 | accuracy, ours / theirs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in ("cub", "mini"):
        for shot in (1, 5):
            for preprocess in ("l2", "plc"):
                cell = [found.get((name, shot, preprocess, *column)) for column in columns]
                text = ["–" if r is None else f"{r['agreement']:.3f}" for r in cell]
                both = ["–" if r is None else f"{r['accuracy']:.2f} / {r['their_accuracy']:.2f}" for r in cell]
                row = [f"{name}, {shot}, {preprocess}", *text[:4], both[3], text[4], both[4]]
                lines.append(f"| {' | '.join(row)} |")
    page = PAGE.read_text(encoding="utf-8")
    head, tail = page.split("<!-- agreement-table -->\n", 1)
    tail = tail.split("<!-- end -->", 1)[1]
    write_text(PAGE, head + "<!-- agreement-table -->\n\n" + "\n".join(lines) + "\n\n<!-- end -->" + tail)


if __name__ == "__main__":
    main()
