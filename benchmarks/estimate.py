"""What ``a2lp classify`` and ``a2lp suggest`` say about their accuracy, compared with the truth.

    .venv/bin/python benchmarks/estimate.py --measure --data FOLDER --photos FILE   # two hours of one core
    .venv/bin/python benchmarks/estimate.py                                         # docs/classify.md from the record

FOLDER holds the feature files named below. FILE are the photos of CUB's test classes, embedded by the default
backbone: ``a2lp embed cub_val_test.npz --dataset cub --split test --out FILE``. Labels are drawn at random class by
class, at random from all points, as suggested (from none on, ten at a time and later more), and as suggested with
audits among them. The pools are taken whole (2,000 points of larger ones), and with 10 and 25 of their classes, other
ones for each seed. The constants of the estimate were chosen on the validation pools.

Each core takes a seed of a part at a time. What it finds is kept in a file of its own in DRAWS, so a run that was
killed goes on where it was. A part joins the record once all of its seeds are there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from study import RECORDS, ROOT, STAMP, Pieces, Record, fill, over_cores, table

import a2lp
from a2lp import cores
from a2lp.environment import commit
from a2lp.files import write_text

RECORD = RECORDS / "estimate.json"
PAGE = ROOT / "docs" / "classify.md"
DRAWS = Path(tempfile.gettempdir()) / "a2lp-estimate"
VALIDATION = {
    "digits": "digits",
    "cub_resnet12_val": "CUB val, ResNet-12",
    "clip_vitb_dtd_val": "DTD val, CLIP",
    "mini_resnet12_val": "miniImageNet val, ResNet-12",
}
TEST = {
    "photos": "CUB photos, default backbone",
    "cub_resnet12_test": "CUB, ResNet-12",
    "clip_vitb_oxford_pets_test": "Oxford Pets, CLIP",
    "clip_vitb_dtd_test": "textures (DTD), CLIP",
    "mini_resnet12_test": "miniImageNet, ResNet-12",
}
KINDS = {
    "class": "random by class",
    "uniform": "random",
    "suggested": "suggested",
    "audits": "suggested, a tenth audits",
}
SIZES = (30, 60, 120, 250)
TURNS = (10, 20, 30, 40, 50, 60, 80, 100, 120, 150, 180, 215, 250)  # numbers of labels after each turn of suggestions
CLASSES = ("10", "25", "all")
SEEDS, MOST_POINTS = 20, 2000
AUDITS, NEXT, TARGET = 0.1, 20, 0.95
CHANCES = 20  # draws from the stated confidences
Array = np.ndarray[Any, Any]


class Draw(NamedTuple):
    """One seed of a part."""

    pool: str
    classes: str  # one of CLASSES
    kind: str
    seed: int

    @property
    def part(self) -> str:
        return f"{self.pool} {self.classes} {self.kind}"

    @property
    def name(self) -> str:
        return f"{self.part} {self.seed}"


@cache
def load(name: str, folder: Path, photos: Path | None) -> tuple[Array, Array]:
    """Vectors and codes of a pool; of large ones, some points."""
    data = a2lp.load("digits" if name == "digits" else photos if name == "photos" else folder / f"{name}.npz")
    x, truth = data.features.astype(np.float32), np.unique(data.labels, return_inverse=True)[1]
    rows = np.sort(np.random.default_rng(0).permutation(len(x))[:MOST_POINTS])
    return x[rows], truth[rows]


def some_classes(x: Array, truth: Array, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """The points of some classes."""
    kept = np.isin(truth, rng.permutation(truth.max() + 1)[:n])
    return x[kept], np.unique(truth[kept], return_inverse=True)[1]


def in_rounds(truth: Array, rng: np.random.Generator) -> Array:
    """Rows in an order that takes one of each class, then a second one, and so on."""
    position = np.zeros(len(truth))
    for code in range(truth.max() + 1):
        of = rng.permutation(np.flatnonzero(truth == code))
        position[of] = np.arange(len(of))
    return np.lexsort((rng.random(len(truth)), position))


def labelled(pool: a2lp.Pool, truth: Array, kind: str, rng: np.random.Generator) -> Iterator[int]:
    """Label a pool step by step, and stop at each of the sizes that make sense: their number."""
    sizes = [size for size in SIZES if size <= 0.6 * len(truth)]
    if kind in ("class", "uniform"):
        order = in_rounds(truth, rng) if kind == "class" else rng.permutation(len(truth))
        for size in sizes:
            if kind == "uniform" or size > truth.max():  # one of each class at least
                pool.label(order[:size], truth[order[:size]])
                yield size
        return
    for size in (turn for turn in TURNS if turn <= max(sizes)):
        found = pool.suggest(size - int(pool.given.sum()), audits=AUDITS if kind == "audits" else 0)
        pool.label(found.rows, truth[found.rows], found.how)
        if size in sizes and len(pool.answer.classes) > 1:
            yield size


def calibration_error(confidence: Array, right: Array) -> float:
    """The mean difference between confidence and accuracy, in ten bins of confidence."""
    place = np.minimum((confidence * 10).astype(int), 9)
    return float(np.abs(np.bincount(place, weights=confidence - right)).sum() / len(right))


def judge(pool: a2lp.Pool, truth: Array, kind: str) -> dict[str, float]:
    """What is said about a pool, and what is true."""
    worth, answer, new = pool.assessment, pool.answer, ~pool.given
    right = answer.labels == truth
    confidence = worth.probabilities[np.arange(len(truth)), np.searchsorted(answer.classes, answer.labels)][new]
    by_chance = np.random.default_rng(0).random((CHANCES, len(confidence))) < confidence
    kept = worth.reaching(TARGET)
    found = pool.suggest(NEXT, audits=AUDITS if kind == "audits" else 0)
    expected = found.expected or 0.0
    pool.label(found.rows, truth[found.rows], found.how)
    after = float((pool.answer.labels == truth)[~pool.given].mean())
    pool.undo()
    return {
        "accuracy": float(right[new].mean()),
        "estimate": worth.accuracy,
        "low": worth.low,
        "high": worth.high,
        "calibration_error": calibration_error(confidence, right[new]),
        "by_chance": float(np.mean([calibration_error(confidence, one) for one in by_chance])),
        "unseen": float((~np.isin(truth, answer.classes))[new].mean()),
        "expected_unseen": worth.unseen,
        "gain": after - float(right[new].mean()),
        "expected_gain": expected,
        "kept": float(kept.sum() / new.sum()),
        "kept_accuracy": float(right[kept].mean()) if kept.any() else 1.0,
    }


def runs(x: Array, truth: Array, draw: Draw) -> list[dict[str, float]]:
    """One dict for each number of labels."""
    rng = np.random.default_rng([draw.seed, list(KINDS).index(draw.kind)])
    if draw.classes != "all":
        x, truth = some_classes(x, truth, int(draw.classes), rng)
    pool = a2lp.Pool(x, seed=draw.seed)
    return [
        {"seed": draw.seed, "labels": size} | judge(pool, truth, draw.kind)
        for size in labelled(pool, truth, draw.kind, rng)
    ]


def measure(draw: Draw, data: Path, photos: Path | None, pieces: Pieces) -> None:
    """Keep the runs of a draw with their stamp."""
    pieces.keep(draw.name, runs(*load(draw.pool, data, photos), draw))


def join(record: Record, draws: list[Draw], pieces: Pieces) -> None:
    """Put the parts of which every draw is there into the record, each with the stamp of its last one."""
    for part in dict.fromkeys(draw.part for draw in draws):
        found = [pieces.known(draw.name) for draw in draws if draw.part == part]
        kept = [one for one in found if one is not None]
        if len(kept) < len(found):
            print(f"incomplete: {part}, {len(kept)} of {len(found)} draws")
            continue
        last = max(kept, key=lambda one: str(one["date"]))
        record.keep(
            part, [run for one in kept for run in one["result"]], {key: last[key] for key in STAMP}, seeds=len(kept)
        )


def holds(run: dict[str, float]) -> bool:
    return run["low"] - 1e-9 <= run["accuracy"] <= run["high"] + 1e-9


def near(run: dict[str, float]) -> bool:
    """Whether the forecast is right within a factor of two, or one point."""
    said, seen = run["expected_gain"], run["gain"]
    return abs(said - seen) <= 0.01 or said <= 2 * seen <= 4 * said


FIGURES: dict[str, Callable[[list[dict[str, float]]], str]] = {
    "runs": lambda runs: str(len(runs)),
    "accuracy": lambda runs: f"{100 * np.mean([run['accuracy'] for run in runs]):.1f}",
    "stated": lambda runs: f"{100 * np.mean([run['estimate'] for run in runs]):.1f}",
    "interval holds the truth": lambda runs: f"{100 * np.mean([holds(run) for run in runs]):.0f} %",
    "its width": lambda runs: f"{100 * np.mean([run['high'] - run['low'] for run in runs]):.1f}",
    "calibration error": lambda runs: f"{100 * np.mean([run['calibration_error'] for run in runs]):.1f}",
    "of it by chance": lambda runs: f"{100 * np.mean([run['by_chance'] for run in runs]):.1f}",
    "forecasts near": lambda runs: f"{100 * np.mean([near(run) for run in runs]):.0f} %",
}


def found(record: Record, pools: dict[str, str]) -> dict[tuple[str, str, str], list[dict[str, float]]]:
    """The runs of these pools by pool, number of classes and kind, as far as they were measured."""
    keys = product(pools, CLASSES, KINDS)
    return {key: runs for key in keys if (runs := record.result(" ".join(key)))}


def by_kind(parts: dict[tuple[str, str, str], list[dict[str, float]]]) -> str:
    """A table with a line for each way of choosing labels and their number."""
    rows = []
    for kind, size in product(KINDS, SIZES):
        runs = [run for key, ones in parts.items() if key[2] == kind for run in ones if run["labels"] == size]
        if runs:
            rows.append([KINDS[kind], str(size), *(figure(runs) for figure in FIGURES.values())])
    return table(["chosen", "labels", *FIGURES], rows)


def number(pool: str, classes: str) -> str:
    """About how many classes the pool of a part has."""
    if classes == "10" or pool == "digits":
        return "10"
    return "16 to 25" if classes == "25" or pool.startswith("mini") else "37 to 50"


def by_number(parts: dict[tuple[str, str, str], list[dict[str, float]]]) -> str:
    """A table with a line for each number of classes, way of choosing labels, and their number."""
    rows = []
    for classes, kind, size in product(("10", "16 to 25", "37 to 50"), KINDS, SIZES):
        ones = [runs for key, runs in parts.items() if number(*key[:2]) == classes and key[2] == kind]
        if runs := [run for part in ones for run in part if run["labels"] == size]:
            rows.append([classes, KINDS[kind], str(size), *(figure(runs) for figure in FIGURES.values())])
    return table(["classes", "chosen", "labels", *FIGURES], rows)


def by_pool(parts: dict[tuple[str, str, str], list[dict[str, float]]], pools: dict[str, str]) -> str:
    """A table with a line for each pool."""
    rows = []
    for pool, classes in product(pools, CLASSES):
        runs = [run for key, ones in parts.items() if key[:2] == (pool, classes) for run in ones]
        if runs:
            kept = f"{100 * np.mean([run['kept'] for run in runs]):.0f} %"
            right = f"{100 * np.mean([run['kept_accuracy'] for run in runs if run['kept']]):.1f}"
            rows.append([pools[pool], classes, *(figure(runs) for figure in FIGURES.values()), kept, right])
    return table(["pool", "classes", *FIGURES, f"kept for {100 * TARGET:.0f} %", "accuracy of these"], rows)


def page(text: str, record: Record) -> str:
    """The page with its generated parts."""
    test, validation = found(record, TEST), found(record, VALIDATION)
    parts = {
        "test": by_kind(test),
        "test classes": by_number(test),
        "test pools": by_pool(test, TEST),
        "validation": by_kind(validation),
        "validation pools": by_pool(validation, VALIDATION),
    }
    return fill(text, "estimate", parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--data", type=Path, help="the folder of the feature files")
    parser.add_argument("--photos", type=Path, help="the feature file of the photos")
    parser.add_argument("--only", default=",".join([*TEST, *VALIDATION]), help="pools, with commas between them")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--cores", type=int, default=cores.count())
    parser.add_argument("--commit", metavar="HASH", help="the commit of the code, on a machine without a checkout")
    parser.add_argument("--draws", type=Path, default=DRAWS, help="the folder in which draws are kept")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    record = Record(args.record, __doc__.splitlines()[0])
    if args.measure:
        pieces = Pieces(args.draws, args.commit or commit() or "unknown-dirty")
        draws = [
            Draw(pool, classes, kind, seed)
            for pool in args.only.split(",")
            for classes in CLASSES
            if classes == "all" or load(pool, args.data, args.photos)[1].max() >= int(classes)
            for kind in KINDS
            for seed in range(args.seeds)
        ]
        args.draws.mkdir(parents=True, exist_ok=True)
        missing = [(draw, args.data, args.photos, pieces) for draw in draws if pieces.known(draw.name) is None]
        over_cores(measure, missing, args.cores)
        join(record, draws, pieces)
    write_text(args.page, page(args.page.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()
