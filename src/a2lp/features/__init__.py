"""Feature files in and out, and the sets that come with the package."""

from __future__ import annotations

from a2lp.features.bundled import bundled
from a2lp.features.files import load, save
from a2lp.features.sets import FeatureSet

__all__ = ["FeatureSet", "bundled", "load", "save"]
