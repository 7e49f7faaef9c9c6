"""WideResNet-28-10 (Zagoruyko and Komodakis 2016), with the module names of S2M2's code (Mangla et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from a2lp.checks import shown
from a2lp.errors import InputError
from a2lp.images.backbones.network import Network, checked_rate, initialise
from a2lp.images.view import View

UNITS = 4  # in each of the three blocks: 3 blocks x 4 units x 2 convolutions, the stem and 3 shortcuts make 28


class WideResNet(Network):
    """Pre-activation units, 160-320-640 channels; features are not negative.

    Parameters
    ----------
    stem_stride : int
        1 as published, or 2, which takes a quarter of the time.
    dropout : float
        Rate between the convolutions of each unit.
    """

    dim = 640
    view = View(92, 80)  # as S2M2 trained and embedded

    def __init__(self, stem_stride: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        if stem_stride not in (1, 2):
            raise InputError(f"stem_stride={shown(stem_stride)} must be 1 (as published) or 2.")
        self.conv1 = nn.Conv2d(3, 16, 3, stride=stem_stride, padding=1, bias=False)
        self.block1 = WideBlock(16, 160, 1, dropout)
        self.block2 = WideBlock(160, 320, 2, dropout)
        self.block3 = WideBlock(320, 640, 2, dropout)
        self.bn1 = nn.BatchNorm2d(640)
        initialise(self, 0.0)

    @property
    def stages(self) -> Sequence[nn.Module]:
        """The stem and the three blocks."""
        return [self.conv1, self.block1, self.block2, self.block3]

    def pool(self, x: Tensor) -> Tensor:
        """Features (b, 640): the mean over positions, after the last normalisation and ReLU."""
        return super().pool(F.relu(self.bn1(x)))


class WideBlock(nn.Module):  # type: ignore[misc]
    """Units of one width; the first may halve the image."""

    def __init__(self, n_in: int, n_out: int, stride: int, dropout: float) -> None:
        super().__init__()
        first = Unit(n_in, n_out, stride, dropout)
        self.layer = nn.Sequential(first, *(Unit(n_out, n_out, 1, dropout) for _ in range(UNITS - 1)))

    def forward(self, x: Tensor) -> Tensor:
        """From (b, n_in, h, w) to (b, n_out, h / stride, w / stride)."""
        out: Tensor = self.layer(x)
        return out


class Unit(nn.Module):  # type: ignore[misc]
    """Two normalised convolutions beside a shortcut."""

    def __init__(self, n_in: int, n_out: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(n_in)
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.drop = nn.Dropout(checked_rate("dropout", dropout))
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.convShortcut = None if n_in == n_out else nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """From (b, n_in, h, w) to (b, n_out, h / stride, w / stride)."""
        active = F.relu(self.bn1(x))
        out = self.conv2(self.drop(F.relu(self.bn2(self.conv1(active)))))
        # a shortcut that changes the width comes after the activation, the others before it
        shortcut: Tensor = x if self.convShortcut is None else self.convShortcut(active)
        return shortcut + out
