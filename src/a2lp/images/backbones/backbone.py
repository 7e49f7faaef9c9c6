"""What every backbone can do, whichever library runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from a2lp.arrays import NDArray
from a2lp.images.normalisation import Triple
from a2lp.images.view import View


class Runner(ABC):
    """A network on a device.

    Attributes
    ----------
    on_workers : bool
        Whether threads run the network in parallel, each on one core; otherwise it takes one batch at a time.
    """

    on_workers: bool

    @abstractmethod
    def forward(self, pixels: NDArray) -> NDArray:
        """Features, float32 (n, dim), of pixels, uint8 (n, h, w, 3); n is 1 or more."""

    def start_worker(self) -> None:  # noqa: B027
        """Called first in every thread that runs the network."""

    def close(self) -> None:  # noqa: B027
        """Called after the last image."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Backbone(ABC):
    """A network that is ready to embed images; ``create`` makes one.

    Attributes
    ----------
    name : str
        One of ``names()``.
    dim : int
        The number of features.
    view : View
        The part of an image that it sees.
    mean, std : tuple of three floats
        Of the pixels in 0..1: an image is normalised as (pixels - mean) / std.
    weights : str or None
        The SHA-256 of the file of weights, as ``sha256:...``, or None for random ones.

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.images import backbones
    >>> network = backbones.create("efficientnet_lite0")
    >>> network.on("cpu").forward(np.zeros((1, 64, 64, 3), dtype=np.uint8)).shape
    (1, 1280)
    """

    name: str
    dim: int
    view: View
    mean: Triple
    std: Triple
    weights: str | None

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """What the network was made with, as JSON can hold it."""

    @property
    @abstractmethod
    def versions(self) -> dict[str, str]:
        """The packages that run it, with their versions."""

    @abstractmethod
    def state(self) -> str:
        """The SHA-256 of the weights as they are now, as ``sha256:...``."""

    @abstractmethod
    def on(self, device: str) -> Runner:
        """The network on a device; InputError if it cannot be used."""
