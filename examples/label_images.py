"""Predict the labels of a folder of images from a few labelled ones.

    python examples/label_images.py                          # on generated images
    python examples/label_images.py photos labels.csv out.csv

``labels.csv`` has the columns path,label, with a few lines for each class. Needs the extra ``images``; nothing is
downloaded. ``a2lp classify photos --labels labels.csv --out out.csv`` does the same.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from a2lp.labelling import classify_files

SHAPES = ("circle", "square", "triangle")


def draw(shape: str, rng: np.random.Generator):
    """Draw a coloured shape at a random position on a noisy background."""
    from PIL import Image, ImageDraw

    size = 160
    noise = rng.normal(128, 12, (size, size, 3)) + rng.uniform(-60, 60, 3)
    image = Image.fromarray(np.clip(noise, 0, 255).astype(np.uint8))
    x, y, r = rng.uniform((60, 60, 35), (100, 100, 50)).tolist()
    colour = tuple(rng.integers(0, 256, 3).tolist())
    pen = ImageDraw.Draw(image)
    if shape == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif shape == "square":
        pen.rectangle((x - r, y - r, x + r, y + r), fill=colour)
    else:
        pen.polygon(((x, y - r), (x - r, y + r), (x + r, y + r)), fill=colour)
    return image


def make_folder(folder: Path, n: int = 60, n_labelled: int = 4) -> Path:
    """Write n images, named 000.png and so on, and labels for the first few of each class."""
    rng = np.random.default_rng(0)
    (folder / "photos").mkdir()
    lines = ["path,label"]
    for i in range(n):
        shape = SHAPES[i % 3]
        draw(shape, rng).save(folder / "photos" / f"{i:03d}.png")
        if i < 3 * n_labelled:
            lines.append(f"{i:03d}.png,{shape}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def main(source: Path, labels: Path, out: Path) -> None:
    _, result = classify_files(source, labels, out)
    print(f"{len(result)} images, {result.table['given'].sum()} of them labelled by you")
    estimate = result.assessment
    print(f"expected accuracy on the others: {estimate.accuracy:.0%} ({estimate.low:.0%} to {estimate.high:.0%})")
    print("the least confident:")
    for row in sorted(result.rows(), key=lambda row: row["confidence"])[:5]:
        print(f"  {row['path']}: {row['label']} {row['confidence']:.2f}, or {row['second']}; nearest {row['nearest']}")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        main(*map(Path, sys.argv[1:]))
        print(f"all of them are in {sys.argv[3]}")
    elif len(sys.argv) == 1:
        with TemporaryDirectory() as temporary:
            folder = make_folder(Path(temporary))
            main(folder / "photos", folder / "labels.csv", folder / "out.csv")
            rows = (folder / "out.csv").read_text().splitlines()[1:]
            right = [row.split(",")[1] == SHAPES[i % 3] for i, row in enumerate(rows)]
            print(f"accuracy on the others, in truth: {np.mean(right[12:]):.0%}")
    else:
        sys.exit(__doc__)
