"""``a2lp classify`` as a new user meets it: a folder of bird photographs, five labels for each of ten species.

    .venv/bin/python benchmarks/folder_trial.py --pack cub_val_test.npz               # 20 draws, kept in records/
    .venv/bin/python benchmarks/folder_trial.py --pack cub_val_test.npz --split val   # printed and not kept

For each draw, ten classes of the pack and five images of each are chosen, the images are written to a flat folder, the
labels to a table, and the command is run as a process of its own. What it wrote and printed is then compared with the
truth. The first draw has an empty cache and embeds all of its images; the later ones share another one.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.bench.records import write_text
from a2lp.environment import stamp

RECORD = Path(__file__).parent / "records" / "folder_trial.json"
CLASSES, LABELS_PER_CLASS = 10, 5
DRAWS = 20
BINS = 15  # of the calibration error
ESTIMATE = re.compile(r"estimated from your labels: ([0-9.]+) % \(95 % interval ([0-9.]+) to ([0-9.]+) %\)")

EMBEDDED = re.compile(r"([0-9]+) of them not in the cache")


class Pack:
    """The encoded images of a split, with their classes."""

    def __init__(self, path: Path, split: str) -> None:
        with np.load(path) as pack:
            self.rows = np.flatnonzero(pack["split"].astype(str) == split)
            self.labels = pack["classes"].astype(str)[pack["labels"]]  # (n,) names
            self._data, self._offsets = pack["data"], pack["offsets"]

    def encoded(self, row: int) -> bytes:
        return bytes(self._data[self._offsets[row] : self._offsets[row + 1]])


def write_folder(pack: Pack, seed: int, root: Path) -> dict[str, str]:
    """A flat folder of images and a table of labels; the truth by file."""
    rng = np.random.default_rng([seed, CLASSES, LABELS_PER_CLASS])
    (root / "images").mkdir()
    truth: dict[str, str] = {}
    given: list[tuple[str, str]] = []
    for name in rng.choice(np.unique(pack.labels[pack.rows]), CLASSES, replace=False).tolist():
        rows = rng.permutation(pack.rows[pack.labels[pack.rows] == name]).tolist()
        files = [f"{row:05}.jpg" for row in rows]
        for file, row in zip(files, rows, strict=True):
            (root / "images" / file).write_bytes(pack.encoded(row))
        truth |= dict.fromkeys(files, name)
        given += [(file, name) for file in files[:LABELS_PER_CLASS]]
    with (root / "labels.csv").open("w", newline="", encoding="utf-8") as table:
        csv.writer(table).writerows([("path", "label"), *given])
    return truth


def classify(root: Path, cache: Path) -> tuple[str, int, float]:
    """What the command prints, how many images it embeds, and how long it takes."""
    command = [sys.executable, "-m", "a2lp", "classify", "images", "--labels", "labels.csv", "--out", "out.csv"]
    environment = os.environ | {"A2LP_CACHE": str(cache), "COLUMNS": "200"}
    began = time.perf_counter()
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)
    embedded = EMBEDDED.search(done.stderr)
    return done.stdout, int(embedded[1]) if embedded else 0, time.perf_counter() - began


def calibration_error(confidence: Any, right: Any) -> float:
    """Mean distance between confidence and accuracy, over bins of equal width."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs((right - confidence)[place == b].sum()) for b in range(BINS)]
    return float(sum(gaps) / len(right))


def draw(pack: Pack, seed: int, cache: Path) -> dict[str, Any]:
    """One draw, in percent."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        truth = write_folder(pack, seed, root)
        printed, embedded, seconds = classify(root, cache)
        with (root / "out.csv").open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["given"].lower() == "false"]
    right = np.array([row["label"] == truth[row["path"]] for row in rows], dtype=float)
    confidence = np.array([float(row["confidence"]) for row in rows])
    found = ESTIMATE.search(printed)
    if found is None:
        raise SystemExit(f"no estimate in what was printed:\n{printed}")
    expected, low, high = map(float, found.groups())
    accuracy = 100 * float(right.mean())
    return {
        "seed": seed,
        "images": len(truth),
        "accuracy": round(accuracy, 2),
        "estimate": expected,
        "interval": [low, high],
        # what is printed is rounded
        "inside": low - 0.5 <= accuracy <= high + 0.5,
        "calibration_error": round(100 * calibration_error(confidence, right), 2),
        "embedded": embedded,
        "seconds": round(seconds, 1),
        "load": os.getloadavg()[0],
    }


def summary(draws: list[dict[str, Any]]) -> dict[str, Any]:
    accuracy = np.array([d["accuracy"] for d in draws])
    return {
        "draws": len(draws),
        "mean_accuracy": round(float(accuracy.mean()), 2),
        "worst": round(float(accuracy.min()), 2),
        "intervals_right": sum(d["inside"] for d in draws),
        "mean_bias": round(float(np.mean([d["estimate"] for d in draws] - accuracy)), 2),
        "mean_calibration_error": round(float(np.mean([d["calibration_error"] for d in draws])), 2),
        "longest_seconds": max(d["seconds"] for d in draws),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, required=True, help="images of CUB, as a pack")
    parser.add_argument("--split", default="test")
    parser.add_argument("--cache", type=Path, help="the later draws' cache; one that is not kept if not given")
    args = parser.parse_args()
    pack = Pack(args.pack, args.split)
    draws = []
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as temporary:
        for seed in range(DRAWS):
            draws.append(draw(pack, seed, args.cache or Path(temporary) if seed else Path(empty)))
            print(draws[-1], flush=True)
    summaries = [summary(draws[:10]), summary(draws)]
    print(*summaries, sep="\n")
    if args.split == "test":
        record = {
            "what": __doc__.splitlines()[0],
            "summaries": summaries,
            "draws": draws,
        } | stamp()
        write_text(RECORD, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
