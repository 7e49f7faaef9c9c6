"""The tables and the figure of docs/robustness.md, from the record of robustness.py."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from study import SETS, Record, fill, shown, table

from a2lp.bench.statistics import Estimate, estimate, paired_difference

# methods that neither assume a uniform marginal nor use base data or names, each with its number of tasks a cell
RIVALS = dict.fromkeys(("lp", "tpn", "top_k", "soft_kmeans", "prototypical", "ep", "paddle", "imprinting"), 300)
RIVALS |= {"oslo": 300, "alpha_tim": 300, "ici": 300, "a2lp": 100, "alpha_am": 60}
MORE = {"a2lp": 80, "alpha_am": 100}  # run again on more tasks in the cells with at most so many points a task
UNIFORM_RIVALS = ("pt_map", "ease", "proto_lp", "ilpc")
NETWORKS = {"resnet12": "ResNet-12", "wrn28_10": "WideResNet"}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")


class Compared(NamedTuple):
    """A method in a cell: its accuracy, the other method that it is compared with, and the paired difference."""

    accuracy: Estimate
    best: str
    difference: Estimate


def percents(counts: str) -> list[float]:
    """Percent right in each task, of a cell of the record."""
    queries, each = counts.split(":")
    return [100 * int(count) / int(queries) for count in each.split()]


def counted(record: Record) -> dict[str, dict[str, str]]:
    """The right answers of every method in every cell, on as many tasks as there are."""
    more = record.named("more")
    return {method: cells | more.get(method, {}) for method, cells in record.named("test").items()}


def compare(record: Record, name: str, others: tuple[str, ...]) -> dict[str, Compared]:
    """A method in every cell, beside the other method that is best there, by the difference on tasks that both did."""
    found = {method: cells for method, cells in counted(record).items() if method in (*others, name)}
    result = {}
    for cell, counts in found.get(name, {}).items():
        ours = percents(counts)
        differences = {
            method: paired_difference(ours[: len(theirs)], theirs)
            for method, theirs in ((method, percents(cells[cell])) for method, cells in found.items())
            if method != name
        }
        if differences:
            best = min(differences, key=lambda method: differences[method].mean)
            result[cell] = Compared(estimate(ours), best, differences[best])
    return result


def set_name(name: str) -> str:
    """A set and its network, as tables name them."""
    dataset, network = name.split(" ")
    return f"{SETS[dataset]}, {NETWORKS[network]}"


def summary(found: dict[str, Compared], others: str) -> str:
    """A sentence: how far above or below the best other method, over all cells."""
    if not found:
        return ""
    differences = np.array([cell.difference.mean for cell in found.values()])
    clearly = sum(cell.difference.mean < -cell.difference.ci95 for cell in found.values())
    return (
        f"{len(found)} cells. The difference to {others} is {differences.mean():+.2f} points on average; it is "
        f"negative in {int((differences < 0).sum())} cells, beyond the 95 % interval in {clearly}, below -1.0 in "
        f"{int((differences < -1).sum())}, and {differences.min():+.2f} at worst."
    )


def others(record: Record) -> str:
    """Which methods are compared with, and on how many tasks."""
    known = {name: part["settings"]["n_tasks"] for name, part in record.parts.items() if name.startswith("test ")}
    names = ("a2lp_plus", *RIVALS)
    more = {
        name: f", {record.parts[f'more {name}']['settings']['n_tasks']} where tasks have at most {points} points"
        for name, points in MORE.items()
        if f"more {name}" in record.parts
    }
    done = [f"`{name}` ({known[f'test {name}']}{more.get(name, '')})" for name in names if f"test {name}" in known]
    missing = [f"`{name}`" for name in names if f"test {name}" not in known]
    text = f"The other methods, with their tasks a cell: {', '.join(done)}." if done else ""
    return f"{text} Not measured yet: {', '.join(missing)}." if done and missing else text


def grid_table(found: dict[str, Compared]) -> str:
    """A line for each cell."""
    lines = []
    for cell, (accuracy, best, difference) in found.items():
        name, kind = cell.split(" | ")
        lines.append([set_name(name), kind, shown(accuracy), best, shown(difference, sign=True)])
    return table(["features", "tasks", "accuracy", "best other", "difference to it"], lines)


def kind_of(cell: str) -> str:
    """The kind of tasks of a cell without its number of queries, which small classes may lower."""
    ways, queries, shares = cell.split(" | ")[1].split(", ")
    number = int(queries.split()[0])
    if ways.startswith("5-way 1-shot"):
        size = "few queries" if number < 30 else "many queries" if number > 75 else ""
    else:
        size = ""
    ways = "15- to 20-way 1-shot" if int(ways.split("-")[0]) > 10 else ways
    return ", ".join(filter(None, (ways, shares, size)))


def by_kind(found: dict[str, Compared], plus: dict[str, Compared]) -> str:
    """Mean differences over the sets, for each kind of tasks."""
    kinds: dict[str, list[str]] = {}
    for cell in found:
        kinds.setdefault(kind_of(cell), []).append(cell)
    lines = []
    for kind, cells in kinds.items():
        ours = np.array([found[cell].difference.mean for cell in cells])
        lp = np.array([plus[cell].difference.mean for cell in cells if cell in plus])
        entries = [f"{values.mean():+.2f} ({values.min():+.2f})" if values.size else "" for values in (ours, lp)]
        lines.append([kind, str(len(cells)), *entries])
    heads = ["tasks", "cells", "`a2lp_em` less the best other (worst)", "`a2lp_plus` less `lp` (worst)"]
    return table(heads, lines)


def uniform_table(record: Record) -> str:
    """With a uniform marginal: every rival in every cell, and the paired difference of ours to it."""
    found = record.named("uniform")
    ours = found.pop("a2lp_em", {})
    lines = []
    for cell, counts in ours.items():
        name, kind = cell.split(" | ")
        mine = percents(counts)
        entries = [
            shown(paired_difference(mine, percents(found[rival][cell])), sign=True) if rival in found else ""
            for rival in UNIFORM_RIVALS
        ]
        lines.append([f"{set_name(name)}, {kind.split(',')[0].split(' ')[1]}", shown(estimate(mine)), *entries])
    return table(["features", "`a2lp_em`", *(f"less `{rival}`" for rival in UNIFORM_RIVALS)], lines)


def page(text: str, record: Record) -> str:
    """The text of docs/robustness.md with its generated parts."""
    em = compare(record, "a2lp_em", (*RIVALS, "a2lp_plus"))
    with_bms = compare(record, "a2lp_em", (*RIVALS, "a2lp_plus", "bms"))
    plus = compare(record, "a2lp_plus", ("lp",))
    parts = {
        "a2lp_em": summary(em, "the best other method"),
        "bms": summary(with_bms, "the best other method, `bms` among them,"),
        "a2lp_plus": summary(plus, "`lp`"),
        "kinds": by_kind(em, plus),
        "others": others(record),
        "grid": grid_table(em),
        "uniform": uniform_table(record),
        "uniform tasks": f"{record.tasks('uniform')}.",
        "provenance": record.provenance() if record.parts else "",
    }
    return fill(text, "robustness", parts)


def figure(record: Record) -> str:
    """Differences to the best other method on novel classes, as SVG text: a line for each kind, a dot for each set."""
    from figures import drawing, svg  # matplotlib, which a machine that only measures need not have

    found = compare(record, "a2lp_em", (*RIVALS, "a2lp_plus"))
    plus = compare(record, "a2lp_plus", ("lp",))
    kinds = list(dict.fromkeys(map(kind_of, found)))
    names = list(dict.fromkeys(cell.split(" | ")[0] for cell in found))
    with drawing(10, 0.8 + 0.26 * max(len(kinds), 4)) as made:
        panels = made.subplots(1, 2, sharey=True)
        titles = ("a2lp_em less the best other method", "a2lp_plus less lp")
        for axes, cells, title in zip(panels, (found, plus), titles, strict=True):
            _panel(axes, cells, kinds, names, title)
        handles, labels = panels[0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside lower center", ncols=4)
        return svg(made)


def _panel(axes: Any, cells: dict[str, Compared], kinds: list[str], names: list[str], title: str) -> None:
    from figures import GREY

    axes.axvline(0, color=GREY, linewidth=1)
    for index, name in enumerate(names):
        some = {cell: value for cell, value in cells.items() if cell.split(" | ")[0] == name}
        heights = [kinds.index(kind_of(cell)) for cell in some]
        means = [value.difference.mean for value in some.values()]
        axes.scatter(means, heights, s=16, color=COLOURS[index], label=set_name(name), zorder=3)
    axes.set(title=title, xlabel="points")
    axes.set_yticks(range(len(kinds)), kinds)
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.grid()
