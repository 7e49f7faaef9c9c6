"""Points of classes without labels: ``novelty`` compared with one minus the largest probability, and with OSLO.

    .venv/bin/python benchmarks/open_set.py --measure   # half a minute; then docs/classify.md
    .venv/bin/python benchmarks/open_set.py             # docs/classify.md from the record

Ten classes are drawn from a bundled set of novel classes; five of them get labels, all points of all ten are in the
pool. A score is judged by the area under its ROC curve: the probability that it is higher for a point of the other five
classes than for one of the labelled five. The first two scores are of the same answer of ``auto``; OSLO is its own
method, on the same points and labels. Differences are paired.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score
from study import RECORDS, ROOT, Record, fill, table

from a2lp import Pool, TaskBatch, create, load
from a2lp.bench.statistics import estimate, paired_difference
from a2lp.files import write_text

RECORD = RECORDS / "open_set.json"
PAGE = ROOT / "docs" / "classify.md"
POOLS = {"cub": "CUB", "cifar_fs": "CIFAR-FS"}
CLASSES, KNOWN, DRAWS = 10, 5, 10
LABELS = (1, 5)  # of each known class
SCORES = ("novelty", "largest_probability", "oslo")


def areas(name: str, per_class: int, seed: int) -> tuple[float, ...]:
    """Areas under the ROC curves, in percent, of novelty, one minus the largest probability, and OSLO; one draw."""
    rng = np.random.default_rng(seed)
    data = load(name)
    classes = rng.choice(np.unique(data.labels), CLASSES, replace=False)
    rows = np.flatnonzero(np.isin(data.labels, classes))
    truth = data.labels[rows]
    codes = np.full(len(rows), -1)
    for code, known in enumerate(classes[:KNOWN]):
        codes[rng.choice(np.flatnonzero(truth == known), per_class, replace=False)] = code
    points = data.features[rows].astype(np.float32)
    pool = Pool(points, codes)
    new = ~pool.given
    unknown = ~np.isin(truth[new], classes[:KNOWN])
    task = TaskBatch(points[~new][None], codes[~new][None], points[new][None])
    oslo = create("oslo").outliers(task)[0]
    scores = pool.novelty[new], 1 - pool.answer.probabilities[new].max(axis=1), oslo
    return tuple(100 * float(roc_auc_score(unknown, score)) for score in scores)


def page(text: str, record: Record) -> str:
    """The page with its generated part."""
    rows = []
    for name, title in POOLS.items():
        for per_class in LABELS:
            cell = record.result(f"{name} {per_class}")
            if cell:
                scores = [cell[name] for name in SCORES]
                means = [f"{estimate(values).mean:.1f}" for values in scores]
                gains = [paired_difference(scores[0], other) for other in scores[1:]]
                rows.append([title, str(per_class), *means, *(f"{gain.mean:+.1f} ± {gain.ci95:.1f}" for gain in gains)])
    heads = [
        "pool",
        "labels per class",
        "`novelty`",
        "1 - largest probability",
        "OSLO",
        "less probability",
        "less OSLO",
    ]
    return fill(text, "open_set", {"areas": table(heads, rows)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    record = Record(args.record, __doc__.splitlines()[0])

    def measure(name: str, per_class: int) -> dict[str, Any]:
        draws = zip(*(areas(name, per_class, seed) for seed in range(DRAWS)), strict=True)
        return dict(zip(SCORES, draws, strict=True))

    if args.measure:
        for name in POOLS:
            for per_class in LABELS:
                record.measure(f"{name} {per_class}", lambda n=name, p=per_class: measure(n, p), draws=DRAWS)
    write_text(args.page, page(args.page.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()
