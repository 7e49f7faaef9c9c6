"""Labels that ``a2lp suggest`` asks for compared with random ones, from none on; and how good its forecast is.

    .venv/bin/python benchmarks/suggest.py --measure --data FOLDER   # about ten minutes; then docs/suggest.md
    .venv/bin/python benchmarks/suggest.py                           # docs/suggest.md from the record

FOLDER holds the feature files named below. Suggestions are followed ten at a time up to 50 labels and then 25 at a
time; the classifier is ``a2lp.pool``'s ``auto`` (and ``smoothed_lr`` beside it), scored on the points without a label.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from study import RECORDS, ROOT, Record, fill, table

import a2lp
from a2lp.files import write_text

RECORD = RECORDS / "suggest.json"
PAGE = ROOT / "docs" / "suggest.md"
POOL = "cub_resnet12_test"
FORECASTS = ("clip_vitb_oxford_pets_test", "clip_vitb_dtd_test")
STEPS = (10, 20, 30, 35, 40, 50, 75, 100, 125, 150, 165, 185, 200, 225, 250, 275, 300, 325, 350, 375, 400)
MARKS = (30, 35, 40, 50, 100, 165, 250, 400)
RANDOM = (30, 35, 40, 50, 100, 165, 250, 400, 500)
TARGETS = ((100, 30), (250, 165), (500, 400))
FORECAST_AT = (20, 40, 60, 100, 150, 200, 300)
METHODS = ("auto", "smoothed_lr")
Array = np.ndarray[Any, Any]


def load(folder: Path, name: str) -> tuple[Array, Array]:
    data = a2lp.load(folder / f"{name}.npz")
    return data.features, np.unique(data.labels, return_inverse=True)[1]


def score(pool: a2lp.Pool, truth: Array, rows: Array, method: str = "auto") -> float:
    """Percent of the unlabelled points that are right when ``rows`` are labelled."""
    pool.method = method
    pool.label(slice(None), np.where(np.isin(np.arange(len(truth)), rows), truth, -1))
    return right(pool, truth)


def right(pool: a2lp.Pool, truth: Array) -> float:
    """Percent of the unlabelled points that are right."""
    new = ~pool.given
    return float(100 * (pool.answer.labels[new] == truth[new]).mean())


def follow(x: Array, truth: Array, seed: int) -> dict[int, Array]:
    """The labelled rows by their number."""
    pool, found = a2lp.Pool(x, seed=seed), {}
    for labels in STEPS:
        rows = pool.suggest(labels - int(pool.given.sum())).rows
        pool.label(rows, truth[rows])
        if labels in MARKS:
            found[labels] = np.flatnonzero(pool.given)
    return found


def forecasts(x: Array, truth: Array) -> list[dict[str, float]]:
    """What 20 more labels should bring, and what they brought, in points; one trajectory."""
    pool = a2lp.Pool(x)
    found: list[dict[str, float]] = []
    for labels in FORECAST_AT:
        if count := labels - int(pool.given.sum()):
            asked = pool.suggest(count)
            pool.label(asked.rows, truth[asked.rows], asked.how)
        made = pool.suggest(20)
        expected, before = made.expected or 0, right(pool, truth)
        pool.label(made.rows, truth[made.rows], made.how)
        found.append({"labels": labels, "expected": 100 * expected, "seen": right(pool, truth) - before})
        pool.undo()
    return found


def accuracies(x: Array, truth: Array, seed: int) -> dict[str, dict[str, dict[int, float]]]:
    """Percent right by method, by how the labels were chosen, and by their number."""
    order = np.random.default_rng(seed).permutation(len(truth))
    labelled = {"random": {m: order[:m] for m in RANDOM}, "suggested": follow(x, truth, seed)}
    pool = a2lp.Pool(x, seed=seed)
    return {
        method: {
            kind: {m: score(pool, truth, rows, method) for m, rows in sets.items()} for kind, sets in labelled.items()
        }
        for method in METHODS
    }


def medians(record: Record) -> dict[str, dict[str, dict[str, float]]]:
    """Median accuracy over the seeds."""
    seeds = list(record.named("seed").values())
    return {
        method: {
            kind: {m: float(np.median([one[method][kind][m] for one in seeds])) for m in sets}
            for kind, sets in seeds[0][method].items()
        }
        for method in METHODS
    }


def page(text: str, record: Record) -> str:
    """The page with its generated parts."""
    if not record.named("seed"):
        return text
    middle = medians(record)
    rows = [
        [f"{method}, {kind}", *(f"{row[str(m)]:.1f}" if str(m) in row else "" for m in RANDOM)]
        for method, kinds in middle.items()
        for kind, row in kinds.items()
    ]
    equal = []
    for method, kinds in middle.items():
        for many, few in TARGETS:
            one, other = kinds["suggested"][str(few)], kinds["random"][str(many)]
            equal.append([method, f"{many} random", f"{few} suggested", f"{other:.1f}", f"{one:.1f}"])
    every = [one for ones in record.named("forecasts").values() for one in ones]
    brought = []
    for labels in FORECAST_AT:
        ones = [one for one in every if one["labels"] == labels]
        off = np.mean([abs(one["expected"] - one["seen"]) for one in ones])
        means = [f"{np.mean([one[key] for one in ones]):+.1f}" for key in ("expected", "seen")]
        brought.append([str(labels), *means, f"{off:.1f}"])
    off = float(np.mean([abs(one["expected"] - one["seen"]) for one in every]))
    near = sum(
        abs(one["expected"] - one["seen"]) <= 1 or one["expected"] <= 2 * one["seen"] <= 4 * one["expected"]
        for one in every
    )
    return fill(
        text,
        "suggest",
        {
            "accuracies": table(["", *map(str, RANDOM)], rows),
            "equal": table(["classifier", "", "compared with", "accuracy of the random", "of the suggested"], equal),
            "forecasts": table(["labels so far", "forecast for 20 more", "measured", "mean error"], brought)
            + f"\n\nThe mean error over all of these is {off:.1f} points; {near} of {len(every)} forecasts were right "
            "within a factor of two, or one point.",
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--data", type=Path, help="the folder of the feature files")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--commit", metavar="HASH", help="the commit of the code, on a machine without a checkout")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    record = Record(args.record, __doc__.splitlines()[0], args.commit)
    if args.measure:
        pool = load(args.data, POOL)
        for seed in range(args.seeds):
            record.measure(f"seed {seed}", lambda seed=seed: accuracies(*pool, seed), pool=POOL)
        for name in (POOL, *FORECASTS):
            record.measure(f"forecasts {name}", lambda name=name: forecasts(*load(args.data, name)))
        record = Record(args.record, "")  # numbers of labels are text in JSON
    write_text(args.page, page(args.page.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()
