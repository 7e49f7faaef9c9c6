"""Images as a network sees them: decoded in threads, then resized and cropped to one size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from a2lp.errors import CorruptImageError, InputError
from a2lp.images.datasets.decode import Pixels
from a2lp.images.view import View

if TYPE_CHECKING:
    from a2lp.images.datasets.sets import ImageSet
    from a2lp.images.datasets.sources import Source

NDArray = np.ndarray[Any, Any]
OnCorrupt = Literal["refuse", "skip"]

_CHUNK = 600  # rows to a thread at most: the tiles of one mosaic, so that threads seldom want the same one


def read_resized(
    images: ImageSet,
    rows: Sequence[int] | NDArray,
    view: View,
    *,
    workers: int = 1,
    on_corrupt: OnCorrupt = "refuse",
) -> tuple[Pixels, NDArray]:
    """Decode, resize and crop some rows of a set.

    Memory holds the answer and one decoded image for each worker: ask for as many rows as you can hold.

    Parameters
    ----------
    images : ImageSet
        Where they come from.
    rows : sequence of int
        Which ones.
    view : View
        The shorter side goes to ``view.resize`` (bilinear, antialiased), the centre is cropped to ``view.crop``
        and, where ``view.size`` is given, resampled to it.
    workers : int
        Threads that decode.
    on_corrupt : {"refuse", "skip"}
        Whether an image that cannot be decoded raises ``CorruptImageError`` or is left out.

    Returns
    -------
    pixels : uint8 array (n, size, size, 3)
    kept : int array (n,)
        Their rows; all of ``rows`` unless some were skipped.
    """
    if on_corrupt not in {"refuse", "skip"}:
        raise InputError(f"on_corrupt={on_corrupt!r} must be 'refuse' or 'skip'.")
    wanted = np.asarray(rows, dtype=np.int64)
    pixels = np.empty((len(wanted), view.output, view.output, 3), dtype=np.uint8)
    decoded = fill(pixels, images.source, wanted, view, workers, on_corrupt)
    return (pixels, wanted) if decoded.all() else (pixels[decoded], wanted[decoded])


def fill(
    out: Pixels,
    source: Source,
    rows: NDArray,
    view: View,
    workers: int,
    on_corrupt: OnCorrupt,
    progress: Callable[[int, int], None] | None = None,
) -> NDArray:
    """Write the view of each row into ``out``; whether each could be decoded."""
    if workers < 1:
        raise InputError(f"workers={workers} must be 1 or more: the number of threads that decode.")
    decoded = np.zeros(len(rows), dtype=bool)

    def work(places: NDArray) -> int:
        for place in places.tolist():
            try:
                (image,) = source.read([int(rows[place])])
            except CorruptImageError:
                if on_corrupt == "refuse":
                    raise
                continue
            out[place] = resized(image, view)
            decoded[place] = True
        return len(places)

    chunk = max(1, min(_CHUNK, -(-len(rows) // (4 * workers))))
    order = np.argsort(rows, kind="stable")  # neighbours share a mosaic, or a part of the disk
    pool = ThreadPoolExecutor(workers)
    try:
        done = 0
        for future in [pool.submit(work, order[i : i + chunk]) for i in range(0, len(order), chunk)]:
            done += future.result()
            if progress is not None:
                progress(done, len(rows))
    finally:
        pool.shutdown(cancel_futures=True)
    return decoded


def resized(image: Pixels, view: View) -> Pixels:
    """One image, (h, w, 3), as (size, size, 3)."""
    height, width = image.shape[:2]
    shorter = min(height, width)
    new_height, new_width = height * view.resize // shorter, width * view.resize // shorter
    top, left = round((new_height - view.crop) / 2), round((new_width - view.crop) / 2)
    if shorter == view.resize:
        cropped = image[top : top + view.crop, left : left + view.crop]
    else:
        # only the crop is computed: a strip of 1 x 1,000,000 pixels would else grow to more than memory holds
        y, x = height / new_height, width / new_width
        box = (left * x, top * y, min((left + view.crop) * x, width), min((top + view.crop) * y, height))
        bilinear = Image.Resampling.BILINEAR
        cropped = np.asarray(Image.fromarray(image).resize((view.crop, view.crop), bilinear, box=box))
    if view.output == view.crop:
        return cropped
    return np.asarray(Image.fromarray(cropped).resize((view.output, view.output), Image.Resampling.BILINEAR))
