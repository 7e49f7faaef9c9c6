"""docs/assets/field.svg from the records of field.py: accuracy against time, a dot for each method.

One picture for light and dark pages: the background is transparent, and text is a grey that both show.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import matplotlib as mpl
from figures import drawing, svg
from matplotlib.axes import Axes
from matplotlib.figure import Figure

OURS = ("a2lp_em", "a2lp_plus")
COLOURS = {"no assumption": "#0072B2", "assumes or prefers equally many queries of every class": "#D55E00"}
PANELS = {"cub balanced 1-shot": "balanced tasks", "cub dirichlet 1-shot": "imbalanced tasks (Dirichlet)"}
# where a label may stand, in points from its dot: the first that hits nothing is taken
PLACES = [
    (6, 0),
    (-6, 0),
    (0, 8),
    (0, -8),
    (6, 7),
    (-6, 7),
    (6, -7),
    (-6, -7),
    (14, 12),
    (-14, 12),
    (14, -12),
    (-14, -12),
]
MARGIN = (5, 0)  # around a label, across and along: browsers may set it in a wider font


class Dot(NamedTuple):
    label: str
    ms: float
    accuracy: float
    uniform: bool


def dots(accuracies: dict[str, Any], times: dict[str, Any], cell: str) -> list[Dot]:
    """Methods with their defaults that use no base data, of which both numbers are known."""
    return [
        Dot(name, times[name]["ms"], row["cells"][cell]["mean"], row["uniform"])
        for name, row in accuracies.items()
        if "," not in name and not row["uses_base"] and cell in row["cells"] and name in times
    ]


def figure(accuracies: dict[str, Any], times: dict[str, Any]) -> str:
    """The picture as SVG text."""
    with drawing(10, 4.6) as made:
        panels = made.subplots(1, 2, sharey=True)
        shown = [dots(accuracies, times, cell) for cell in PANELS]
        for axes, some, title in zip(panels, shown, PANELS.values(), strict=True):
            _panel(axes, some, title)
        panels[0].set_ylabel("accuracy, %: CUB, 5-way, 1-shot")
        handles, names = panels[0].get_legend_handles_labels()
        made.legend(handles, names, loc="outside lower center", ncols=2)
        made.canvas.draw()  # the layout decides where labels hit each other
        for axes, some in zip(panels, shown, strict=True):
            _place_labels(made, axes, sorted(some, key=lambda dot: -dot.accuracy))
        return svg(made)


def _panel(axes: Axes, shown: list[Dot], title: str) -> None:
    for name, colour in COLOURS.items():
        some = [dot for dot in shown if dot.uniform == name.startswith("assumes")]
        axes.scatter([dot.ms for dot in some], [dot.accuracy for dot in some], s=28, color=colour, label=name, zorder=3)
    axes.set(title=title, xlabel="milliseconds of one CPU core for a task")
    axes.set_xscale("log")
    axes.grid()
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _place_labels(made: Figure, axes: Axes, shown: list[Dot]) -> None:
    """Greedily, each label where it overlaps least with dots and earlier labels."""
    renderer = made.canvas.get_renderer()
    places = [axes.transData.transform((dot.ms, dot.accuracy)) for dot in shown]
    boxes = [mpl.transforms.Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in places]
    for place, dot in enumerate(shown):
        others = boxes[:place] + boxes[place + 1 :]  # its own dot is beside it in all places
        best, fewest = None, math.inf
        for dx, dy in PLACES:
            text = axes.annotate(
                dot.label,
                (dot.ms, dot.accuracy),
                xytext=(dx, dy),
                textcoords="offset points",
                ha="left" if dx > 0 else "right" if dx < 0 else "center",
                va="center",
                fontweight="bold" if dot.label in OURS else "normal",
                fontsize=8,
            )
            box = text.get_window_extent(renderer).padded(*MARGIN)
            hits = sum(_overlap(box, other) for other in others)
            hits += 0 if axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 else 1e6
            if hits < fewest:
                if best is not None:
                    best.remove()
                best, fewest = text, hits
            else:
                text.remove()
            if fewest == 0:
                break
        assert best is not None
        boxes.append(best.get_window_extent(renderer).padded(*MARGIN))


def _overlap(one: Any, other: Any) -> float:
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return max(width, 0) * max(height, 0)
