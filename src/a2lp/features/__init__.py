"""Feature files in and out, and the sets that come with the package."""

from __future__ import annotations

from a2lp.features.bundled import bundled
from a2lp.features.files import load, save
from a2lp.features.sets import FeatureSet
from a2lp.features.statistics import BaseStatistics, load_base

__all__ = ["BaseStatistics", "FeatureSet", "bundled", "load", "load_base", "save"]
