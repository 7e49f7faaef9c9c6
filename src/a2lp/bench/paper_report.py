"""The paper's tables as an HTML page, and a one-page report that sets the paper's claims beside our measurements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from a2lp.bench import plots, published
from a2lp.bench.paper_records import PREPROCESS, PaperRecords
from a2lp.bench.published import METHODS, PAIR, SHOTS, Settings
from a2lp.bench.report import Figure, provenance, render
from a2lp.bench.tables import Table, plus_minus

EXPLANATION = (
    "Bold: the highest mean of a column, among published numbers and among ours. The title of a number of ours, shown "
    "when a pointer rests on it, has the keys of its records: a record is the file records/KEY.json, with the accuracy "
    "of every task."
)


class Claim(NamedTuple):
    """A statement of the paper, its numbers, and ours."""

    statement: str
    published: str
    measured: str


def tables_page(tables: Sequence[Table], records: PaperRecords, title: str = "The paper's tables", **more: Any) -> str:
    """A page with tables; hovering over one of our numbers shows the keys of its records."""
    lead = f"The paper: {published.document()['source']}. Ours: the records of a2lp, on features of our own."
    origin = provenance(list(records.records.values()))
    return render(title=title, lead=lead, tables=tables, explanation=EXPLANATION, origin=origin, **more)


def report_page(records: PaperRecords, tables: Sequence[Table]) -> str:
    """The report: claims, a figure, all tables, and the provenance of the numbers."""
    figure = Figure(
        "How much A2LP gains over LP",
        "Ours are paired differences on the same tasks, with 95 % intervals; published ones are differences of the "
        "printed means, on other features and other tasks.",
        _gains_figure(records),
        "A2LP minus LP for each dataset and network, published and ours",
    )
    return tables_page(tables, records, "The paper said, we measured", claims=claims(records), figures=[figure])


def claims(records: PaperRecords) -> list[Claim]:
    """The paper's claims about its method, with its numbers and ours."""
    theirs, ours = published.gains("l2"), records.gains("l2")
    return [
        Claim("A2LP is above LP in every setting, 1- and 5-shot, with l2", _counted(theirs), _counted(ours)),
        Claim("by as much as 7 points at 1-shot", _largest(theirs, 1), _largest(ours, 1)),
        Claim("by as much as 2 points at 5-shot", _largest(theirs, 5), _largest(ours, 5)),
        Claim("With plc it is above LP, too", _counted(published.gains("plc")), _counted(records.gains("plc"))),
        Claim("and the best of the four methods", _best(published.accuracy), _best(records.accuracy)),
    ]


def _counted(found: Settings) -> str:
    if not found:
        return "not measured"
    above = f"in {sum(gain.mean > 0 for gain in found.values())} of {len(found)} settings"
    if all(math.isnan(gain.ci95) for gain in found.values()):
        return above
    return f"{above}, in {sum(gain.mean > gain.ci95 for gain in found.values())} by more than the 95 % interval"


def _largest(found: Settings, shots: int) -> str:
    some = {source: gain for (source, n_shot), gain in found.items() if n_shot == shots}
    if not some:
        return "not measured"
    source, gain = max(some.items(), key=lambda pair: pair[1].mean)
    return f"at most {plus_minus(*gain, sign=True)} ({source.title})"


def _best(accuracy: Callable[[str, str], Settings]) -> str:
    """In how many settings with plc, of those with all four methods, the paper's method is the best."""
    found = {method: accuracy(method, "plc") for method in METHODS}
    settings = set.intersection(*(set(one) for one in found.values()))
    best = sum(found[PAIR[0]][setting].mean == max(one[setting].mean for one in found.values()) for setting in settings)
    return f"in {best} of {len(settings)} settings" if settings else "not measured"


def _gains_figure(records: PaperRecords) -> str:
    """A2LP minus LP, published and ours: a panel for each number of shots, a line for each dataset and network."""
    series, sources = [], set()
    for how, colour in zip(PREPROCESS, plots.COLOURS, strict=False):
        for label, found in ((f"published, {how}", published.gains(how)), (f"ours, {how}", records.gains(how))):
            named = {(source.title, f"{shots}-shot"): gain for (source, shots), gain in found.items()}
            series.append((label, named, colour, label.startswith("ours")))
            sources |= {source for source, _ in found}
    rows = [source.title for source in sorted(sources, key=lambda source: (source.backbone, source.dataset))]
    return plots.svg(plots.gains, series, rows, [f"{shots}-shot" for shots in SHOTS], "A2LP minus LP, points")
