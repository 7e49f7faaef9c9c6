"""ResNet-12 as few-shot papers use it (Oreshkin et al. 2018; Lee et al. 2019), and WideResNet-28-10 (Zagoruyko and
Komodakis 2016).

Modules are named as in the code of LR+ICI (Wang et al. 2020) and S2M2 (Mangla et al. 2020), so that their checkpoints
can be loaded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from a2lp.checks import require_flag, shown
from a2lp.errors import InputError
from a2lp.images.backbones.base import Network, checked_rate, initialise
from a2lp.images.view import View

SLOPE = 0.1
DROP_BLOCK_SIZE = 5
WIDE_UNITS = 4  # in each of three blocks: 3 blocks x 4 units x 2 convolutions, the stem and 3 shortcuts make 28


def resnet12(dropout: float = 0.0, drop_block: float = 0.0) -> Network:
    """The wide network: 64-160-320-640 channels, 640 features."""
    net = ResNet12((64, 160, 320, 640), dropout, drop_block)
    net.view = View(96, 84)
    return net


def resnet12_512(dropout: float = 0.0, drop_block: float = 0.0, ceil_pool: bool = False) -> Network:
    """LR+ICI's network: 64-128-256-512 channels, 512 features; its second version pools with ``ceil_pool``."""
    require_flag("ceil_pool", ceil_pool, "It is how half of an odd size is rounded.")
    net = ResNet12((64, 128, 256, 512), dropout, drop_block, ceil_pool)
    net.view = View(84, 84)  # it was trained without a crop
    return net


class ResNet12(Network):
    """Four blocks of three 3 x 3 convolutions and 2 x 2 max-pooling, which rounds odd sizes up with ``ceil_pool``.

    ``dropout`` is for blocks 1 and 2, ``drop_block`` for 5 x 5 patches in blocks 3 and 4 (Ghiasi et al. 2018).
    """

    def __init__(
        self, widths: tuple[int, int, int, int], dropout: float, drop_block: float, ceil_pool: bool = False
    ) -> None:
        super().__init__()
        a, b, c, d = widths
        self.layer1 = nn.Sequential(Block(3, a, nn.Dropout(checked_rate("dropout", dropout)), ceil_pool))
        self.layer2 = nn.Sequential(Block(a, b, nn.Dropout(checked_rate("dropout", dropout)), ceil_pool))
        self.layer3 = nn.Sequential(Block(b, c, DropBlock(drop_block), ceil_pool))
        self.layer4 = nn.Sequential(Block(c, d, DropBlock(drop_block), ceil_pool))
        self.dim = d
        initialise(self, SLOPE)

    @property
    def stages(self) -> Sequence[nn.Module]:
        """The four blocks."""
        return [self.layer1, self.layer2, self.layer3, self.layer4]


class Block(nn.Module):  # type: ignore[misc]
    """Three convolutions beside a 1 x 1 shortcut, then 2 x 2 max-pooling."""

    def __init__(self, n_in: int, n_out: int, drop: nn.Module, ceil_pool: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.conv3 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(n_out)
        self.downsample = nn.Sequential(nn.Conv2d(n_in, n_out, 1, bias=False), nn.BatchNorm2d(n_out))
        self.drop = drop
        self.ceil_pool = ceil_pool

    def forward(self, x: Tensor) -> Tensor:
        """From (b, n_in, h, w) to (b, n_out, h // 2, w // 2)."""
        out = F.leaky_relu(self.bn1(self.conv1(x)), SLOPE)
        out = F.leaky_relu(self.bn2(self.conv2(out)), SLOPE)
        out = self.bn3(self.conv3(out)) + self.downsample(x)
        out = F.max_pool2d(F.leaky_relu(out, SLOPE), 2, ceil_mode=self.ceil_pool)
        dropped: Tensor = self.drop(out)
        return dropped


class DropBlock(nn.Module):  # type: ignore[misc]
    """Drops square patches in training, and scales the rest so that the mean stays."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = checked_rate("drop_block", rate)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape, with patches of zeros while training."""
        if not self.training or self.rate == 0:
            return x
        b, c, h, w = x.shape
        size = min(DROP_BLOCK_SIZE, h, w)
        rows, columns = h - size + 1, w - size + 1  # positions of whole patches
        corner = self.rate * h * w / (size**2 * rows * columns)
        corners = (torch.rand(b, c, rows, columns, device=x.device) < corner).to(x.dtype)
        dropped = F.max_pool2d(F.pad(corners, [size - 1] * 4), size, stride=1)  # (b, c, h, w)
        kept = 1 - dropped
        return x * kept * (kept.numel() / kept.sum().clamp(min=1))


class WideResNet(Network):
    """WideResNet-28-10: pre-activation units, 160-320-640 channels; features are not negative.

    ``stem_stride`` is 1 as published, or 2 for a quarter of the time; ``dropout`` is a rate inside of each unit.
    """

    dim = 640
    view = View(92, 80)  # as S2M2 trained and embedded

    def __init__(self, stem_stride: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        if stem_stride not in (1, 2):
            raise InputError(f"stem_stride={shown(stem_stride)} must be 1 (as published) or 2.")
        self.conv1 = nn.Conv2d(3, 16, 3, stride=stem_stride, padding=1, bias=False)
        self.block1 = _wide_block(16, 160, 1, dropout)
        self.block2 = _wide_block(160, 320, 2, dropout)
        self.block3 = _wide_block(320, 640, 2, dropout)
        self.bn1 = nn.BatchNorm2d(640)
        initialise(self, 0.0)

    @property
    def stages(self) -> Sequence[nn.Module]:
        """The stem and the three blocks."""
        return [self.conv1, self.block1, self.block2, self.block3]

    def pool(self, x: Tensor) -> Tensor:
        """Features (b, 640): the mean over positions, after the last normalisation and ReLU."""
        return super().pool(F.relu(self.bn1(x)))


def _wide_block(n_in: int, n_out: int, stride: int, dropout: float) -> nn.Module:
    """Units of one width; the first may halve the image."""
    units = [Unit(n_in, n_out, stride, dropout), *(Unit(n_out, n_out, 1, dropout) for _ in range(WIDE_UNITS - 1))]
    return nn.Sequential(OrderedDict(layer=nn.Sequential(*units)))


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
