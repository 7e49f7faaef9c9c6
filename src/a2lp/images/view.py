"""Which part of an image a network sees, and at what size."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from a2lp.checks import shown
from a2lp.errors import InputError


@dataclass(frozen=True)
class View:
    """The shorter side is resized to ``resize``, the centre ``crop`` x ``crop`` is kept, and resampled to ``size``.

    All are in pixels; ``size``, the side of the network's input, is ``crop`` if not given.

    Examples
    --------
    >>> from a2lp.images import View
    >>> str(View(96, 76, 84)), View.parse("96/84").output
    ('96/76/84', 84)
    """

    resize: int
    crop: int
    size: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("resize", self.resize), ("crop", self.crop), ("size", self.size)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"{name}={shown(value)} of a view must be a whole number of pixels, 1 or more.")
        if self.crop > self.resize:
            raise InputError(
                f"a view cannot crop {self.crop} pixels out of {self.resize}; crop must be at most resize. "
                "Swap the two, or resize to more."
            )

    def __str__(self) -> str:
        return f"{self.resize}/{self.crop}" + (f"/{self.size}" if self.size is not None else "")

    @property
    def output(self) -> int:
        """The side of the network's input."""
        return self.crop if self.size is None else self.size

    @classmethod
    def parse(cls, text: Any) -> View:
        """A view from ``RESIZE/CROP`` or ``RESIZE/CROP/SIZE``, as ``str`` writes it."""
        if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,5}/[0-9]{1,5}(/[0-9]{1,5})?", text):
            raise InputError(f"view {shown(text)} must be RESIZE/CROP or RESIZE/CROP/SIZE in pixels, such as 96/84.")
        return cls(*map(int, text.split("/")))
