"""Pre-training on base classes: ``train`` with a ``TrainConfig``."""

from __future__ import annotations

from a2lp.images.training.checkpoint import Evaluation
from a2lp.images.training.config import TrainConfig
from a2lp.images.training.loop import Report, TrainResult, train

__all__ = ["Evaluation", "Report", "TrainConfig", "TrainResult", "train"]
