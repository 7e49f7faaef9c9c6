"""One self-contained page about labels: what was said, how far to believe it, and where to look first.

Everything on it is inline (thumbnails, drawings, styles, a little script), so that it can be sent and kept. What comes
from the user is escaped by the template.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from a2lp._version import __version__
from a2lp.errors import InputError, MissingExtraError
from a2lp.files import replacing
from a2lp.label.classify import Labelled
from a2lp.label.report_parts import parts


def check_report(path: str | Path, *, force: bool = False) -> None:
    """Refuse at the start what could not be written at the end."""
    path = Path(path)
    _jinja2()
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"the report {path} has the extension {path.suffix!r}; a page is written as .html. Rename it.")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no directory {path.parent}. Create it first.")
    if path.is_dir():
        raise InputError(f"{path} is a directory; expected the name of a page to write. Choose another name.")
    if path.exists() and not force:
        raise InputError(f"{path} exists already. Choose another name, or replace it with --force.")


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
        What the page is about.
    path : str or Path
        The .html file.
    title : str
        What was labelled.
    paths : sequence of Path, optional
        The images, in the order of the points; without them, points are shown by their keys.
    force : bool
        Whether a page that is there is replaced.
    seed : int
        Of the folds in which labels are hidden, of the points on the map and of their places.
    """
    check_report(path, force=force)
    template = (files("a2lp.label") / "report.html.jinja").read_text(encoding="utf-8")
    environment = _jinja2().Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(template).render(title=title, version=__version__, **parts(result, paths, seed))
    try:
        with replacing(Path(path)) as temporary:
            temporary.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}). Check the directory's permissions and its space."
        ) from error


def _jinja2() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("the report", "jinja2", "report") from error
    return jinja2
