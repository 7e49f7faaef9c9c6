"""The paper's tables as an HTML page, and the one-page report: the paper said, we measured."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from a2lp.bench import plots, published
from a2lp.bench.paper_tables import PAIR, PaperTable, build
from a2lp.bench.placing import PREPROCESS, Shelf
from a2lp.bench.published import BACKBONES, METHODS, SHOTS, Set
from a2lp.bench.statistics import Estimate, paired_difference
from a2lp.bench.tables import plus_minus
from a2lp.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Gains = dict[tuple[Set, int], Estimate]


class Claim(NamedTuple):
    """A statement of the paper, its numbers, and ours."""

    said: str
    published: str
    measured: str


def tables_page(tables: Sequence[PaperTable], shelf: Shelf) -> str:
    """A page with tables alone; hovering over a number of ours shows its records."""
    return _page("The paper's tables", tables, shelf)


def report_page(shelf: Shelf, out: str) -> str:
    """The report: claims, a figure, all tables, and where the numbers come from."""
    figure = base64.b64encode(_gains_figure(shelf).encode()).decode()
    return _page(
        "The paper said, we measured",
        [build(number, shelf, out) for number in (1, 2, 3)],
        shelf,
        claims=claims(shelf),
        figure=f"data:image/svg+xml;base64,{figure}",
    )


def claims(shelf: Shelf) -> list[Claim]:
    """What the paper says of its method, and what our records say to that."""
    theirs, ours = published_gains("l2"), gains(shelf, "l2")
    return [
        Claim("A2LP is above LP in every setting, 1- and 5-shot, with l2", _counted(theirs), _counted(ours)),
        Claim("by as much as 7 points at 1-shot", _largest(theirs, 1), _largest(ours, 1)),
        Claim("by as much as 2 points at 5-shot", _largest(theirs, 5), _largest(ours, 5)),
        Claim("With plc it is above LP, too", _counted(published_gains("plc")), _counted(gains(shelf, "plc"))),
        Claim("and the best of the four methods", _best(_published_means("plc")), _best(_means(shelf, "plc"))),
    ]


def gains(shelf: Shelf, preprocess: str) -> Gains:
    """Paired differences of A2LP to LP, for each set of features and number of shots that has both."""
    found = {}
    for place in shelf.records:
        one, other = (shelf.records.get(place._replace(method=method)) for method in PAIR)
        if place.preprocess == preprocess and place.n_shot in SHOTS and one is not None and other is not None:
            found[place.set, place.n_shot] = paired_difference(one.accuracies, other.accuracies)
    return found


def published_gains(preprocess: str) -> Gains:
    """Differences of the published means; they have no intervals."""
    found = {}
    for backbone in BACKBONES:
        one, other = (published.accuracy(backbone, method, preprocess) for method in PAIR)
        for dataset, shots in one:
            mean = one[dataset, shots].mean - other[dataset, shots].mean
            found[Set(dataset, backbone), shots] = Estimate(mean, math.nan)
    return found


def _counted(found: Gains) -> str:
    if not found:
        return "not measured"
    above = f"in {sum(gain.mean > 0 for gain in found.values())} of {len(found)} settings"
    if all(math.isnan(gain.ci95) for gain in found.values()):
        return above
    return f"{above}, in {sum(gain.mean > gain.ci95 for gain in found.values())} by more than the 95 % interval"


def _largest(found: Gains, shots: int) -> str:
    some = {one: gain for (one, n_shot), gain in found.items() if n_shot == shots}
    if not some:
        return "not measured"
    one, gain = max(some.items(), key=lambda pair: pair[1].mean)
    return f"at most {plus_minus(*gain, sign=True)} ({one.title})"


def _best(settings: Iterable[Sequence[float]]) -> str:
    """In how many settings the paper's method is the highest; those without all four methods do not count."""
    whole = [means for means in settings if len(means) == len(METHODS)]
    best = sum(max(means) == means[METHODS.index(PAIR[0])] for means in whole)
    return f"in {best} of {len(whole)} settings" if whole else "not measured"


