"""Pixels through a network, on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from a2lp.checks import shown
from a2lp.errors import InputError
from a2lp.files import reason
from a2lp.images.backbones import Backbone

NDArray = np.ndarray[Any, Any]

# On a CPU, a batch passes through the network a few images at a time, so that activations stay below the size from
# which the C library gets fresh pages for every layer: with 64 images of 224 x 224, that takes twice as long as the
# network itself.
CPU_PIXELS = 2 * 224 * 224


def choose_device(name: str) -> torch.device:
    """The device of this name, once it has been tried; ``"auto"`` is CUDA if available, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(
            f"device={shown(name)} cannot be used ({reason(error)}). Choose auto, cpu, or cuda on a GPU."
        ) from error
    return device


def forward_function(backbone: Backbone, device: torch.device, flip: bool) -> Callable[[NDArray], NDArray]:
    """The function from pixels, uint8 (n, h, w, 3), to vectors, float16 (n, d)."""
    module = backbone.module.to(device, memory_format=torch.channels_last).eval()
    mean, std = (255 * torch.tensor(of, device=device).view(1, 3, 1, 1) for of in (backbone.mean, backbone.std))
    if device.type == "cpu":
        # freed at once; from then on glibc keeps blocks up to this size instead of returning their pages
        torch.empty(31 << 20, dtype=torch.uint8)

    def forward(pixels: NDArray) -> NDArray:
        n, height, width, _ = pixels.shape
        step = max(1, CPU_PIXELS // (height * width)) if device.type == "cpu" else max(1, n)
        parts = [torch.empty(0, backbone.dim, device=device)]  # the result if all images of a batch were skipped
        with torch.inference_mode():
            for start in range(0, n, step):
                # (n, 3, h, w) with the memory of (n, h, w, 3): channels_last, as the network's
                x = torch.from_numpy(pixels[start : start + step]).to(device).permute(0, 3, 1, 2)
                x = (x.float() - mean) / std
                y = module(x)
                parts.append((y + module(x.flip(-1))) / 2 if flip else y)
            vectors: NDArray = torch.cat(parts).half().cpu().numpy()
        return vectors

    return forward
