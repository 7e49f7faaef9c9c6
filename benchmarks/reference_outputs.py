"""All 1000 tasks of every reference cell: our labels against the authors' code and an independent float64 run.

    .venv/bin/python benchmarks/reference_outputs.py --data FOLDER   # measures, then fills the page
    .venv/bin/python benchmarks/reference_outputs.py                 # the page from the record

The table is in docs/paper-vs-code.md. FOLDER holds ``features/`` and ``reference/``, which are not part of the
repository. A run that was stopped continues.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from study import RECORDS, ROOT, Record, fill, table

import a2lp
from a2lp.files import write_text

PAGE = ROOT / "docs" / "paper-vs-code.md"
CELLS = [(name, shot, preprocess) for name in ("cub", "mini") for shot in (1, 5) for preprocess in ("l2", "plc")]
BLOCK = 250  # tasks

# method and parameters, key of the saved labels, precision of the vectors
RUNS: list[tuple[str, dict[str, Any], str, str]] = [
    ("prototypical", {}, "prototypical", "float32"),
    ("imprinting", {}, "imprinting", "float32"),
    ("lp", {}, "lp", "float32"),
    ("a2lp", {"numerics": "official"}, "a2lp", "float32"),
    ("a2lp", {"numerics": "exact"}, "a2lp_exact", "float64"),
    ("a2lp", {"numerics": "exact"}, "a2lp_exact", "float32"),
]


def part_name(name: str, shot: int, preprocess: str, key: str, precision: str) -> str:
    return f"{name} {shot}-shot {preprocess} {key} {precision}"


def compare(
    folder: Path, cell: tuple[str, int, str], method: str, params: dict[str, Any], key: str, precision: str
) -> dict[str, Any]:
    """How our labels of a cell agree with saved ones."""
    name, shot, preprocess = cell
    vectors = np.load(folder / f"features/{name}_resnet12_test.npz")["features"].astype(precision)
    saved = dict(np.load(folder / f"reference/ref_{name}_{shot}shot.npz"))
    theirs, truth = saved[f"{preprocess}_{key}"], saved["query_labels"]
    solver = a2lp.create(method, preprocess=preprocess, **params)
    start = time.perf_counter()
    parts, gap = [], None
    for first in range(0, len(truth), BLOCK):
        part = slice(first, first + BLOCK)
        batch = a2lp.TaskBatch(
            vectors[saved["support"][part]], saved["support_labels"][part], vectors[saved["query"][part]]
        )
        found = solver.predict(batch)
        parts.append(found.labels)
        if first == 0 and f"{preprocess}_{key}_Z8" in saved:
            z = saved[f"{preprocess}_{key}_Z8"]
            gap = float(np.abs(found.scores[: len(z)] - z).max())
    labels = np.concatenate(parts)
    return {
        "agreement": 100 * float((labels == theirs).mean()),
        "accuracy": 100 * float((labels == truth).mean()),
        "their_accuracy": 100 * float((theirs == truth).mean()),
        "z_gap_first_8": gap,
        "engine": found.engine,
        "seconds": time.perf_counter() - start,
    }


def page(text: str, record: Record) -> str:
    """The text of docs/paper-vs-code.md with its table of agreement."""
    heads = ["features, shots, preprocess", "prototypical", "imprinting", "lp", "a2lp, official"]
    heads += ["accuracy, ours / theirs", "a2lp, exact, float64", "accuracy, ours / theirs"]
    lines = []
    for cell in CELLS:
        found = [record.result(part_name(*cell, key, precision)) for _, _, key, precision in RUNS[:5]]
        texts = ["–" if r is None else f"{r['agreement']:.3f}" for r in found]
        both = ["–" if r is None else f"{r['accuracy']:.2f} / {r['their_accuracy']:.2f}" for r in found]
        lines.append([", ".join(map(str, cell)), *texts[:4], both[3], texts[4], both[4]])
    return fill(text, "reference_outputs", {"agreement": table(heads, lines, "---")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of earlier features and of the authors' outputs")
    args = parser.parse_args()
    record = Record(RECORDS / "reference_outputs.json", "our labels beside the authors' on the same tasks")
    for cell in CELLS if args.data is not None else ():
        for run in RUNS:
            part = part_name(*cell, *run[2:])
            record.measure(part, lambda cell=cell, run=run: compare(args.data, cell, *run))
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()
