"""Pre-training on base classes: ``train`` with a ``TrainConfig``."""

from __future__ import annotations

from a2lp.images import require_torch

require_torch("pre-training")

from a2lp.images.training.checkpoint import Evaluation  # noqa: E402
from a2lp.images.training.config import TrainConfig  # noqa: E402
from a2lp.images.training.loop import Report, TrainResult, train  # noqa: E402

__all__ = ["Evaluation", "Report", "TrainConfig", "TrainResult", "train"]
