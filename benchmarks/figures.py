"""How the figures of the docs look: one picture for light and dark pages.

The background is transparent, and text and axes have a grey that both show.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

GREY = "#808080"
_COLOURED = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "grid.color": GREY,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "a2lp",  # the same figure gives the same text
} | dict.fromkeys(_COLOURED, GREY)


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """A figure of this size in inches, drawn and written within the style."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def svg(figure: Figure) -> str:
    """The figure as SVG text."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
