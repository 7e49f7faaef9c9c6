"""One self-contained page about labels: what was predicted, how reliable it is, and where to look first.

Everything is inline (thumbnails, drawings, styles, a little script), so that the page can be sent and kept. Whatever
comes from the user is escaped by the template.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from a2lp.files import check_target, write_text
from a2lp.labelling.labelled import Labelled
from a2lp.labelling.pages import inline, render, require_jinja2
from a2lp.labelling.report_parts import parts
from a2lp.labelling.sources import Progress


def check_report(path: str | Path, *, force: bool = False) -> None:
    """Refuse at the start what could not be written at the end."""
    require_jinja2("the report")
    check_target(path, (".html", ".htm"), "the report", force=force)


def write_report(
    result: Labelled,
    path: str | Path,
    *,
    title: str = "labels",
    paths: Sequence[Path] | None = None,
    force: bool = False,
    seed: int = 0,
) -> None:
    """Write a page about labels.

    Parameters
    ----------
    result : Labelled
    path : str or Path
        The .html file.
    title : str
        What was labelled.
    paths : sequence of Path, optional
        The images, in the order of the points; without them, points are shown by their keys.
    force : bool
        Whether an existing page is replaced.
    seed : int
        Of the points on the map and of their places.
    """
    check_report(path, force=force)
    write_text(Path(path), render_report(result, title=title, paths=paths, seed=seed))


def render_report(
    result: Labelled,
    *,
    title: str,
    paths: Sequence[Path] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> str:
    """The page as text; the parameters are those of ``write_report``, and a callable for the progress."""
    style, style_hash = inline("report.css")
    script, script_hash = inline("report.js")
    assets = {"style": style, "style_hash": style_hash, "script": script, "script_hash": script_hash}
    return render("report.html.jinja", title=title, **assets, **parts(result, paths, seed, progress))
