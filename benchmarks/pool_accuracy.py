"""The default of ``a2lp.pool`` against what people use today, on pools: all classes at once, a few labels each.

    .venv/bin/python benchmarks/pool_accuracy.py --data FOLDER           # 20 draws, kept in records/
    .venv/bin/python benchmarks/pool_accuracy.py --data FOLDER --quick   # 2 draws, printed and not kept

FOLDER holds the feature files named below. Logistic regression, k nearest neighbours and LabelSpreading are
scikit-learn's, on the same features at unit length; their parameters are those of the best mean accuracy over the
validation pools, chosen for each number of labels. ``auto`` has no parameters. All see the same draws, so that
differences are paired.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import LabelSpreading

from a2lp import features
from a2lp.bench.records import write_text
from a2lp.bench.statistics import estimate, paired_difference
from a2lp.environment import stamp
from a2lp.pool.solve import Prepared, prepare, solve
from a2lp.preprocess import l2

RECORD = Path(__file__).parent / "records" / "pool_accuracy.json"
VALIDATION = ("cub_resnet12_val", "clip_vitb_dtd_val")
TEST = ("cub_resnet12_test", "clip_vitb_oxford_pets_test", "clip_vitb_dtd_test")
LABELS_PER_CLASS = (1, 2, 5, 10)
Array = np.ndarray[Any, Any]


def logistic_regression(x: Array, codes: Array, C: float) -> Array:
    given = codes >= 0
    return np.asarray(LogisticRegression(C=C, max_iter=1000).fit(x[given], codes[given]).predict(x))


def nearest_neighbours(x: Array, codes: Array, n_neighbors: int, weights: str) -> Array:
    given = codes >= 0
    k = min(n_neighbors, int(given.sum()))
    return np.asarray(KNeighborsClassifier(k, weights=weights).fit(x[given], codes[given]).predict(x))


def label_spreading(x: Array, codes: Array, alpha: float, **kernel: Any) -> Array:
    return np.asarray(LabelSpreading(alpha=alpha, max_iter=30, **kernel).fit(x, codes).transduction_)


RIVALS: dict[str, tuple[Callable[..., Array], list[dict[str, Any]]]] = {
    "logistic regression": (logistic_regression, [{"C": C} for C in (1, 10, 100, 1000)]),
    "kNN": (
        nearest_neighbours,
        [{"n_neighbors": k, "weights": w} for k in (1, 3, 5, 10) for w in ("uniform", "distance")],
    ),
    "LabelSpreading": (
        label_spreading,
        [{"kernel": "rbf", "gamma": g, "alpha": a} for g in (5, 10, 20, 40) for a in (0.2, 0.8)]
        + [{"kernel": "knn", "n_neighbors": k, "alpha": a} for k in (10, 20) for a in (0.2, 0.8)],
    ),
}


class Pool:
    """A feature file, and what its points give without labels."""

    def __init__(self, folder: Path, name: str) -> None:
        data = features.load(folder / f"{name}.npz")
        self.name = name
        self.x = np.asarray(l2(data.features.astype(np.float32)))
        self.truth = np.unique(data.labels, return_inverse=True)[1]
        self.prepared: Prepared | None = None

    def draws(self, per_class: int, n_draws: int) -> Iterator[Array]:
        """Codes (n,) with so many labels of each class, -1 elsewhere."""
        for seed in range(n_draws):
            rng = np.random.default_rng([seed, per_class])
            codes = np.full(len(self.truth), -1)
            for code in range(self.truth.max() + 1):
                codes[rng.choice(np.flatnonzero(self.truth == code), per_class, replace=False)] = code
            yield codes

    def score(self, codes: Array, answer: Array) -> float:
        """Percent of the unlabelled points that are right."""
        new = codes < 0
        return float(100 * (answer[new] == self.truth[new]).mean())

    def auto(self, codes: Array) -> Array:
        if self.prepared is None:
            self.prepared = prepare(self.x)
        return solve(self.prepared, codes).labels


def tune(pools: list[Pool], per_class: int, n_draws: int) -> dict[str, dict[str, Any]]:
    """The best parameters of each rival."""
    best = {}
    for name, (run, grid) in RIVALS.items():
        means = []
        for parameters in grid:
            scores = [
                p.score(codes, run(p.x, codes, **parameters)) for p in pools for codes in p.draws(per_class, n_draws)
            ]
            means.append(np.mean(scores))
        best[name] = grid[int(np.argmax(means))]
    return best


def compare(pool: Pool, per_class: int, best: dict[str, dict[str, Any]], n_draws: int) -> dict[str, Any]:
    """One cell: accuracies of all, and the differences of ``auto`` to each."""
    accuracies: dict[str, list[float]] = {name: [] for name in ("auto", *RIVALS)}
    for codes in pool.draws(per_class, n_draws):
        accuracies["auto"].append(pool.score(codes, pool.auto(codes)))
        for name, (run, _) in RIVALS.items():
            accuracies[name].append(pool.score(codes, run(pool.x, codes, **best[name])))
    return {
        "pool": pool.name,
        "classes": int(pool.truth.max()) + 1,
        "points": len(pool.x),
        "labels_per_class": per_class,
        "parameters": best,
        "accuracies": accuracies,
        "means": {name: estimate(values)._asdict() for name, values in accuracies.items()},
        "differences": {name: paired_difference(accuracies["auto"], accuracies[name])._asdict() for name in RIVALS},
    }


def line(cell: dict[str, Any]) -> str:
    means = cell["means"]
    rivals = ", ".join(
        f"{name} {means[name]['mean']:.1f} ({d['mean']:+.2f} ± {d['ci95']:.2f})"
        for name, d in cell["differences"].items()
    )
    return f"{cell['pool']} {cell['labels_per_class']:>2}: auto {means['auto']['mean']:.1f}; {rivals}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the feature files")
    parser.add_argument("--quick", action="store_true", help="two draws, nothing is kept")
    args = parser.parse_args()
    n_draws, tuning_draws = (2, 1) if args.quick else (20, 3)
    # scikit-learn tells of 30 rounds that were not enough, and of versions to come
    warnings.filterwarnings("ignore", module="sklearn")
    began = time.perf_counter()
    validation = [Pool(args.data, name) for name in VALIDATION]
    best = {per_class: tune(validation, per_class, tuning_draws) for per_class in LABELS_PER_CLASS}
    cells = []
    for name in TEST:
        pool = Pool(args.data, name)
        for per_class in LABELS_PER_CLASS:
            cells.append(compare(pool, per_class, best[per_class], n_draws))
            print(line(cells[-1]), flush=True)
    if not args.quick:
        record = {
            "what": __doc__.splitlines()[0],
            "draws": n_draws,
            "tuned_on": {"pools": VALIDATION, "draws": tuning_draws},
            "cells": cells,
            "seconds": round(time.perf_counter() - began, 1),
        } | stamp()
        write_text(RECORD, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
