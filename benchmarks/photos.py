"""Photographs of birds, labelled from few labels: README's first figures.

    .venv/bin/python benchmarks/photos.py --measure --pack cub_val_test.npz --features vectors   # then README
    .venv/bin/python benchmarks/photos.py                                                        # from the record

The first command embeds 5,903 images and keeps their vectors in a folder; the next time it takes them from there.

The images are those of CUB's 50 test classes, embedded by the default backbone of ``a2lp classify``, which was trained
on ImageNet. Labels are suggested ten at a time (``a2lp suggest``) or drawn at random; the classifiers are ``auto``, the
default of ``a2lp classify``, and scikit-learn's logistic regression on the same vectors at unit length, with the C that
is best on validation classes. Accuracy is on the images without a label. Species are drawn anew for each seed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from figures import drawing, svg
from sklearn.linear_model import LogisticRegression
from study import RECORDS, ROOT, Record, fill, table

import a2lp
from a2lp.files import write_text
from a2lp.preprocess import l2

RECORD = RECORDS / "photos.json"
README = ROOT / "README.md"
FIGURE = "photos.svg"  # in docs/assets
CLASSES = (10, 50)
COUNTS = (10, 20, 30, 40, 50, 75, 100, 150, 200, 250)
SEEDS = 5
HEADLINE = (10, 30)  # species, labels
OTHER = "logistic regression, random"
LINES = {"suggested": ("a2lp, suggested labels", "#2684d9", 2.6), "random": ("a2lp, random labels", "#6f93b8", 1.4)}
LINES |= {OTHER: ("logistic regression, random labels", "#d9691a", 1.4)}  # colours for light and dark pages
Array = np.ndarray[Any, Any]


def embedded(pack: Path, split: str, folder: Path) -> tuple[Array, Array]:
    """Vectors of the images of a split, from the folder or else from the pack, and their classes."""
    out = folder / f"{split}.npz"
    if not out.exists():
        images = [str(pack), "--dataset", "cub", "--split", split]
        subprocess.run([sys.executable, "-m", "a2lp", "embed", *images, "--out", str(out)], check=True)
    data = a2lp.load(out)
    return data.features.astype(np.float32), np.unique(data.labels, return_inverse=True)[1]


def draw(x: Array, truth: Array, n_classes: int, seed: int) -> tuple[Array, Array, Array]:
    """The images of some species, their classes, and an order in which labels are drawn at random."""
    rng = np.random.default_rng([seed, n_classes])
    rows = np.flatnonzero(np.isin(truth, rng.choice(truth.max() + 1, n_classes, replace=False)))
    return x[rows], truth[rows], rng.permutation(len(rows))


def regression(x: Array, truth: Array, order: Array, C: float) -> list[float]:
    """Accuracy of logistic regression by the number of labels."""
    unit, found = np.asarray(l2(x)), []
    for count in COUNTS:
        given = np.isin(np.arange(len(truth)), order[:count])
        fitted = LogisticRegression(C=C, max_iter=1000).fit(unit[given], truth[given])
        found.append(percent(fitted.predict(unit), truth, given))
    return found


def curves(x: Array, truth: Array, n_classes: int, seed: int, C: float) -> dict[str, Any]:
    """The number of images, and accuracy in percent by the number of labels, one draw."""
    x, truth, order = draw(x, truth, n_classes, seed)
    pool = a2lp.Pool(x, seed=seed)
    found: dict[str, Any] = {"images": len(truth), "suggested": [], "random": []}
    for count in COUNTS:
        while (missing := count - int(pool.given.sum())) > 0:
            chosen = pool.suggest(min(10, missing)).rows
            pool.label(chosen, truth[chosen])
        found["suggested"].append(percent(pool.answer.labels, truth, pool.given))
    for count in COUNTS:
        given = np.isin(np.arange(len(truth)), order[:count])
        pool.label(slice(None), np.where(given, truth, -1))
        found["random"].append(percent(pool.answer.labels, truth, given))
    return found | {OTHER: regression(x, truth, order, C)}


def percent(labels: Array, truth: Array, given: Array) -> float:
    return round(float(100 * (labels == truth)[~given].mean()), 2)


def mean(record: Record, n_classes: int) -> dict[str, Array]:
    """Mean curves and numbers of images over the seeds; empty if nothing was measured."""
    seeds = [curve for name, curve in record.named(f"{n_classes} species").items()]
    return {name: np.mean([curve[name] for curve in seeds], axis=0) for name in ("images", *LINES)} if seeds else {}


def photographs(found: dict[str, Array], n_classes: int) -> str:
    """How many there are; on average over the draws, unless every draw has all species."""
    n = float(found["images"])
    return f"{n:,.0f} photographs" if n_classes == CLASSES[-1] else f"about {round(n, -1):,.0f} photographs"


def readme(text: str, record: Record) -> str:
    """README with its first figures."""
    found = {n: mean(record, n) for n in CLASSES}
    if not all(found.values()):
        return text

    def at(species: int, labels: int, line: str = "suggested") -> str:
        return f"{found[species][line][COUNTS.index(labels)]:.0f} %"

    few, some = HEADLINE
    headline = (
        f"**Label {some} of {photographs(found[few], few)} of {few} bird species, and a2lp labels the others with "
        f"{at(few, some)} accuracy.** With {COUNTS[0]} labels it is {at(few, COUNTS[0])}, with 100 labels "
        f"{at(few, 100)}."
    )
    heads = ["accuracy on the photographs without a label", "labels", *(text for text, *_ in LINES.values())]
    rows = [
        [f"{photographs(found[n], n)} of {n} species", str(labels), *(at(n, labels, line) for line in LINES)]
        for n, labels in (HEADLINE, (CLASSES[-1], COUNTS[-1]))
    ]
    picture = "![Accuracy against the number of labels, for 10 and for 50 species](docs/assets/photos.svg)"
    source = (
        f"Test classes of CUB-200-2011 at 96 x 96 pixels, with the default backbone, which was trained on ImageNet. "
        f"a2lp chose the suggested labels; logistic regression is on the same vectors. Means of {SEEDS} draws "
        f"(`benchmarks/photos.py`)."
    )
    lines = textwrap.fill(headline.replace(" %", "\0%"), 120).replace("\0", " ")  # no line begins with %
    parts = [lines, table(heads, rows), picture, textwrap.fill(source, 120)]
    return fill(text, "photos", {"headline": "\n\n".join(parts)})


def figure(record: Record) -> str:
    """The curves as SVG text, for light and dark pages."""
    with drawing(9, 3) as made:
        for axes, n_classes in zip(made.subplots(1, len(CLASSES), sharey=True), CLASSES, strict=True):
            found = mean(record, n_classes)
            for name, (text, colour, width) in LINES.items():
                curve = found[name]
                axes.plot(COUNTS, curve, color=colour, linewidth=width, marker="o", markersize=2.5 + width / 2)
                if n_classes == CLASSES[-1]:
                    place = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "color": colour}
                    axes.annotate(
                        text.replace("regression, ", "regression,\n"),
                        (COUNTS[-1], curve[-1]),
                        **place,
                        annotation_clip=False,
                    )
            title = f"{n_classes} species, {photographs(found, n_classes)}"
            axes.set(title=title, xlabel="labels", xlim=(0, 258), ylim=(0, 103), yticks=range(0, 101, 20))
            axes.grid()
        made.axes[0].set_ylabel("accuracy on the rest, %")
        return svg(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--pack", type=Path, help="images of CUB, as a pack")
    parser.add_argument("--features", type=Path, help="a folder that keeps their vectors for the next time")
    parser.add_argument("--commit", metavar="HASH", help="the commit of the code, on a machine without a checkout")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--readme", type=Path, default=README)
    args = parser.parse_args()
    record = Record(args.record, __doc__.splitlines()[0], args.commit)
    if args.measure:
        with tempfile.TemporaryDirectory() as folder:
            kept = args.features or Path(folder)
            kept.mkdir(parents=True, exist_ok=True)
            val, test = (embedded(args.pack, split, kept) for split in ("val", "test"))
        tried = {
            C: np.mean([regression(*draw(*val, n, 0), C) for n in CLASSES]) for C in (1, 10, 100, 1000, 10_000, 100_000)
        }
        best = max(tried, key=lambda C: tried[C])
        for n in CLASSES:
            for seed in range(SEEDS):
                work = partial(curves, *test, n, seed, best)
                record.measure(f"{n} species {seed}", work, counts=list(COUNTS), C=best)
    write_text(args.readme, readme(args.readme.read_text(encoding="utf-8"), record))
    if record.parts:
        write_text(args.readme.parent / "docs" / "assets" / FIGURE, figure(record))


if __name__ == "__main__":
    main()
