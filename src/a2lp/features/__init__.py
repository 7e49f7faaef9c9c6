"""Reading and writing feature files, and the bundled sets."""

from __future__ import annotations

from a2lp.features.bundled import bundled
from a2lp.features.feature_set import FeatureSet
from a2lp.features.files import load, save
from a2lp.features.joining import join
from a2lp.features.statistics import BaseStatistics, load_base

__all__ = ["BaseStatistics", "FeatureSet", "bundled", "join", "load", "load_base", "save"]
