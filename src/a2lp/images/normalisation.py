"""What is subtracted from the pixels of an image, and what they are divided by."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from a2lp.checks import shown
from a2lp.errors import InputError

Triple = tuple[float, float, float]

IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)


class Normalisation(NamedTuple):
    """Pixels in 0..1 become (pixels - mean) / std, for red, green and blue.

    Examples
    --------
    >>> from a2lp.images import Normalisation
    >>> Normalisation.parse("half").mean
    (0.5, 0.5, 0.5)
    >>> Normalisation.parse("0.4,0.4,0.4/0.2,0.2,0.25").std
    (0.2, 0.2, 0.25)
    """

    mean: Triple
    std: Triple

    @classmethod
    def parse(cls, text: Any) -> Normalisation:
        """From a name (``imagenet``, ``clip``, ``half``, ``none``) or from six numbers, ``R,G,B/R,G,B``."""
        if isinstance(text, str) and text in NAMED:
            return NAMED[text]
        try:
            (a, b, c), (d, e, f) = (map(float, part.split(",")) for part in text.split("/"))
        except (AttributeError, ValueError):
            d = e = f = a = b = c = math.nan
        if not all(map(math.isfinite, (a, b, c, d, e, f))) or min(d, e, f) <= 0:
            raise InputError(
                f"normalisation {shown(text)} must be {', '.join(NAMED)}, or means and standard deviations of the "
                "colours, such as 0.485,0.456,0.406/0.229,0.224,0.225, where pixels are between 0 and 1."
            )
        return cls((a, b, c), (d, e, f))


NAMED = {
    "imagenet": Normalisation(IMAGENET_MEAN, IMAGENET_STD),
    "clip": Normalisation((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "half": Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "none": Normalisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
