"""How much of a run is done, by steps or by the clock, and its learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from a2lp.images.training.config import TrainConfig


@dataclass(frozen=True)
class Schedule:
    """The schedule of a run.

    Attributes
    ----------
    config : TrainConfig
    steps_per_epoch : int
    """

    config: TrainConfig
    steps_per_epoch: int

    def done(self, step: int, seconds: float) -> float:
        """The part of the schedule that is done after ``step`` steps and ``seconds`` seconds."""
        if self.config.epochs is not None:
            return step / max(1, round(self.config.epochs * self.steps_per_epoch))
        assert self.config.minutes is not None
        return seconds / (60 * self.config.minutes)

    def over(self, done: float) -> bool:
        """Whether the run ends here."""
        return done >= self.config.stop * (1 - 1e-9)

    def evaluations_due(self, done: float) -> int:
        """How many evaluations should have been made by now; they are spread evenly over the run."""
        return math.floor(min(1.0, done / self.config.stop) * self.config.evaluations + 1e-9)

    def lr(self, step: int, done: float) -> float:
        """The learning rate of step ``step`` (from 0)."""
        warm = min(1.0, (step + 1) / self.config.warmup) if self.config.warmup else 1.0
        if self.config.schedule == "step":
            return self.config.lr * warm * 0.1 ** math.floor(4 * min(done, 1 - 1e-9))
        return self.config.lr * warm * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
