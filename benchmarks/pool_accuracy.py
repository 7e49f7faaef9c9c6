"""``auto``, the default of ``a2lp.label``, compared with scikit-learn's classifiers on pools with few labels per class.

    .venv/bin/python benchmarks/pool_accuracy.py --measure --data FOLDER   # about ten minutes; then docs/classify.md
    .venv/bin/python benchmarks/pool_accuracy.py                           # docs/classify.md from the record

FOLDER holds the feature files named below. Logistic regression, k nearest neighbours and LabelSpreading are
scikit-learn's, on the same features at unit length; their parameters are those of the best mean accuracy over the
validation pools, chosen for each number of labels. ``auto`` has no parameters. All see the same draws, so that
differences are paired.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import LabelSpreading
from study import RECORDS, ROOT, Record, fill, table

import a2lp
from a2lp.bench.statistics import estimate, paired_difference
from a2lp.files import write_text
from a2lp.pool.methods import Task
from a2lp.pool.prepare import whitened_graph
from a2lp.pool.solve import solve
from a2lp.preprocess import l2

RECORD = RECORDS / "pool_accuracy.json"
PAGE = ROOT / "docs" / "classify.md"
VALIDATION = ("cub_resnet12_val", "clip_vitb_dtd_val")
TEST = {
    "cub_resnet12_test": "CUB, ResNet-12",
    "clip_vitb_oxford_pets_test": "Oxford Pets, CLIP",
    "clip_vitb_dtd_test": "textures (DTD), CLIP",
}
DRAWS, TUNING_DRAWS = 20, 3
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
        data = a2lp.load(folder / f"{name}.npz")
        self.name = name
        self.x = np.asarray(l2(data.features.astype(np.float32)))
        self.truth = np.unique(data.labels, return_inverse=True)[1]
        self.graph: tuple[Any, Any] | None = None

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
        if self.graph is None:
            self.graph = whitened_graph(self.x)[1:]
        return solve(Task(*self.graph, codes, int(codes.max()) + 1), np.unique(codes[codes >= 0])).labels


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


def page(text: str, record: Record) -> str:
    """The page with its generated part."""
    rows = []
    for name, title in TEST.items():
        for per_class in LABELS_PER_CLASS:
            cell = record.result(f"{name} {per_class}")
            if cell:
                rivals = [f"{cell['means'][rival]['mean']:.1f}" for rival in RIVALS]
                best = min(cell["differences"].values(), key=lambda gain: gain["mean"])
                gain = f"{best['mean']:+.1f} ± {best['ci95']:.1f}"
                rows.append([title, str(per_class), f"**{cell['means']['auto']['mean']:.1f}**", *rivals, gain])
    heads = ["pool", "labels per class", "`auto`", *RIVALS, "`auto` − best of them"]
    return fill(text, "pool_accuracy", {"accuracies": table(heads, rows)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--data", type=Path, help="the folder of the feature files")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--commit", metavar="HASH", help="the commit of the code, on a machine without a checkout")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    record = Record(args.record, __doc__.splitlines()[0], args.commit)
    if args.measure:
        # scikit-learn warns that 30 rounds were not enough, and about later versions
        warnings.filterwarnings("ignore", module="sklearn")
        validation = [Pool(args.data, name) for name in VALIDATION]
        best = {per_class: tune(validation, per_class, TUNING_DRAWS) for per_class in LABELS_PER_CLASS}
        for name in TEST:
            pool = Pool(args.data, name)
            for k in LABELS_PER_CLASS:
                record.measure(f"{name} {k}", lambda p=pool, k=k: compare(p, k, best[k], args.draws), draws=args.draws)
    write_text(args.page, page(args.page.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()
