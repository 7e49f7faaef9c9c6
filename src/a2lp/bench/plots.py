"""The report's figures, as SVG text, in the colours of Okabe and Ito, which colour-blind readers can tell apart."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from a2lp.bench.adaptation import TaskPicture
from a2lp.bench.comparison_table import seconds_per_thousand
from a2lp.bench.records import Record
from a2lp.bench.statistics import Estimate, Ranking, paired_difference
from a2lp.errors import import_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#666666"
STYLE = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.constrained_layout.h_pad": 0.12,
    "svg.hashsalt": "a2lp",  # the same figure gives the same text
}
PAGE_WIDTH = 10.2  # inches

# a label, gains by row and column, a colour, and whether markers are filled
GainSeries = tuple[str, Mapping[tuple[str, str], Estimate], str, bool]


def svg(draw: Callable[..., Figure], *args: Any) -> str:
    """The SVG text of a figure, drawn by one of the functions below in the report's style."""
    matplotlib = import_extra("the report", "report", "matplotlib")
    text = io.StringIO()
    with matplotlib.rc_context(STYLE):
        draw(*args).savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def accuracy(columns: Mapping[str, Sequence[Record]]) -> Figure:
    """Mean accuracy with intervals: a panel for each column of the table, a line for each method."""
    figure, panels = _panels(len(columns), 0.9 + 0.32 * max(map(len, columns.values())))
    for axes, (title, records) in zip(panels, columns.items(), strict=True):
        names = [record.config["method"] for record in records]
        for y, record in enumerate(records):
            mean, ci95 = record.accuracy
            axes.errorbar(mean, y, xerr=np.nan_to_num(ci95), fmt="o", capsize=3, color=_colour(y))
            axes.annotate(f"{mean:.2f}", (mean, y), (0, 7), textcoords="offset points", ha="center", fontsize=8)
        axes.set_yticks(range(len(names)), names)
        axes.set(title=title, xlabel="accuracy, %", ylim=(len(names) - 0.5, -0.7), xmargin=0.15)
        axes.grid(axis="x", color="#dddddd")
    return figure


