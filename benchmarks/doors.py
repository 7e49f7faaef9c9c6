"""The pictures on the three cards of docs/index.md, from records of other scripts here.

.venv/bin/python benchmarks/doors.py
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from figures import GREY, drawing, svg
from matplotlib.axes import Axes
from photos import COUNTS, OTHER, mean
from study import RECORDS, ROOT, Record

from a2lp.files import write_text

ASSETS = ROOT / "docs" / "assets"
OURS, THEIRS = "#2684d9", "#d9691a"  # as in photos.svg
SIZE = (3.4, 2.1)  # inches
SPECIES = 10
LABELS = (1, 2, 5, 10)  # per class
POOLS = {"auto": ("PoolClassifier", OURS), "LabelSpreading": ("LabelSpreading", GREY)}
POOLS |= {"logistic regression": ("logistic regression", THEIRS)}
CELL = "cub balanced 1-shot"
METHODS = ("prototypical", "lp", "a2lp", "a2lp_plus", "a2lp_em")


def photos(axes: Axes, record: Record) -> None:
    """Accuracy on photographs by the number of labels."""
    found = mean(record, SPECIES)
    for name, text, colour in (("suggested", "a2lp, suggested labels", OURS), (OTHER, "logistic regression", THEIRS)):
        _line(axes, COUNTS[:7], found[name][:7], text, colour)
    axes.set(title=f"photographs of {SPECIES} kinds of birds", xlabel="labels", xlim=(0, 104), ylim=(30, 103))


def pools(axes: Axes, record: Record) -> None:
    """Accuracy of classifiers by the number of labels per class, the mean over the pools."""
    for name, (text, colour) in POOLS.items():
        curve = [
            np.mean(
                [
                    np.mean(part["result"]["accuracies"][name])
                    for part in record.parts.values()
                    if part["result"]["labels_per_class"] == count
                ]
            )
            for count in LABELS
        ]
        _line(axes, LABELS, curve, text, colour)
    axes.set(title="birds, pets and textures", xlabel="labels per class", xlim=(0.5, 10.4), xticks=LABELS)


def field(axes: Axes, record: Record) -> None:
    """One-shot accuracy of the paper's methods and ours."""
    found = [record.result(f"accuracy {name}")["cells"][CELL]["mean"] for name in METHODS]
    axes.scatter(found, METHODS, s=36, color=[GREY] * 3 + [OURS] * 2, zorder=3)
    for accuracy, method in zip(found, METHODS, strict=True):
        axes.annotate(f"{accuracy:.1f}", (accuracy, method), xytext=(7, 0), textcoords="offset points", va="center")
    axes.set(title="5-way 1-shot, CUB, ResNet-12", xlabel="accuracy, %", ylim=(-0.6, 4.6))
    axes.margins(x=0.2)
    axes.grid(visible=True)


def _line(axes: Axes, x: object, y: object, text: str, colour: str) -> None:
    axes.plot(x, y, color=colour, marker="o", markersize=3, linewidth=1.8, label=text)
    axes.set_ylabel("accuracy, %")
    axes.grid(visible=True)
    legend = axes.legend(loc="lower right", labelcolor="linecolor", handlelength=0, handletextpad=0)
    for handle in legend.legend_handles:
        handle.set_visible(False)  # the colour of the text says which line it is


DOORS: dict[str, tuple[Callable[[Axes, Record], None], str]] = {
    "door-photos.svg": (photos, "photos"),
    "door-sklearn.svg": (pools, "pool_accuracy"),
    "door-field.svg": (field, "field"),
}


def figure(name: str) -> str:
    """A picture as SVG text."""
    draw, study = DOORS[name]
    with drawing(*SIZE) as made:
        draw(made.subplots(), Record(RECORDS / f"{study}.json", study))
        return svg(made)


def main() -> None:
    for name in DOORS:
        write_text(ASSETS / name, figure(name))


if __name__ == "__main__":
    main()
