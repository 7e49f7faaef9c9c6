"""What EfficientNet-Lite0 sees and how it is pooled, compared on validation classes: a table of docs/images.md.

    .venv/bin/python benchmarks/views.py --measure --pack cub_val_test.npz   # embeds 2,950 images four times
    .venv/bin/python benchmarks/views.py                                     # the page from the record

For each draw, ten of CUB's 50 validation classes are one pool, with five labels for each class. A run that was stopped
continues, and vectors of images are kept in the user's cache.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from study import RECORDS, ROOT, Record, fill, table

import a2lp
from a2lp.files import write_text
from a2lp.images import View, datasets
from a2lp.images.backbones.networks import torch_backbone
from a2lp.images.embed import embed_images

PAGE = ROOT / "docs" / "images.md"
CLASSES, LABELS_PER_CLASS, DRAWS = 10, 5, 16


class Form(NamedTuple):
    """The side of the image in pixels, the power of the mean over positions, and whether it is mirrored, too."""

    side: int
    pool_power: float
    flip: bool = False


FORMS = {
    "224 pixels, means": Form(224, 1),
    "224 pixels, generalised means": Form(224, 3),
    "256 pixels, generalised means": Form(256, 3),
    "288 pixels, generalised means": Form(288, 3),
    "the same with mirror images (the default)": Form(288, 3, True),
}


def accuracies(form: Form, pack: Path) -> list[float]:
    """Percent right of the points without a label, for each draw."""
    images = datasets.load(pack, "val", dataset="cub")
    backbone = torch_backbone("efficientnet_lite0", view=View(form.side, form.side))
    net: Any = backbone.module
    net.pool_power, net.options = form.pool_power, net.options | {"pool_power": form.pool_power}
    features = embed_images(images, backbone, flip=form.flip)
    assert features.labels is not None
    found = []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        chosen = rng.choice(np.unique(features.labels), CLASSES, replace=False)
        rows = np.flatnonzero(np.isin(features.labels, chosen))
        truth = features.labels[rows]
        labels = np.full(len(rows), -1)
        for label in chosen:
            given = rng.choice(np.flatnonzero(truth == label), LABELS_PER_CLASS, replace=False)
            labels[given] = label
        pool = a2lp.Pool(features.features[rows].astype(np.float32), labels)
        found.append(100 * float((pool.answer.labels == truth)[~pool.given].mean()))
    return found


def page(text: str, record: Record) -> str:
    """The page with its generated part."""
    results = {words: record.result(words) for words in FORMS}
    rows = [[words, f"{np.mean(found):.1f}", f"{min(found):.1f}"] for words, found in results.items() if found]
    return fill(text, "views", {"table": table(["features", "accuracy, %", "worst draw"], rows)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--pack", type=Path, help="images of CUB, as a pack")
    args = parser.parse_args()
    record = Record(RECORDS / "views.json", "EfficientNet-Lite0: views and pooling on validation classes of CUB")
    if args.measure:
        if args.pack is None:
            raise SystemExit("--measure needs --pack, the images of CUB.")
        for words, form in FORMS.items():
            record.measure(words, lambda form=form: accuracies(form, args.pack), draws=DRAWS)
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), record))


if __name__ == "__main__":
    main()
