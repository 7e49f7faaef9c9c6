"""Strangers among the points: ``novelty`` beside one minus the largest probability.

    .venv/bin/python benchmarks/open_set.py          # measure (half a minute), keep the record, fill docs/classify.md
    .venv/bin/python benchmarks/open_set.py --docs   # fill the page from the record

Ten classes are drawn from a bundled set of novel classes; five of them get labels, all points of all ten are in the
pool. A score is as good as the area under its ROC curve: the chance that it is higher for a point of the other five
classes than for one of the labelled five. Both scores are of the same answer of ``auto``, so differences are paired.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from a2lp.bench.records import write_text
from a2lp.bench.statistics import estimate, paired_difference
from a2lp.environment import stamp
from a2lp.features import load
from a2lp.pool.open_set import novelty
from a2lp.pool.solve import solve

RECORD = Path(__file__).parent / "records" / "open_set.json"
PAGE = Path(__file__).parents[1] / "docs" / "classify.md"
POOLS = {"cub": "CUB", "cifar_fs": "CIFAR-FS"}
CLASSES, KNOWN, DRAWS = 10, 5, 10
LABELS = (1, 5)  # of each known class


def areas(pool: str, per_class: int, seed: int) -> tuple[float, float]:
    """Areas under the ROC curves, in percent, of novelty and of one minus the largest probability; one draw."""
    rng = np.random.default_rng(seed)
    data = load(pool)
    classes = rng.choice(np.unique(data.labels), CLASSES, replace=False)
    rows = np.flatnonzero(np.isin(data.labels, classes))
    truth = data.labels[rows]
    codes = np.full(len(rows), -1)
    for code, known in enumerate(classes[:KNOWN]):
        codes[rng.choice(np.flatnonzero(truth == known), per_class, replace=False)] = code
    answer = solve(data.features[rows].astype(np.float32), codes)
    new = ~answer.given
    stranger = ~np.isin(truth[new], classes[:KNOWN])
    scores = novelty(answer)[new], 1 - answer.probabilities[new].max(axis=1)
    ours, theirs = (100 * float(roc_auc_score(stranger, score)) for score in scores)
    return ours, theirs


def measure() -> dict[str, Any]:
    cells = []
    for pool in POOLS:
        for per_class in LABELS:
            ours, theirs = zip(*(areas(pool, per_class, seed) for seed in range(DRAWS)), strict=True)
            cells.append({"pool": pool, "labels_per_class": per_class, "novelty": ours, "largest_probability": theirs})
            print(row(cells[-1]), flush=True)
    return {"what": __doc__.splitlines()[0], "draws": DRAWS, "cells": cells} | stamp()


def row(cell: dict[str, Any]) -> str:
    ours, theirs = cell["novelty"], cell["largest_probability"]
    gain = paired_difference(ours, theirs)
    means = " | ".join(f"{estimate(values).mean:.1f}" for values in (ours, theirs))
    return f"| {POOLS[cell['pool']]} | {cell['labels_per_class']} | {means} | {gain.mean:+.1f} ± {gain.ci95:.1f} |"


def fill(page: str, record: dict[str, Any]) -> str:
    """The page with its marked part as it should be."""
    head = [
        "| pool | labels a class | `novelty` | 1 - largest probability | difference |",
        "| --- |" + " ---: |" * 4,
    ]
    table = "\n".join([*head, *map(row, record["cells"])])
    part = f"<!-- benchmarks/open_set.py -->\n\n{table}\n\n<!-- end -->"
    return re.sub(r"<!-- benchmarks/open_set\.py -->\n.*?<!-- end -->", lambda _: part, page, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", action="store_true", help="only write the page from the record")
    if not parser.parse_args().docs:
        write_text(RECORD, json.dumps(measure(), indent=1) + "\n")
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()
