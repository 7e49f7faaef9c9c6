"""Images through a network, on a device: vectors, a few images at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from a2lp.checks import shown
from a2lp.errors import InputError
from a2lp.files import reason
from a2lp.images.backbones import Backbone

NDArray = np.ndarray[Any, Any]
Rows = Sequence[int]
Found = TypeVar("Found")

# On a CPU, so few images pass through the network at once that activations stay below the size from which the C library
# gets fresh pages for every layer: with 64 images of 224 x 224, that takes twice as long as the network itself.
CPU_PIXELS = 2 * 224 * 224


class Read(Protocol):
    """Gives the pixels of some rows, uint8 (n, h, w, 3), and the rows without those that were skipped (n,)."""

    def __call__(self, rows: Rows, /, *, workers: int) -> tuple[NDArray, NDArray]:
        """Read with so many threads."""


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


def embed_rows(
    read: Read, rows: Rows, backbone: Backbone, device: torch.device, *, flip: bool, batch_size: int, workers: int
) -> Generator[tuple[NDArray, NDArray], None, None]:
    """Vectors, float16 (n, d), and their rows (n,), a few at a time and in order; close it to stop early.

    On a CPU, every worker reads images and takes them through the network alone, on one thread. Threads that share the
    work on an image wait for each other at every layer, and spin while they wait: beside other programs, that is
    several times slower. On other devices, the workers read the next batch meanwhile.

    Parameters
    ----------
    read, rows
        Gives the pixels of the rows.
    backbone, device, flip
        The network, where it runs, and whether a vector is the mean over the image and its mirror image.
    batch_size : int
        How many images are held at a time.
    workers : int
        Threads.
    """
    forward = _forward_function(backbone, device, flip)
    if device.type != "cpu":
        for pixels, kept in _in_order(partial(read, workers=workers), _parts(rows, batch_size), workers=1, ahead=2):
            yield forward(pixels), kept
        return

    def work(part: Rows) -> tuple[NDArray, NDArray]:
        pixels, kept = read(part, workers=1)
        return forward(pixels), kept

    at_once = max(1, min(batch_size, CPU_PIXELS // ((1 + flip) * backbone.view.output**2)))
    threads = torch.get_num_threads()
    try:
        yield from _in_order(work, _parts(rows, at_once), workers, max(2 * workers, batch_size // at_once), _one_thread)
    finally:
        torch.set_num_threads(threads)


def _forward_function(backbone: Backbone, device: torch.device, flip: bool) -> Callable[[NDArray], NDArray]:
    """The function from pixels, uint8 (n, h, w, 3), to vectors, float16 (n, d)."""
    module = backbone.module.to(device, memory_format=torch.channels_last).eval()
    mean, std = (255 * torch.tensor(of, device=device).view(1, 3, 1, 1) for of in (backbone.mean, backbone.std))
    pointwise = device.type == "cpu" and torch.backends.mkldnn.is_available()
    if device.type == "cpu":
        # freed at once; from then on glibc keeps blocks up to this size instead of returning their pages
        torch.empty(31 << 20, dtype=torch.uint8)

    def forward(pixels: NDArray) -> NDArray:
        n = len(pixels)
        if n == 0:  # all images were skipped
            return np.empty((0, backbone.dim), dtype=np.float16)
        with torch.inference_mode(), _Pointwise() if pointwise else nullcontext():
            # (n, 3, h, w) with the memory of (n, h, w, 3): channels_last, as the network's
            x = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2)
            x = (x.float() - mean) / std
            y: Tensor = module(torch.cat([x, x.flip(-1)]) if flip else x)
            vectors: NDArray = ((y[:n] + y[n:]) / 2 if flip else y).half().cpu().numpy()
        return vectors

    return forward


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


def _one_thread() -> None:
    """Let this thread compute alone; torch then makes it the default of new threads, too."""
    torch.set_num_threads(1)


def _parts(rows: Rows, size: int) -> Iterator[Rows]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _in_order(
    function: Callable[[Rows], Found],
    parts: Iterator[Rows],
    workers: int,
    ahead: int,
    initializer: Callable[[], None] | None = None,
) -> Iterator[Found]:
    """``map(function, parts)`` by some threads, at most so many parts ahead of the caller."""
    pool = ThreadPoolExecutor(workers, initializer=initializer)
    waiting: deque[Future[Found]] = deque()
    try:
        for part in parts:
            waiting.append(pool.submit(function, part))
            if len(waiting) == ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
