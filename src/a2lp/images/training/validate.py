"""Few-shot accuracy on validation classes during training: nearest mean, 5-way, 1- and 5-shot."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from a2lp.arrays import chunks
from a2lp.errors import InputError
from a2lp.images.datasets import ImageSet
from a2lp.images.training.augment import Normalise, planes
from a2lp.images.training.config import TrainConfig
from a2lp.images.view import View
from a2lp.tasks.lists import TaskList
from a2lp.tasks.samplers import draw

SHOTS = (1, 5)
_FORWARD = 512  # images through the network at once
_TASKS = 100  # tasks scored at once


class Validation:
    """Few-shot tasks of validation classes, the same at every evaluation."""

    def __init__(self, images: ImageSet, config: TrainConfig, device: torch.device, workers: int) -> None:
        if images.labels is None:
            raise InputError(f"{images.name!r} has no labels; validation needs the class of each image.")
        # at most so many images of each class, chosen at random
        order = np.random.default_rng(config.seed).permutation(len(images))
        by_class = order[np.argsort(images.labels[order], kind="stable")]
        starts = np.unique(images.labels[by_class], return_index=True)[1]
        place = np.arange(len(images)) - np.repeat(starts, np.diff([*starts, len(images)]))
        rows = np.sort(by_class[place < config.evaluation_images])
        self.images, labels = images.select(rows), images.labels[rows]
        self.device, self.workers = device, workers
        sizes: dict[str, Any] = {"n_tasks": config.evaluation_tasks, "class_names": images.classes}
        self.tasks = [draw("balanced", labels, seed=config.seed, n_shot=shots, **sizes) for shots in SHOTS]
        self.normalise = Normalise(config, device)
        self._pixels = (config.views[0], self._read(config.views[0]))

    def accuracy(self, net: nn.Module, view: View) -> tuple[float, float]:
        """Accuracy in percent of a network in eval mode at one shot and at five."""
        first, pixels = self._pixels
        features = embed(net, pixels if view == first else self._read(view), self.normalise)
        one, five = (nearest_mean(features, tasks) for tasks in self.tasks)
        return one, five

    def _read(self, view: View) -> Tensor:
        return torch.from_numpy(self.images.pixels(view, self.workers)).to(self.device)


def embed(net: nn.Module, pixels: Tensor, normalise: Normalise) -> Tensor:
    """Features (n, d) float32 of uint8 images, each the mean over the image and its mirror, L2-normalised."""
    parts = []
    with torch.no_grad():
        for part in chunks(len(pixels), _FORWARD):
            x = normalise(planes(pixels[part]))
            parts.append((net(x) + net(x.flip(3))).float())
    return F.normalize(torch.cat(parts), dim=1)


def nearest_mean(features: Tensor, tasks: TaskList) -> float:
    """Percent of queries whose nearest class mean is that of their own class."""
    correct = torch.zeros((), device=features.device)
    arrays = [torch.from_numpy(each).to(features.device) for each in (tasks.support, tasks.query, tasks.query_labels)]
    for part in chunks(len(tasks), _TASKS):
        support, query, labels = (each[part] for each in arrays)
        b, _ = support.shape
        means = features[support].view(b, tasks.n_shot, tasks.n_way, -1).mean(1)  # (b, way, d): the class is fastest
        queries = features[query]  # (b, q, d)
        scores = 2 * queries @ means.mT - means.square().sum(2)[:, None, :]  # -|x - w|^2 + |x|^2
        correct += (scores.argmax(2) == labels).sum()
    return 100 * float(correct) / tasks.query.size
