"""MkDocs hook: formulas as MathML, which browsers draw themselves; pages then load nothing from elsewhere."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Replace the formulas that pymdownx.arithmatex has marked."""
    return _FORMULA.sub(_mathml, html)


def _mathml(formula: re.Match[str]) -> str:
    kind, tex = formula.groups()
    tag = f'<{kind} class="formula">'
    return f"{tag}{convert(unescape(tex).strip(), display='inline' if kind == 'span' else 'block')}</{kind}>"