def ranks(methods: Sequence[str], found: Ranking) -> Figure:
    """A critical-difference diagram: mean ranks, and bars that join methods which do not differ significantly."""
    order = np.argsort(found.ranks, kind="stable")
    half, high = -(-len(order) // 2), float(len(order))
    figure, [axes] = _panels(1, 1.2 + 0.26 * half, across=1)
    bars: list[tuple[float, float]] = []  # the longest runs of mean ranks within the critical difference
    for start in found.ranks[order]:
        end = found.ranks[found.ranks <= start + found.critical_difference].max()
        if end > start and (not bars or end > bars[-1][1]):
            bars.append((float(start), float(end)))
    top, reach = 0.35 * len(bars) + 0.6, high - 1
    for place, index in enumerate(order):
        left, rank = place < half, float(found.ranks[index])
        level = top + 0.7 * (place if left else len(order) - 1 - place)
        side = 1 - 0.04 * reach if left else high + 0.04 * reach
        axes.plot([rank, rank, side], [0, level, level], color=GREY, lw=0.8)
        text = f"{methods[index]}  {rank:.2f}" if left else f"{rank:.2f}  {methods[index]}"
        axes.text(side, level, f" {text} ", ha="right" if left else "left", va="center", fontsize=9)
    for place, (start, end) in enumerate(bars):
        axes.plot([start, end], [0.35 * (place + 1)] * 2, color="black", lw=3, solid_capstyle="butt")
    axes.plot([1, 1 + found.critical_difference], [-1.2, -1.2], color=COLOURS[1], lw=2)
    text = f"critical difference {found.critical_difference:.2f}"
    axes.text(1 + found.critical_difference, -1.2, f"  {text}", va="center", fontsize=8)
    axes.set(xlim=(1 - 0.5 * reach, high + 0.5 * reach), ylim=(top + 0.7 * half, -1.8), yticks=[])
    axes.set_xticks(np.arange(1, high + 1, max(1, round(reach / 10))))
    axes.xaxis.tick_top()
    axes.tick_params(axis="x", pad=1)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.spines["top"].set(visible=True, position=("data", 0), bounds=(1, high))
    return figure


def accuracy_and_time(columns: Mapping[str, Sequence[Record]]) -> Figure:
    """Accuracy against seconds per 1000 tasks; filled if base data were used, square if balance is assumed."""
    height = 1.6 + 0.15 * max(map(len, columns.values()))
    figure, panels = _panels(len(columns), height, across=min(2, len(columns)))
    for axes, (title, records) in zip(panels, columns.items(), strict=True):
        for place, record in enumerate(sorted(records, key=lambda record: -record.accuracy.mean)):
            point = (seconds_per_thousand(record), record.accuracy.mean)
            face = _colour(place) if record.uses_base else "white"
            axes.plot(*point, marker="s" if record.uniform else "o", color=_colour(place), markerfacecolor=face)
            axes.annotate(  # in a list beside the panel, where names cannot cover each other
                record.config["method"], point, (1.04, 1 - (place + 0.5) / len(records)), textcoords="axes fraction",
                va="center", fontsize=8, color=_colour(place), annotation_clip=False,
                arrowprops={"arrowstyle": "-", "color": _colour(place), "lw": 0.4, "alpha": 0.6},
            )  # fmt: skip
        axes.set(title=title, xlabel="seconds per 1000 tasks", ylabel="accuracy, %", xscale="log")
        axes.grid(color="#dddddd")
    return figure


def steps(curves: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Accuracy against steps, with its interval; a panel for each column."""
    figure, panels = _panels(len(curves), 2.6)
    for place, (axes, (title, curve)) in enumerate(zip(panels, curves.items(), strict=True)):
        mean, ci95 = np.array(curve["accuracy"]), np.array(curve["ci95"])
        axes.fill_between(curve["steps"], mean - ci95, mean + ci95, color=_colour(place), alpha=0.15, lw=0)
        axes.plot(curve["steps"], mean, color=_colour(place))
        axes.set(title=title, xlabel="step", ylabel="accuracy, %")
        axes.grid(color="#dddddd")
    return figure


def movement(curves: Mapping[str, Mapping[str, Any]]) -> Figure:
    """The loss, the distance of the anchors from where they started, and their length, along the steps."""
    figure, panels = _panels(3, 2.8)
    shown = (("loss", "mean loss"), ("shift", "distance from the start"), ("norm", "length"))
    for axes, (what, label) in zip(panels, shown, strict=True):
        for place, (title, curve) in enumerate(curves.items()):
            style = ("-", "--", ":", "-.")[place % 4]
            axes.plot(curve["steps"], curve[what], color=_colour(place), ls=style, label=title)
        axes.set(title=label, xlabel="step")
        axes.grid(color="#dddddd")
        if what == "loss" and min(min(curve["loss"]) for curve in curves.values()) > 0:
            axes.set_yscale("log")
    panels[1].legend(frameon=False, fontsize=9)
    return figure


def differences(columns: Mapping[str, tuple[Record, Record]]) -> Figure:
    """Histograms of the difference of a method to the baseline over tasks; a panel for each column."""
    figure, panels = _panels(len(columns), 2.6)
    for axes, (title, (record, baseline)) in zip(panels, columns.items(), strict=True):
        values = np.array(record.accuracies) - np.array(baseline.accuracies)
        # a whole number of queries, so that no bin collects more possible values than the next
        one = 100.0 / record.config["queries_per_task"]
        width = one * max(1, np.ceil(np.abs(values).max() / one / 15))
        reach = np.ceil(np.abs(values).max() / width + 0.5) if values.any() else 1
        axes.hist(values, bins=((np.arange(-reach, reach + 2) - 0.5) * width).tolist(), color=COLOURS[0], alpha=0.8)
        axes.axvline(0, color=GREY, lw=1)
        mean, _ = paired_difference(record.accuracies, baseline.accuracies)
        axes.axvline(mean, color=COLOURS[1], lw=1.5, ls="--")
        better, worse = (100 * np.mean(values > 1e-9), 100 * np.mean(values < -1e-9))
        axes.set(title=title, xlabel="difference, points", ylabel="tasks")
        text = f"mean {mean:+.2f}\nbetter {better:.0f} %\nworse {worse:.0f} %"
        axes.text(0.02, 0.97, text, transform=axes.transAxes, va="top", fontsize=9)
    return figure


def gains(series: Sequence[GainSeries], rows: Sequence[str], columns: Sequence[str], xlabel: str) -> Figure:
    """Gains with their intervals: a panel for each column, a line for each row."""
    figure, panels = _panels(len(columns), 1.3 + 0.45 * len(rows), share="y")
    for axes, column in zip(panels, columns, strict=True):
        axes.axvline(0, color=GREY, lw=1)
        for place, (label, gains, colour, filled) in enumerate(series):
            shown = [(y, *gains[row, column]) for y, row in enumerate(rows) if (row, column) in gains]
            axes.errorbar(
                [mean for _, mean, _ in shown],
                [y + 0.18 * (place - 1.5) for y, _, _ in shown],
                xerr=[np.nan_to_num(ci95) for _, _, ci95 in shown],
                fmt="o" if filled else "D",
                markersize=5,
                capsize=2,
                color=colour,
                markerfacecolor=colour if filled else "white",
                label=label,
            )
        axes.set(title=column, xlabel=xlabel)
        axes.set_yticks(range(len(rows)), rows)
        axes.grid(axis="x", color="#dddddd")
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def task(picture: TaskPicture) -> Figure:
    """One task before and after adaptation, on its two main axes."""
    figure, panels = _panels(2, 4.8, share="xy")
    x, y = picture.queries.T
    query_colours = np.array([_colour(label) for label in picture.query_labels])
    anchor_colours = [_colour(label) for label in picture.anchor_labels]
    before = ("before", picture.anchors_before, picture.right_before)
    after = ("after", picture.anchors_after, picture.right_after)
    for axes, (name, anchors, right) in zip(panels, (before, after), strict=True):
        axes.scatter(x, y, s=22, c=query_colours, alpha=0.75, linewidths=0, zorder=2)
        axes.scatter(x[~right], y[~right], s=75, facecolors="none", edgecolors="black", linewidths=0.9, zorder=2)
        if name == "after":
            for start, end in zip(picture.anchors_before, anchors, strict=True):
                axes.plot(*zip(start, end, strict=True), color="black", lw=1.2, ls=":", zorder=3)
        diamonds: dict[str, Any] = {"marker": "D", "s": 75, "edgecolors": "black", "linewidths": 1.2, "zorder": 4}
        axes.scatter(anchors[:, 0], anchors[:, 1], c=anchor_colours, **diamonds)
        axes.set(title=f"{name}: {100 * right.mean():.1f} % of queries right", xticks=[], yticks=[], aspect="equal")
        axes.spines[:].set(visible=True, color="#bbbbbb")
    return figure


def _panels(count: int, height: float, share: str = "", across: int | None = None) -> tuple[Figure, list[Axes]]:
    """A figure of ``count`` panels, two or three in a row unless ``across`` is given; ``share`` names shared axes."""
    from matplotlib.figure import Figure

    across = across or (2 if count in (1, 2, 4) else 3)
    down = -(-count // across)
    figure = Figure(figsize=(PAGE_WIDTH, height * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False, sharex="x" in share, sharey="y" in share)
    for spare in grid.flat[count:]:
        spare.set_visible(False)
    return figure, list(grid.flat[:count])


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]
