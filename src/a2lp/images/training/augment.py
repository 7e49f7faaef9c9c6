"""Augmentation on the device, a batch at a time: flips with crops or shifts by one resampling, then colours."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from a2lp.images.training.config import TrainConfig

DRAWS = 8  # random numbers for each image: flip, area, aspect, two for the place, three colours


def planes(pixels: Tensor) -> Tensor:
    """uint8 (b, h, w, 3) as float32 (b, 3, h, w) in 0..1, channels last in memory."""
    return pixels.permute(0, 3, 1, 2).to(torch.float32) / 255


class Normalise:
    """Normalises pixels in 0..1 for the network."""

    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        mean, std = (torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (config.mean, config.std))
        self.scale, self.offset = 1 / std, -mean / std

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise a batch (b, 3, h, w)."""
        return (x * self.scale + self.offset).contiguous(memory_format=torch.channels_last)


def augment(pixels: Tensor, config: TrainConfig, generator: torch.Generator) -> Tensor:
    """Random views of a batch: uint8 (b, s, s, 3) to float32 (b, 3, size, size) in 0..1."""
    u = torch.rand(len(pixels), DRAWS, device=pixels.device, generator=generator)
    x = resample(planes(pixels), windows(u[:, :5], pixels.shape[1], config), config.size)
    return recolour(x, 1 + config.jitter * (2 * u[:, 5:] - 1))


def windows(u: Tensor, side: int, config: TrainConfig) -> Tensor:
    """Windows from uniform numbers (b, 5): centre x, y and half width (negative: mirrored), height (b, 4) in -1..1."""
    if config.crop_area is not None:
        low, high = config.crop_area
        area = low + (high - low) * u[:, 1]
        slim, wide = map(math.log, config.crop_aspect)
        aspect = torch.exp(slim + (wide - slim) * u[:, 2])
        half = torch.stack([(area * aspect).sqrt(), (area / aspect).sqrt()], 1).clamp(max=1)
        centre = (1 - half) * (2 * u[:, 3:5] - 1)
    else:
        half = torch.full_like(u[:, 3:5], config.size / side)
        pixels = torch.floor(u[:, 3:5] * (2 * config.shift + 1)) - config.shift
        centre = pixels * (2 / side)
    mirror = torch.where(u[:, :1] < 0.5, -1.0, 1.0)
    return torch.cat([centre, half[:, :1] * mirror, half[:, 1:]], 1)


def resample(x: Tensor, where: Tensor, size: int) -> Tensor:
    """Each image's window (b, 4) as (b, 3, size, size), bilinear; beyond the border the image is mirrored."""
    # sums, not a product of matrices: TF32 would move the coordinates by parts of a pixel
    steps = (2 * torch.arange(size, device=x.device) + 1) / size - 1  # centres of the pixels, -1..1
    across = where[:, 0, None] + where[:, 2, None] * steps  # (b, size)
    down = where[:, 1, None] + where[:, 3, None] * steps
    grid = torch.stack(torch.broadcast_tensors(across[:, None, :], down[:, :, None]), dim=3)  # (b, size, size, 2)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def recolour(x: Tensor, factors: Tensor) -> Tensor:
    """Brightness, contrast and saturation times ``factors`` (b, 3); 1 leaves them as they are."""
    brightness, contrast, saturation = (factors[:, i].view(-1, 1, 1, 1) for i in range(3))
    x = (x * brightness).clamp(0, 1)
    x = torch.lerp(_gray(x).mean((2, 3), keepdim=True), x, contrast).clamp(0, 1)
    return torch.lerp(_gray(x), x, saturation).clamp(0, 1)


def _gray(x: Tensor) -> Tensor:
    # plain numbers: the host would wait while a tensor of weights is copied to the device
    return 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
