"""The first steps of a new user, with the command of this environment: photos to labels, without torch.

python .ci/first_steps.py EMPTY_FOLDER
"""

from __future__ import annotations

import csv
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle")


def draw(shape: str, rng: np.random.Generator) -> Image.Image:
    """A shape of any colour and place."""
    image = Image.fromarray(rng.integers(90, 160, (96, 96, 3), dtype=np.uint8))
    x, y, r = rng.uniform((36, 36, 20), (60, 60, 30)).tolist()
    colour, pen = tuple(rng.integers(0, 256, 3).tolist()), ImageDraw.Draw(image)
    if shape == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif shape == "square":
        pen.rectangle((x - r, y - r, x + r, y + r), fill=colour)
    else:
        pen.polygon(((x, y - r), (x - r, y + r), (x + r, y + r)), fill=colour)
    return image


def main(folder: Path) -> None:
    """Draw photos, ask which to label, label those, and label the rest."""
    assert find_spec("torch") is None, "this environment has torch"
    rng = np.random.default_rng(0)
    (folder / "photos").mkdir(parents=True)
    truth = {f"{i:03}.png": SHAPES[i % 3] for i in range(90)}
    for name, shape in truth.items():
        draw(shape, rng).save(folder / "photos" / name)
    command = Path(sys.executable).with_name("a2lp")

    def a2lp(*arguments: str) -> str:
        done = subprocess.run([command, *arguments], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "a2lp serve SOURCE" in a2lp()
    print(a2lp("--version"), end="")
    a2lp("suggest", "photos", "--into", "labels.csv", "-n", "24", "--sheet", "sheet.html", "--cache", "cache")
    rows = list(csv.DictReader((folder / "labels.csv").open()))
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(row | {"label": truth[row["path"]]} for row in rows)
    a2lp(
        "classify", "photos", "--labels", "labels.csv", "--out", "out.csv", "--report", "page.html", "--cache", "cache"
    )
    found = [row["label"] == truth[row["path"]] for row in csv.DictReader((folder / "out.csv").open())]
    share = sum(found) / len(found)
    print(f"{len(rows)} labels, {share:.0%} of {len(found)} pictures right")
    assert len(found) == 90 and share > 0.8
    a2lp("bench", "--shots", "1", "--methods", "prototypical,lp", "--tasks", "20")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
