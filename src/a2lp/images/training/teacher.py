"""Self-distillation: a trained network of the same kind, whose soft predictions the next generation is trained on.

Furlanello et al., "Born-again neural networks", ICML 2018; for few-shot features, Tian et al., "Rethinking few-shot
image classification: a good embedding is all you need?", ECCV 2020. Weight files hold no classifier, so the teacher's
predictions are softmax(scale * cosine to the class mean) of its features of the base images, all centred on their mean.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from a2lp.errors import InputError
from a2lp.images.backbones import create
from a2lp.images.training.config import TrainConfig
from a2lp.images.training.recipes import Mix, Trunk

_SCALES = (5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0)


class Teacher(Trunk):
    """A frozen network with a head of class means.

    Parameters
    ----------
    config : TrainConfig
        Its ``teacher`` is the file of weights.
    batches : iterable of (Tensor, Tensor)
        Base images as the network sees them, and their labels from 0.
    n_classes : int
    """

    def __init__(self, config: TrainConfig, batches: Iterable[tuple[Tensor, Tensor]], n_classes: int) -> None:
        assert config.teacher is not None
        backbone = create(config.backbone, config.teacher)
        if not hasattr(backbone.module, "stages"):
            raise InputError(f"backbone={config.backbone!r} cannot be a teacher: it has no stages. Leave teacher out.")
        super().__init__(backbone.module)
        self._fit(batches, n_classes)
        self.requires_grad_(False).eval()

    def logits(self, images: Tensor, mix: Mix | None) -> Tensor:
        """Soft predictions of a batch (b, c) before the softmax, mixed as the student's are."""
        features = self.features(images, mix).float()
        return self.scale * F.normalize(features - self.centre) @ self.means.T

    def _fit(self, batches: Iterable[tuple[Tensor, Tensor]], n_classes: int) -> None:
        """The class means, and the scale at which the base images are likeliest."""
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
