"""The loss of a step: manifold mixup of one part of a batch, rotations of the other, or plain cross-entropy.

S2M2: Mangla et al., "Charting the right manifold: manifold mixup for few-shot learning", WACV 2020. Here both parts
go through the network together. With neither part it is cross-entropy alone, as LR+ICI trains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from a2lp.images.training.config import TrainConfig


class Trunk(nn.Module):  # type: ignore[misc]
    """A network whose stages can mix images.

    ``stages`` are what ``features`` runs: the network's own, or compiled ones that share its weights.
    """

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net
        self.stages: Sequence[Callable[[Tensor], Tensor]] = list(net.stages)

    def features(self, x: Tensor, mix: Mix | None) -> Tensor:
        """Vectors (b, d), mixed before the stage that ``mix`` names."""
        for i, stage in enumerate(self.stages):
            if mix is not None and i == mix.stage:
                x = mix(x)
            # one layout always: a compiled stage would be compiled again for another
            x = stage(x.contiguous(memory_format=torch.channels_last))
        features: Tensor = self.net.pool(x)
        return features


class Classifier(Trunk):
    """A network with linear heads for the base classes and for the four rotations."""

    def __init__(self, net: Any, n_classes: int) -> None:
        super().__init__(net)
        self.classes = nn.Linear(net.dim, n_classes)
        self.rotations = nn.Linear(net.dim, 4)


@dataclass(frozen=True)
class Mix:
    """Each of the first ``rows`` rows becomes ``share`` of itself and the rest of its neighbour; other rows stay.

    Attributes
    ----------
    stage : int
        Before which stage; 0 mixes the images themselves.
    share : float
        Between 0 and 1.
    rows : int
        How many rows are mixed.
    """

    stage: int
    share: float
    rows: int

    def __call__(self, x: Tensor) -> Tensor:
        """Mix a batch (b, c, h, w)."""
        mixed = torch.lerp(neighbours(x[: self.rows]), x[: self.rows], self.share)
        return torch.cat([mixed, x[self.rows :]])


def neighbours(x: Tensor) -> Tensor:
    """For each row the one before it, the last for the first.

    Rows come in random order, so this is as good as a random partner, and its gradient is a copy instead of a scatter.
    """
    return torch.cat([x[-1:], x[:-1]])


@dataclass(frozen=True)
class Batch:
    """The images of a step: m images, then all four rotations of others.

    Attributes
    ----------
    images : Tensor (m + 4 r, 3, s, s)
    labels : Tensor (m + 4 r,)
    turns : Tensor (4 r,)
        How many quarter turns the last 4 r images were given.
    mix : Mix or None
    """

    images: Tensor
    labels: Tensor
    turns: Tensor
    mix: Mix | None


def assemble(images: Tensor, labels: Tensor, config: TrainConfig, mix: Mix | None) -> Batch:
    """A batch from ``config.batch`` images followed by ``config.rotated`` ones that are to be rotated."""
    m = config.batch
    rotated = torch.cat([torch.rot90(images[m:], k, (2, 3)) for k in range(4)])
    turns = torch.arange(4, device=labels.device)[:, None].expand(4, config.rotated).reshape(-1)
    return Batch(torch.cat([images[:m], rotated]), torch.cat([labels[:m], labels[m:].repeat(4)]), turns, mix)


def draw_mix(config: TrainConfig, step: int, n_stages: int) -> Mix | None:
    """How step ``step`` mixes: the same for a seed and a step, whatever came before."""
    if config.mixup == 0:
        return None
    rng = np.random.default_rng((config.seed, step))  # on the host, which launches what comes after the chosen stage
    share = float(rng.beta(config.mixup, config.mixup))
    return Mix(int(rng.integers(n_stages)), share, config.batch)


def loss(model: Classifier, batch: Batch, config: TrainConfig, teacher: Tensor | None = None) -> Tensor:
    """Mixed cross-entropy + cross-entropy of rotated images + ``rotation_weight`` x that of their rotations.

    Where there are a teacher's logits (b, c), ``distil_weight`` of each part on classes is the divergence from them.
    """
    features = model.features(batch.images, batch.mix)
    logits = model.classes(features)
    m = config.batch
    total = _cross_entropy(logits[:m], batch.labels[:m], config)
    if batch.mix is not None:
        share, others = batch.mix.share, neighbours(batch.labels[:m])
        total = share * total + (1 - share) * _cross_entropy(logits[:m], others, config)
    total = _distilled(total, logits[:m], None if teacher is None else teacher[:m], config)
    if config.rotated:
        rotated = _cross_entropy(logits[m:], batch.labels[m:], config)
        total = total + _distilled(rotated, logits[m:], None if teacher is None else teacher[m:], config)
        total = total + config.rotation_weight * F.cross_entropy(model.rotations(features[m:]), batch.turns)
    return total


def _distilled(loss: Tensor, student: Tensor, teacher: Tensor | None, config: TrainConfig) -> Tensor:
    """The loss, with a part of it replaced by the divergence from the teacher's softened predictions."""
    if teacher is None:
        return loss
    t, weight = config.distil_temperature, config.distil_weight
    targets = (teacher.float() / t).softmax(1)
    divergence = F.kl_div((student.float() / t).log_softmax(1), targets, reduction="batchmean")
    return (1 - weight) * loss + weight * t * t * divergence


def _cross_entropy(logits: Tensor, labels: Tensor, config: TrainConfig) -> Tensor:
    return F.cross_entropy(logits, labels, label_smoothing=config.smoothing)
