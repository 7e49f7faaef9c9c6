"""Pre-training on base classes: ``train`` with a ``TrainConfig``."""

from __future__ import annotations

from a2lp.images.training.checkpoint import Look
from a2lp.images.training.config import TrainConfig
from a2lp.images.training.loop import Report, TrainResult, train

__all__ = ["Look", "Report", "TrainConfig", "TrainResult", "train"]
