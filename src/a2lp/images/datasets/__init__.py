"""Images of the few-shot benchmarks and of anyone, from the layouts that people have on disk."""

from __future__ import annotations

from a2lp.images.datasets.image_set import ImageSet
from a2lp.images.datasets.loading import load
from a2lp.images.datasets.sources import Source
from a2lp.images.datasets.splits import Standard, standard

__all__ = ["ImageSet", "Source", "Standard", "load", "standard"]
