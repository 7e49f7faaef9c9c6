"""A pool in a notebook: counts, the most doubtful points and a map, as HTML that stands alone."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from a2lp import png
from a2lp.checks import require_whole
from a2lp.errors import MissingExtraError, ShapeError
from a2lp.pool.neighbours import NdArray

if TYPE_CHECKING:
    from a2lp.pool.session import Pool

COLOURS = ("#1d4fc4", "#e26d00", "#07886f", "#901744", "#b066b6", "#0096fb", "#6e6000", "#8d6e63")  # those of the page
_GREY = "#9e9e9e"
_LISTED = 16  # classes in the table, and names on the map
_SIDE = 84  # pixels of a picture
_MAP = 380  # pixels of the map
_ON_MAP = 5000  # points


class Display:
    """What ``Pool.show`` returns: HTML in a notebook, a sentence elsewhere."""

    def __init__(self, text: str, html: str) -> None:
        self.text, self.html = text, html

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def display(pool: Pool, images: Sequence[Any] | None, keys: Sequence[Any] | None, n: int, with_map: bool) -> Display:
    """The state of a pool; the parameters are those of ``Pool.show``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from a2lp import Pool
    >>> digits = load_digits()
    >>> pool = Pool(digits.data, [*digits.target[:50], *[-1] * 1747])
    >>> pool.show(digits.images, map=False)  # doctest: +ELLIPSIS
    1,797 points, 50 labelled: 10 classes; expected accuracy ...
    """
    require_whole("n", n, 0, "12 is usual.")
    for name, values in (("images", images), ("keys", keys)):
        if values is not None and len(values) != len(pool):
            raise ShapeError(f"{name} has length {len(values)} and the pool has {len(pool)} points; give one each.")
    given, labels = pool.given, pool.labels
    names = sorted({labels[row] for row in np.flatnonzero(given).tolist()}, key=str)
    words = f"{len(pool):,} points, {int(given.sum()):,} labelled: {len(names)} classes"
    codes = np.full(len(pool), -1)
    if len(names) >= 2:
        answer, worth = pool.answer, pool.assessment
        place = {name: code for code, name in enumerate(names)}
        codes = np.array([place[name] for name in answer.labels.tolist()])
        sure = worth.probabilities.max(axis=1)
        low, value, high = (round(100 * share) for share in (worth.low, worth.accuracy, worth.high))
        words += f"; expected accuracy {value} % (95 % interval {low} to {high} %)"
    parts = [f"<p>{escape(words)}</p>"]
    sizes = np.bincount(codes[codes >= 0], minlength=len(names))
    order = np.argsort(-sizes, kind="stable").tolist()
    colour = {code: COLOURS[rank] if rank < len(COLOURS) else _GREY for rank, code in enumerate(order)}
    aside = _map(_places(pool), codes, given, [str(name) for name in names], colour) if with_map else ""
    counts = _classes(names, labels[given], codes[~given], order, colour)
    parts.append(f'<div style="display:flex;flex-wrap:wrap;gap:24px;align-items:flex-start">{aside}{counts}</div>')
    if len(names) >= 2 and not given.all():
        rows = np.flatnonzero(~given)
        rows = rows[np.argsort(sure[rows], kind="stable")][:n]
        cards = [_card(row, str(names[codes[row]]), sure[row], images, keys) for row in rows.tolist()]
        parts.append(
            f'<p>The most doubtful:</p><div style="display:flex;flex-wrap:wrap;gap:10px">{"".join(cards)}</div>'
        )
    return Display(words, "".join(parts))


def _places(pool: Pool) -> NdArray:
    """Coordinates of the points, kept with the pool."""
    from a2lp.pool.layout import layout

    known = vars(pool)
    if "_places" not in known:
        known["_places"] = layout(pool.graph, seed=pool.seed)
    return np.asarray(known["_places"])


def _classes(names: list[Any], given: NdArray, codes: NdArray, order: list[int], colour: dict[int, str]) -> str:
    """The largest classes, with the numbers of their labels and predictions."""
    if not names:
        return "<p>No labels yet.</p>"
    labelled = {name: int((given == name).sum()) for name in names}
    predicted = np.bincount(codes[codes >= 0], minlength=len(names))
    lines = [
        f'<tr><td style="text-align:left"><span style="color:{colour[code]}">●</span> {escape(str(names[code]))}</td>'
        f"{_number(labelled[names[code]])}{_number(predicted[code])}</tr>"
        for code in order[:_LISTED]
    ]
    if len(order) > _LISTED:
        lines.append(f'<tr><td style="text-align:left" colspan="3">and {len(order) - _LISTED} more</td></tr>')
    head = '<tr><th style="text-align:left">class</th><th>labelled</th><th>predicted</th></tr>'
    return f"<table><thead>{head}</thead><tbody>{''.join(lines)}</tbody></table>"


def _number(count: int) -> str:
    return f'<td style="text-align:right;font-variant-numeric:tabular-nums">{count:,}</td>'


def _map(places: NdArray, codes: NdArray, given: NdArray, names: list[str], colour: dict[int, str]) -> str:
    """Points by neighbourhood; one path a colour, whose round ends are the points."""
    rows = np.arange(len(places))
    if len(rows) > _ON_MAP:
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:_ON_MAP])
    where = np.round(places * (_MAP - 20) + 10).astype(int)
    parts = []
    for code in [-1, *reversed(colour)]:
        dots = "".join(f"M{x} {y}h0" for x, y in where[rows[codes[rows] == code]].tolist())
        if dots:
            parts.append(f'<path d="{dots}" stroke="{colour.get(code, _GREY)}" stroke-width="4" stroke-opacity=".6"/>')
    rings = "".join(f"M{x} {y}h0" for x, y in where[given].tolist())
    parts.append(f'<path d="{rings}" stroke="currentColor" stroke-width="8"/>')
    for code, shade in colour.items():
        mine = given & (codes == code)
        dots = "".join(f"M{x} {y}h0" for x, y in where[mine].tolist())
        parts.append(f'<path d="{dots}" stroke="{shade}" stroke-width="5"/>')
    texts = []
    for code in list(colour)[:_LISTED]:
        if (mine := codes == code).any():
            x, y = np.median(where[mine], axis=0)
            texts.append(f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle">{escape(names[code][:20])}</text>')
    style = "font:600 12px system-ui,sans-serif;paint-order:stroke;stroke:Canvas;stroke-width:3px;fill:CanvasText"
    return (
        f'<svg width="{_MAP}" height="{_MAP}" viewBox="0 0 {_MAP} {_MAP}" role="img" aria-label="Map of the points">'
        f'<g fill="none" stroke-linecap="round">{"".join(parts)}</g><g style="{style}">{"".join(texts)}</g></svg>'
    )


def _card(row: int, name: str, sure: float, images: Sequence[Any] | None, keys: Sequence[Any] | None) -> str:
    """A point: its picture or key, and what it may be."""
    key = escape(str(row if keys is None else keys[row]))
    shown = "" if images is None else picture(images[row])
    size = f"width:{_SIDE}px;height:{_SIDE}px"
    above = (
        f'<img src="{shown}" alt="" title="{key}" style="{size};object-fit:contain;image-rendering:auto">'
        if shown
        else f'<div style="width:{_SIDE}px;overflow-wrap:anywhere">{key}</div>'
    )
    words = f'<div style="font-size:12px;overflow-wrap:anywhere">{escape(name)} {100 * sure:.0f} %</div>'
    return f'<div style="width:{_SIDE}px">{above}{words}</div>'


def picture(image: Any) -> str:
    """A small picture as a data: address, of a file or of pixels (h, w) or (h, w, 3); empty if the file is no image."""
    if isinstance(image, str | PathLike):
        return _of_file(image)
    pixels = np.asarray(image)
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise ShapeError(f"an image has shape {pixels.shape}; give a path, or pixels (h, w) or (h, w, 3).")
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        pixels = np.round(255 * (pixels - low) / max(high - low, 1e-12)).astype(np.uint8)
    return f"data:image/png;base64,{base64.b64encode(png.encode(pixels)).decode()}"


def _of_file(path: str | PathLike[str]) -> str:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("showing images", "pillow", "images") from error
    try:
        with Image.open(path) as opened:
            opened.draft("RGB", (_SIDE, _SIDE))
            small = opened.convert("RGB")
        small.thumbnail((2 * _SIDE, 2 * _SIDE))
    except (OSError, Image.DecompressionBombError):
        return ""
    made = io.BytesIO()
    small.save(made, "JPEG", quality=75)
    return f"data:image/jpeg;base64,{base64.b64encode(made.getvalue()).decode()}"
