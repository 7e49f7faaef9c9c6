"""The loss of a step: manifold mixup of one part of a batch and rotations of the other; rotations, or images, alone.

S2M2: Mangla et al., "Charting the right manifold: manifold mixup for few-shot learning", WACV 2020. Here both parts
go through the network together. Without mixup and rotations it is plain cross-entropy, as in LR+ICI. With rotations
alone it is the first generation of SKD: Rajasegaran et al., "Self-supervised knowledge distillation for few-shot
learning", BMVC 2021.
Self-distillation: Furlanello et al., "Born-again neural networks", ICML 2018; for few-shot features, Tian et al.,
"Rethinking few-shot image classification: a good embedding is all you need?", ECCV 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from a2lp.images.backbones.networks import torch_backbone
from a2lp.images.backbones.weight_files import read_weights
from a2lp.images.training.config import TrainConfig

_SCALES = (5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0)  # of a teacher's cosines


class Trunk(nn.Module):  # type: ignore[misc]
    """A network that can mix examples before any stage."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net
        self.stages: Sequence[Callable[[Tensor], Tensor]] = list(net.stages)  # or compiled ones with the same weights

    def features(self, x: Tensor, mix: Mix | None) -> Tensor:
        """Vectors (b, d), mixed before the stage that ``mix`` names."""
        for i, stage in enumerate(self.stages):
            if mix is not None and i == mix.stage:
                x = mix(x)
            # always in one memory format: a compiled stage would be compiled again for another
            x = stage(x.contiguous(memory_format=torch.channels_last))
        features: Tensor = self.net.pool(x)
        return features


class Classifier(Trunk):
    """A network with linear heads for the base classes and for the four rotations."""

    def __init__(self, net: Any, n_classes: int) -> None:
        super().__init__(net)
        self.classes = nn.Linear(net.dim, n_classes)
        self.rotations = nn.Linear(net.dim, 4)


class Teacher(Trunk):
    """A trained network whose soft predictions another one is trained on: of its own kind, or of another.

    Weight files hold no classifier, so its predictions are softmax(scale * cosine to the class mean), on its features
    of base images, centred on their mean. ``batches`` are normalised base images with their labels.
    """

    def __init__(self, config: TrainConfig, batches: Iterable[tuple[Tensor, Tensor]], n_classes: int) -> None:
        assert config.teacher is not None
        backbone = read_weights(config.teacher).about.get("backbone", config.backbone)
        super().__init__(torch_backbone(backbone, config.teacher).module)
        found = []
        for images, labels in batches:
            self.to(images.device, memory_format=torch.channels_last).eval()
            with torch.no_grad():
                found.append((self.features(images, None).float(), labels))
        features, labels = torch.cat([x for x, _ in found]), torch.cat([y for _, y in found])
        self.register_buffer("centre", features.mean(0))
        members = F.one_hot(labels, n_classes).float()
        sums = members.T @ (features - self.centre)
        self.register_buffer("means", F.normalize(sums / members.sum(0)[:, None].clamp(min=1)))
        cosines = F.normalize(features - self.centre) @ self.means.T
        losses = [float(F.cross_entropy(scale * cosines, labels)) for scale in _SCALES]
        self.scale = _SCALES[losses.index(min(losses))]
        self.requires_grad_(False).eval()

    def logits(self, images: Tensor, mix: Mix | None) -> Tensor:
        """Logits (b, c) of a batch, mixed as the student's are."""
        features = self.features(images, mix).float()
        return self.scale * F.normalize(features - self.centre) @ self.means.T


@dataclass(frozen=True)
class Mix:
    """Mixes each of the first rows of a batch with its neighbour; other rows stay as they are."""

    stage: int  # mixed before this stage; 0 mixes the images themselves
    share: float  # the weight of a row, between 0 and 1; its neighbour has the rest
    rows: int  # the number of rows that are mixed

    def __call__(self, x: Tensor) -> Tensor:
        """Mix a batch (b, c, h, w)."""
        mixed = torch.lerp(neighbours(x[: self.rows]), x[: self.rows], self.share)
        return torch.cat([mixed, x[self.rows :]])


def neighbours(x: Tensor) -> Tensor:
    """The row before each row: rows are in random order, and the gradient is a copy instead of a scatter."""
    return torch.cat([x[-1:], x[:-1]])


@dataclass(frozen=True)
class Batch:
    """The images of a step: m images, then all four rotations of r others."""

    images: Tensor  # (m + 4 r, 3, s, s)
    labels: Tensor  # (m + 4 r,)
    turns: Tensor  # (4 r,)  quarter turns of the rotated images
    mix: Mix | None


def assemble(images: Tensor, labels: Tensor, config: TrainConfig, mix: Mix | None) -> Batch:
    """A batch from ``config.batch`` images followed by ``config.rotated`` images to rotate."""
    m = config.batch
    rotated = torch.cat([torch.rot90(images[m:], k, (2, 3)) for k in range(4)])
    turns = torch.arange(4, device=labels.device)[:, None].expand(4, config.rotated).reshape(-1)
    return Batch(torch.cat([images[:m], rotated]), torch.cat([labels[:m], labels[m:].repeat(4)]), turns, mix)


def draw_mix(config: TrainConfig, step: int, n_stages: int) -> Mix | None:
    """The mixing of step ``step``, which depends on the seed and the step alone."""
    if config.mixup == 0:
        return None
    rng = np.random.default_rng((config.seed, step))  # on the host, which runs the stages
    share = float(rng.beta(config.mixup, config.mixup))
    return Mix(int(rng.integers(n_stages)), share, config.batch)


def loss(model: Classifier, batch: Batch, config: TrainConfig, teacher: Tensor | None = None) -> Tensor:
    """Mixed cross-entropy + cross-entropy of rotated images + ``rotation_weight`` x that of their rotations.

    With a teacher's logits (b, c), the divergence from them has the weight ``distil_weight`` in both losses of classes.
    """
    features = model.features(batch.images, batch.mix)
    logits = model.classes(features)
    m, cross_entropy = config.batch, partial(F.cross_entropy, label_smoothing=config.smoothing)
    total = logits.new_zeros(())
    if m:
        upright = cross_entropy(logits[:m], batch.labels[:m])
        if batch.mix is not None:
            share, others = batch.mix.share, neighbours(batch.labels[:m])
            upright = share * upright + (1 - share) * cross_entropy(logits[:m], others)
        total = total + _distilled(upright, logits[:m], None if teacher is None else teacher[:m], config)
    if config.rotated:
        rotated = cross_entropy(logits[m:], batch.labels[m:])
        total = total + _distilled(rotated, logits[m:], None if teacher is None else teacher[m:], config)
        total = total + config.rotation_weight * F.cross_entropy(model.rotations(features[m:]), batch.turns)
    return total


def _distilled(loss: Tensor, student: Tensor, teacher: Tensor | None, config: TrainConfig) -> Tensor:
    """A loss of classes, with a part replaced by the divergence from the teacher's softened predictions."""
    if teacher is None:
        return loss
    t, weight = config.distil_temperature, config.distil_weight
    targets = (teacher.float() / t).softmax(1)
    divergence = F.kl_div((student.float() / t).log_softmax(1), targets, reduction="batchmean")
    return (1 - weight) * loss + weight * t * t * divergence
