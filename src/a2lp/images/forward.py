"""Images through a network: vectors, a few images at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from a2lp.arrays import NDArray
from a2lp.images.backbones.backbone import Backbone, Runner

Rows = Sequence[int]
Found = TypeVar("Found")

# On a CPU, so few images pass through the network at once that activations stay below the size from which the C library
# gets fresh pages for every layer: with 64 images of 224 x 224, that takes twice as long as the network itself.
CPU_PIXELS = 2 * 224 * 224


class Read(Protocol):
    """Gives the pixels of some rows, uint8 (n, h, w, 3), and the rows without those that were skipped (n,)."""

    def __call__(self, rows: Rows, /, *, workers: int) -> tuple[NDArray, NDArray]:
        """Read with this number of threads."""


def embed_rows(
    read: Read, rows: Rows, backbone: Backbone, runner: Runner, *, flip: bool, batch_size: int, workers: int
) -> Generator[tuple[NDArray, NDArray], None, None]:
    """Vectors, float16 (n, d), and their rows (n,), a few at a time and in order; close it to stop early.

    On a CPU, every worker reads images and takes them through the network alone, on one thread. Threads that share the
    work on an image wait for each other at every layer, and spin while they wait: beside other programs, that is
    several times slower. On other devices, the workers read the next batch meanwhile.

    Parameters
    ----------
    read, rows
        Gives the pixels of the rows.
    backbone, runner, flip
        The network, the same on its device, and whether a vector is the mean over the image and its mirror image.
    batch_size : int
        How many images are held at a time.
    workers : int
        Threads.
    """
    forward = partial(_vectors, runner, backbone.dim, flip)
    try:
        if not runner.on_workers:
            for pixels, kept in _in_order(partial(read, workers=workers), _parts(rows, batch_size), workers=1, ahead=2):
                yield forward(pixels), kept
            return

        def work(part: Rows) -> tuple[NDArray, NDArray]:
            pixels, kept = read(part, workers=1)
            return forward(pixels), kept

        at_once = max(1, min(batch_size, CPU_PIXELS // ((1 + flip) * backbone.view.output**2)))
        ahead = max(2 * workers, batch_size // at_once)
        yield from _in_order(work, _parts(rows, at_once), workers, ahead, runner.start_worker)
    finally:
        runner.close()


def _vectors(runner: Runner, dim: int, flip: bool, pixels: NDArray) -> NDArray:
    """Vectors, float16 (n, d), of pixels, uint8 (n, h, w, 3)."""
    n = len(pixels)
    if n == 0:  # all images were skipped
        return np.empty((0, dim), dtype=np.float16)
    y = runner.forward(np.concatenate([pixels, pixels[:, :, ::-1]]) if flip else pixels)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what is not finite in float16
        vectors: NDArray = ((y[:n] + y[n:]) / 2 if flip else y).astype(np.float16)
    return vectors


def _parts(rows: Rows, size: int) -> Iterator[Rows]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _in_order(
    function: Callable[[Rows], Found],
    parts: Iterator[Rows],
    workers: int,
    ahead: int,
    initializer: Callable[[], None] | None = None,
) -> Iterator[Found]:
    """``map(function, parts)`` in threads, at most ``ahead`` parts before the caller."""
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
