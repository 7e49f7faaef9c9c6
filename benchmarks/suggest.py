"""Labels that ``a2lp suggest`` asks for against random ones, from none on; and how good its forecast is.

    .venv/bin/python benchmarks/suggest.py --data FOLDER           # 10 seeds, kept in records/, then docs/suggest.md
    .venv/bin/python benchmarks/suggest.py --data FOLDER --quick   # one seed, printed and not kept
    .venv/bin/python benchmarks/suggest.py --docs                  # docs/suggest.md from the record

FOLDER holds the feature files named below. Suggestions are followed ten at a time up to 50 labels and then 25 at a
time; the classifier is ``a2lp.pool``'s ``auto`` (and ``smoothed_lr`` beside it), scored on the points without a label.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

from a2lp import features
from a2lp.bench.records import write_text
from a2lp.environment import stamp
from a2lp.pool.solve import PoolAnswer, Prepared, prepare, solve
from a2lp.pool.suggest import expected_gain, suggest

RECORD = Path(__file__).parent / "records" / "suggest.json"
PAGE = Path(__file__).parents[1] / "docs" / "suggest.md"
POOL = "cub_resnet12_test"
FORECASTS = ("clip_vitb_oxford_pets_test", "clip_vitb_dtd_test")
STEPS = (10, 20, 30, 35, 40, 50, 75, 100, 125, 150, 165, 185, 200, 225, 250, 275, 300, 325, 350, 375, 400)
MARKS = (30, 35, 40, 50, 100, 165, 250, 400)
RANDOM = (30, 35, 40, 50, 100, 165, 250, 400, 500)
TARGETS = ((100, 30), (250, 165), (500, 400))
FORECAST_AT = (20, 40, 60, 100, 150, 200, 300)
METHODS = ("auto", "smoothed_lr")
Array = np.ndarray[Any, Any]


def load(folder: Path, name: str) -> tuple[Prepared, Array]:
    data = features.load(folder / f"{name}.npz")
    return prepare(data.features), np.unique(data.labels, return_inverse=True)[1]


def score(prepared: Prepared, truth: Array, rows: Array, seed: int, method: str = "auto") -> tuple[float, PoolAnswer]:
    """Percent of the unlabelled points that are right when ``rows`` are labelled."""
    codes = np.full(len(truth), -1)
    codes[rows] = truth[rows]
    answer = solve(prepared, codes, method=method, seed=seed)
    new = ~answer.given
    return float(100 * (answer.labels[new] == truth[new]).mean()), answer


def follow(prepared: Prepared, truth: Array, seed: int) -> dict[int, Array]:
    """The labelled rows by their number."""
    codes = np.full(len(truth), -1)
    answer, found = None, {}
    for labels in STEPS:
        made = suggest(prepared, codes, labels - int((codes >= 0).sum()), seed=seed, start=answer)
        codes[made.rows] = truth[made.rows]
        answer = made.answer
        if labels in MARKS:
            found[labels] = np.flatnonzero(codes >= 0)
    return found


def forecasts(prepared: Prepared, truth: Array, seed: int) -> list[dict[str, float]]:
    """What 20 more labels should bring, and what they brought, in points; one trajectory."""
    codes = np.full(len(truth), -1)
    found: list[dict[str, float]] = []
    for labels in FORECAST_AT:
        count = labels - int((codes >= 0).sum())
        if count:
            rows = suggest(prepared, codes, count, seed=seed).rows
            codes[rows] = truth[rows]
        before, answer = score(prepared, truth, np.flatnonzero(codes >= 0), seed)
        made = suggest(prepared, codes, 20, seed=seed, start=answer)
        codes[made.rows] = truth[made.rows]
        after, _ = score(prepared, truth, np.flatnonzero(codes >= 0), seed)
        found.append({"labels": labels, "expected": 100 * expected_gain(answer, made.rows), "seen": after - before})
    return found


def summary(record: dict[str, Any]) -> str:
    """The tables of docs/suggest.md."""
    lines = ["| | " + " | ".join(map(str, RANDOM)) + " |", "| --- |" + " ---: |" * len(RANDOM)]
    middle = {
        method: {kind: {int(m): float(np.median(v)) for m, v in row.items()} for kind, row in rows.items()}
        for method, rows in record["accuracies"].items()
    }
    for method, rows in middle.items():
        for kind, row in rows.items():
            lines.append(
                f"| {method}, {kind} | " + " | ".join(f"{row[m]:.1f}" if m in row else "" for m in RANDOM) + " |"
            )
    lines += [
        "",
        "| classifier | as good as | with | accuracy | that of the random ones |",
        "|" + " --- |" * 3 + " ---: |" * 2,
    ]
    for method, rows in middle.items():
        for many, few in TARGETS:
            one, other = rows["suggested"][few], rows["random"][many]
            lines.append(f"| {method} | {many} random | {few} suggested | {one:.1f} | {other:.1f} |")
    lines += ["", "| labels so far | 20 more should bring | they brought | off by |", "| ---: | ---: | ---: | ---: |"]
    every = [one for ones in record["forecasts"].values() for one in ones]
    for labels in FORECAST_AT:
        ones = [one for one in every if one["labels"] == labels]
        off = np.mean([abs(one["expected"] - one["seen"]) for one in ones])
        means = [float(np.mean([one[key] for one in ones])) for key in ("expected", "seen")]
        lines.append(f"| {labels} | {means[0]:+.1f} | {means[1]:+.1f} | {off:.1f} |")
    off = float(np.mean([abs(one["expected"] - one["seen"]) for one in every]))
    near = sum(abs(one["expected"] - one["seen"]) <= one["expected"] / 2 for one in every)
    said = f"Over all of these the forecast was off by {off:.1f} points on average"
    lines += ["", f"{said}; {near} of the {len(every)} were right within half of themselves."]
    return "\n".join(lines)


def fill(page: str, record: dict[str, Any]) -> str:
    """The page with its marked part as it should be."""
    part = f"<!-- benchmarks/suggest.py -->\n\n{summary(record)}\n\n<!-- end -->"
    return re.sub(r"<!-- benchmarks/suggest\.py -->\n.*?<!-- end -->", lambda _: part, page, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the feature files")
    parser.add_argument("--quick", action="store_true", help="one seed, nothing is kept")
    parser.add_argument("--docs", action="store_true", help="only write the page from the record")
    args = parser.parse_args()
    if not args.docs:
        record = measure(args.data, 1 if args.quick else 10)
        print(summary(record))
        if args.quick:
            return
        write_text(RECORD, json.dumps(record, indent=1) + "\n")
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), record))


def measure(folder: Path, n_seeds: int) -> dict[str, Any]:
    began = time.perf_counter()
    prepared, truth = load(folder, POOL)
    found: dict[str, dict[str, dict[int, list[float]]]] = {
        method: {"random": {m: [] for m in RANDOM}, "suggested": {m: [] for m in MARKS}} for method in METHODS
    }
    for seed in range(n_seeds):
        order = np.random.default_rng(seed).permutation(len(truth))
        labelled = {"random": {m: order[:m] for m in RANDOM}, "suggested": follow(prepared, truth, seed)}
        for method in METHODS:
            for kind, sets in labelled.items():
                for m, rows in sets.items():
                    found[method][kind][m].append(score(prepared, truth, rows, seed, method)[0])
                last = {m: round(values[-1], 1) for m, values in found[method][kind].items()}
                print(seed, method, kind, last, flush=True)
    pools = {POOL: (prepared, truth)} | {name: load(folder, name) for name in FORECASTS}
    return {
        "what": __doc__.splitlines()[0],
        "pool": POOL,
        "points": len(truth),
        "classes": int(truth.max()) + 1,
        "seeds": n_seeds,
        "accuracies": found,
        "forecasts": {name: forecasts(*pool, seed=0) for name, pool in pools.items()},
        "seconds": round(time.perf_counter() - began, 1),
    } | stamp()


if __name__ == "__main__":
    main()
