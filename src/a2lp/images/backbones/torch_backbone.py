"""Backbones that torch runs, on a CPU or another device."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from a2lp.arrays import NDArray
from a2lp.checks import shown
from a2lp.errors import InputError
from a2lp.files import reason
from a2lp.images.backbones.backbone import Backbone, Runner


@dataclass(frozen=True, eq=False, kw_only=True)
class TorchBackbone(Backbone):
    """A module in evaluation mode; it maps normalised images (b, 3, h, w), float32, to features (b, dim)."""

    module: nn.Module

    @property
    def options(self) -> dict[str, Any]:
        """The options of the network."""
        return getattr(self.module, "options", {})

    @property
    def versions(self) -> dict[str, str]:
        """The version of torch."""
        return {"torch": str(torch.__version__)}

    def state(self) -> str:
        """Of the current weights, not of the file that they were loaded from: they may have been trained since."""
        digest = hashlib.sha256()
        for name, tensor in self.module.state_dict().items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return f"sha256:{digest.hexdigest()}"

    def on(self, device: str) -> Runner:
        """The network on a torch device; ``"auto"`` is CUDA if available, else the CPU."""
        return TorchRunner(self, choose_device(device))


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


class TorchRunner(Runner):
    """A module on a device."""

    def __init__(self, backbone: TorchBackbone, device: torch.device) -> None:
        self.device = device
        self.on_workers = device.type == "cpu"
        self.module = backbone.module.to(device, memory_format=torch.channels_last).eval()
        self.mean, self.std = (
            255 * torch.tensor(of, device=device).view(1, 3, 1, 1) for of in (backbone.mean, backbone.std)
        )
        self.threads = torch.get_num_threads()
        self.pointwise = self.on_workers and torch.backends.mkldnn.is_available()
        if self.on_workers:
            # freed at once; from then on glibc keeps blocks up to this size instead of returning their pages
            torch.empty(31 << 20, dtype=torch.uint8)

    def start_worker(self) -> None:
        """Compute on this thread alone; torch then makes that the default of new threads, too."""
        torch.set_num_threads(1)

    def close(self) -> None:
        """Restore the number of threads of the process."""
        if self.on_workers:
            torch.set_num_threads(self.threads)

    def forward(self, pixels: NDArray) -> NDArray:
        """Features, float32 (n, dim), of pixels, uint8 (n, h, w, 3)."""
        with torch.inference_mode(), _Pointwise() if self.pointwise else nullcontext():
            # (n, 3, h, w) with the memory of (n, h, w, 3): channels_last, as the network's
            x = torch.from_numpy(pixels).to(self.device).permute(0, 3, 1, 2)
            y: Tensor = self.module((x.float() - self.mean) / self.std)
            vectors: NDArray = y.float().cpu().numpy()
        return vectors


class _Pointwise(TorchFunctionMode):  # type: ignore[misc]
    """1 x 1 convolutions by oneDNN.

    With several threads that is torch's own choice. With one thread, torch takes matrix products of BLAS instead, which
    are slower here, and would round the vectors differently.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.conv2d and len(args) == 7 and args[1].shape[2:] == (1, 1) and not isinstance(args[4], str):
            x, weight, bias, stride, padding, dilation, groups = args
            return torch.mkldnn_convolution(x, weight, bias, padding, stride, dilation, groups)
        return func(*args, **(kwargs or {}))
