"""The base classes of networks, and what their modules share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from a2lp.checks import shown
from a2lp.errors import InputError, import_extra
from a2lp.files import reason
from a2lp.images.normalisation import IMAGENET_MEAN, IMAGENET_STD, Triple
from a2lp.images.view import View


class Network(nn.Module, ABC):  # type: ignore[misc]
    """Maps normalised images (b, 3, h, w) to features (b, dim): stage after stage, then ``pool``.

    The attributes are those of ``Backbone``, and ``options``, which are saved with the weights.
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
        """The module whose state dict is saved."""
        return self

    def pool(self, x: Tensor) -> Tensor:
        """Features (b, dim) from the output of the last stage: the mean over positions."""
        return x.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Features (b, dim) of images (b, 3, h, w)."""
        for stage in self.stages:
            x = stage(x)
        return self.pool(x)


class Wrapped(Network):
    """A network of another package, which pools on its own; weights are saved under the package's own keys."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    @property
    def stages(self) -> Sequence[nn.Module]:
        """The whole network."""
        return [self.body]

    @property
    def core(self) -> nn.Module:
        """The network of the package."""
        return self.body

    def pool(self, x: Tensor) -> Tensor:
        """The output of the network."""
        return x


def import_models(backbone: str, extra: str, package: str, *modules: str) -> Any:
    """A package of models, which itself imports torchvision."""
    try:
        return import_extra(f"backbone {backbone!r}", extra, package, *modules)
    except Exception as error:
        cause = error.__cause__ or error
        if isinstance(cause, ModuleNotFoundError):
            raise
        raise InputError(  # of torchvision, if it was built for another torch
            f"{package} is installed and cannot be imported ({reason(cause)}). Install the torchvision that belongs to "
            "your torch."
        ) from cause


def checked_rate(option: str, rate: float) -> float:
    """A checked rate of dropout."""
    if not 0 <= rate < 1:
        raise InputError(f"{option}={shown(rate)} is a share of what is dropped; it must be at least 0 and below 1.")
    return rate


def initialise(net: nn.Module, slope: float) -> None:
    """He initialisation of convolutions before a (leaky) ReLU of this slope; batch norms start at 1 and 0."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, a=slope, mode="fan_out", nonlinearity="leaky_relu")
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
