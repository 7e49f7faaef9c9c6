"""Label propagation on the graph that is found by cells, compared with the exact one.

    .venv/bin/python benchmarks/graph_quality.py --measure   # some minutes; then docs/performance.md
    .venv/bin/python benchmarks/graph_quality.py             # docs/performance.md from the record

Points are mixtures of two real features of one class, as many as are asked for, with a little noise: features of novel
and validation classes by the networks of this repository. Five labels per class are propagated on both graphs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from study import RECORDS, ROOT, SETS, Record, features, fill, table

from a2lp.bench.statistics import paired_difference
from a2lp.files import write_text
from a2lp.pool.graph import PoolGraph, neighbour_graph
from a2lp.pool.propagate import propagate
from a2lp.preprocess import l2

RECORD = RECORDS / "graph_quality.json"
PAGE = ROOT / "docs" / "performance.md"
POINTS, DRAWS, LABELS, NOISE = 50_000, 5, 5, 0.02
Array = np.ndarray[Any, Any]


def mixtures(name: str, n: int) -> tuple[Array, Array]:
    """Points (n, d) and their classes (n,)."""
    rng = np.random.default_rng(0)
    x, y = [], []
    for split in ("test", "val"):
        found = features(name, split)
        x.append(np.asarray(l2(found.features.astype(np.float32))))
        y.append(np.unique(found.labels, return_inverse=True)[1] + (y[-1].max() + 1 if y else 0))
    points, classes = np.concatenate(x), np.concatenate(y)
    order = np.argsort(classes, kind="stable")
    starts = np.searchsorted(classes[order], np.arange(classes.max() + 2))
    first = rng.integers(0, len(points), n)
    low, high = starts[classes[first]], starts[classes[first] + 1]
    second = order[(low + rng.random(n) * (high - low)).astype(np.int64)]
    share = rng.uniform(0.5, 1, (n, 1)).astype(np.float32)
    mixed = share * points[first] + (1 - share) * points[second]
    return mixed + NOISE * rng.standard_normal(mixed.shape, dtype=np.float32), classes[first]


def accuracy(graph: PoolGraph, truth: Array, seed: int) -> float:
    """Percent of the unlabelled points that label propagation gets right."""
    rng = np.random.default_rng(seed)
    classes = range(truth.max() + 1)
    rows = np.concatenate([rng.choice(np.flatnonzero(truth == code), LABELS, replace=False) for code in classes])
    y = np.zeros((len(truth), len(classes)), np.float32)
    y[rows, truth[rows]] = 1
    right = propagate(graph, y, tolerance=1e-3).Z.argmax(axis=1) == truth
    return float(100 * np.delete(right, rows).mean())


def compare(name: str, n: int) -> dict[str, Any]:
    x, truth = mixtures(name, n)
    exact, cells = neighbour_graph(x, method="exact"), neighbour_graph(x, method="cells")
    found = {
        way: [accuracy(graph, truth, seed) for seed in range(DRAWS)]
        for way, graph in (("exact", exact), ("cells", cells))
    }
    kept = (cells.weights > 0).multiply(exact.weights > 0).sum() / exact.weights.nnz
    difference = paired_difference(found["cells"], found["exact"])._asdict()
    return {"points": n, "dimensions": x.shape[1], "edges": float(kept), "accuracies": found, "difference": difference}


def page(text: str, record: Record) -> str:
    """The page with its generated part."""
    rows = []
    for name, title in SETS.items():
        if (cell := record.result(name)) is not None:
            means = [f"{np.mean(cell['accuracies'][way]):.2f}" for way in ("exact", "cells")]
            gain = cell["difference"]
            size = f"{cell['points']:,} x {cell['dimensions']}"
            rows.append(
                [title, size, f"{100 * cell['edges']:.1f} %", *means, f"{gain['mean']:+.2f} ± {gain['ci95']:.2f}"]
            )
    heads = ["features", "points", "edges found", "accuracy, exact", "accuracy, cells", "difference"]
    made = f"{record.provenance()}\n\n{table(heads, rows)}" if rows else ""
    return fill(text, "graph_quality", {"cells": made})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    record = Record(args.record, __doc__.splitlines()[0])
    if args.measure:
        for name in SETS:
            record.measure(name, lambda name=name: compare(name, args.points), points=args.points, draws=DRAWS)
    write_text(args.page, page(args.page.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()
