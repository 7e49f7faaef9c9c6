"""Self-contained pages: templates, and the pictures in them."""

from __future__ import annotations

import base64
import hashlib
import io
from importlib.resources import files
from pathlib import Path
from typing import Any

from a2lp._version import __version__
from a2lp.errors import CorruptImageError, import_extra


def require_jinja2(what: str) -> Any:
    """The package, or an error that names its extra."""
    return import_extra(what, "report", "jinja2")


def render(template: str, **values: Any) -> str:
    """A page from one of the templates in this folder; all values are escaped."""
    environment = require_jinja2("a page").Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page: str = environment.from_string(_part(template)).render(version=__version__, **values)
    return page


def inline(name: str) -> tuple[Any, str]:
    """A script or style sheet of this folder, to be put into a page as it is, and its hash for the page's policy."""
    text = "\n" + _part(name)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return require_jinja2("a page").utils.markupsafe.Markup(text), f"'sha256-{digest}'"


def thumbnail(path: Path, side: int) -> str:
    """A small JPEG as a data URI; empty where the image can no longer be read."""
    from PIL import Image

    from a2lp.images.datasets.decode import decode

    try:
        image = Image.fromarray(decode(path.read_bytes(), str(path), side))
    except (OSError, CorruptImageError):
        return ""
    image.thumbnail((side, side))
    made = io.BytesIO()
    image.save(made, "JPEG", quality=70)
    return f"data:image/jpeg;base64,{base64.b64encode(made.getvalue()).decode()}"


def _part(name: str) -> str:
    return (files("a2lp.labelling") / name).read_text(encoding="utf-8")