def _means(shelf: Shelf, preprocess: str) -> Iterable[list[float]]:
    places = dict.fromkeys(place._replace(preprocess=preprocess, method="") for place in shelf.records)
    for place in places:
        found = (shelf.records.get(place._replace(method=method)) for method in METHODS)
        yield [record.accuracy.mean for record in found if record is not None]


def _published_means(preprocess: str) -> Iterable[list[float]]:
    for backbone in BACKBONES:
        found = [published.accuracy(backbone, method, preprocess) for method in METHODS]
        for setting in found[0]:
            yield [one[setting].mean for one in found]


class _Series(NamedTuple):
    """Gains of one colour in the figure."""

    label: str
    gains: Gains
    colour: str
    filled: bool


def _gains_figure(shelf: Shelf) -> str:
    """A2LP minus LP, published and ours, as SVG: a panel for each number of shots, a line for each set of features."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("the report", "matplotlib", "report") from error
    series = []
    for how, colour in zip(PREPROCESS, plots.COLOURS, strict=False):
        series.append(_Series(f"published, {how}", published_gains(how), colour, False))
        series.append(_Series(f"ours, {how}", gains(shelf, how), colour, True))
    sets = sorted({one for each in series for one, _ in each.gains}, key=lambda one: (one.backbone, one.dataset))
    with mpl.rc_context(plots.STYLE):
        figure = Figure(figsize=(plots.PAGE_WIDTH, 1.3 + 0.45 * len(sets)), layout="constrained")
        panels = figure.subplots(1, len(SHOTS), sharey=True)
        for axes, shots in zip(panels, SHOTS, strict=True):
            _draw_gains(axes, series, sets, shots)
        panels[0].invert_yaxis()
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _draw_gains(axes: Axes, series: Sequence[_Series], sets: Sequence[Set], shots: int) -> None:
    axes.axvline(0, color=plots.GREY, lw=1)
    for place, each in enumerate(series):
        rows = [row for row, one in enumerate(sets) if (one, shots) in each.gains]
        shown = [each.gains[sets[row], shots] for row in rows]
        axes.errorbar(
            [gain.mean for gain in shown],
            [row + 0.18 * (place - 1.5) for row in rows],
            xerr=[0 if math.isnan(gain.ci95) else gain.ci95 for gain in shown],
            fmt="o" if each.filled else "D",
            markersize=5,
            capsize=2,
            color=each.colour,
            markerfacecolor=each.colour if each.filled else "white",
            label=each.label,
        )
    axes.set(title=f"{shots}-shot", xlabel="A2LP minus LP, points")
    axes.set_yticks(range(len(sets)), [one.title for one in sets])
    axes.grid(axis="x", color="#dddddd")


def _page(title: str, tables: Sequence[PaperTable], shelf: Shelf, **more: Any) -> str:
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("HTML", "jinja2", "report") from error
    template = (files("a2lp.bench") / "paper_report.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    records = list(shelf.records.values())
    return environment.from_string(template).render(
        title=title,
        tables=tables,
        source=published.source(),
        origin={
            "records": str(len(records)),
            "made": " to ".join(dict.fromkeys(f(r.date[:10] for r in records) for f in (min, max))) if records else "",
            "versions": _distinct(", ".join(f"{k} {v}" for k, v in r.versions.items()) for r in records),
            "commit": _distinct(r.commit or "unknown" for r in records),
            "hardware": _distinct(_machine(r.hardware) for r in records),
        },
        **more,
    )


def _machine(hardware: Mapping[str, Any]) -> str:
    cpu, cores, device = (hardware.get(name, "unknown") for name in ("cpu", "cores", "device"))
    return f"{cpu}, {cores} cores, {device}"


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))
