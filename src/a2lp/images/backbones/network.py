"""The base class of networks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from a2lp.checks import shown
from a2lp.errors import InputError
from a2lp.images.view import View

Triple = tuple[float, float, float]

IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)


class Network(nn.Module, ABC):  # type: ignore[misc]
    """Maps normalised images (b, 3, h, w) to features (b, dim): stage after stage, then ``pool``.

    The input of every stage is a place where training may mix examples. ``stage.compile()`` compiles a stage in
    place and leaves the names of the weights as they are.

    Attributes
    ----------
    name : str
        What ``network`` calls it.
    options : dict
        The options it was made with, which are saved with its weights.
    dim : int
        How many features come out.
    view : View
        The part of an image that it was made for.
    mean, std : tuple of three floats
        Of the pixels in 0..1, by which images are normalised.
    weights : str or None
        The hash of the weights that were loaded, or None for random ones.
    """

    name: str
    options: dict[str, Any]
    dim: int
    view: View
    mean: Triple = IMAGENET_MEAN
    std: Triple = IMAGENET_STD
    weights: str | None = None

    @property
    @abstractmethod
    def stages(self) -> Sequence[nn.Module]:
        """The stages in order, each a registered module."""

    @property
    def core(self) -> nn.Module:
        """The module whose state dict is what files of weights hold."""
        return self

    def pool(self, x: Tensor) -> Tensor:
        """Features (b, dim) from what the last stage gives: the mean over positions."""
        return x.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Features (b, dim) of images (b, 3, h, w)."""
        for stage in self.stages:
            x = stage(x)
        return self.pool(x)


def share(option: str, rate: float) -> float:
    """A share of things to drop, checked."""
    if not 0 <= rate < 1:
        raise InputError(f"{option}={shown(rate)} is a share of what is dropped; it must be at least 0 and below 1.")
    return rate


def initialise(net: nn.Module, slope: float) -> None:
    """He's initialisation of convolutions that a (leaky) ReLU of this slope follows; batch norms start at 1 and 0."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, a=slope, mode="fan_out", nonlinearity="leaky_relu")
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)


def seeded(make: Any, seed: int, options: dict[str, Any]) -> Network:
    """What ``make(**options)`` gives when torch's generator starts at ``seed``; the caller's generator is untouched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made: Network = make(**options)
    return made
