"""Images in, a feature file out; what is embedded once is kept in a cache, so an interrupted run goes on."""

from __future__ import annotations

import hashlib
import platform
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

import numpy as np
import PIL
import torch

from a2lp._version import __version__
from a2lp.errors import CorruptImageError, FeatureFileError, InputError, UnknownNameError
from a2lp.features import FeatureSet, save
from a2lp.features.statistics import BaseStatistics
from a2lp.images.backbones import Backbone
from a2lp.images.cache import FeatureCache, ShardWriter, default_cache
from a2lp.images.datasets import ImageSet, read_resized
from a2lp.images.datasets.memory import check_memory

NDArray = np.ndarray[Any, Any]
OnCorrupt = Literal["refuse", "skip"]
Read = tuple[NDArray, NDArray]  # pixels (n, h, w, 3), and their rows
Progress = Callable[[str, int, int], None]
"""Called with what is being done (``"looking up"`` or ``"embedding"``), how many images of it, and of how many."""

# To be raised when the same image, backbone and view come to give other numbers: old caches are then not used.
PIPELINE = 1
# On a CPU, a batch passes through the network a few images at a time, and the activations stay below the size from
# which the C library gets fresh pages for every layer: with 64 images of 224 x 224, that takes twice as long as the
# network itself.
CPU_PIXELS = 2 * 224 * 224


def embed(
    images: ImageSet,
    backbone: Backbone,
    out: str | Path,
    *,
    device: str = "auto",
    batch_size: int = 64,
    workers: int = 1,
    on_corrupt: OnCorrupt = "refuse",
    flip: bool = False,
    cache: str | Path | None = None,
    about: dict[str, Any] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> FeatureSet:
    """Embed images and write them as a feature file; with labels, base statistics beside it, as NAME_base.npz.

    Images whose vectors are in the cache cost a look at their bytes only. A run that was killed goes on when it is
    started again: the cache gets what is done every two seconds.

    Parameters
    ----------
    images : ImageSet
        What to embed; equal images are embedded once.
    backbone : Backbone
        The network, with the view and the normalisation that it wants. It is moved to ``device``.
    out : path
        The .npz file to write, float16.
    device : str
        A device of torch, or ``"auto"``: CUDA where there is some, else the CPU.
    batch_size : int
        How many images are decoded and held at a time.
    workers : int
        Threads that decode images, while the network works on the batch before.
    on_corrupt : {"refuse", "skip"}
        What becomes of an image that cannot be read: an error that names it, or it is left out and listed in
        ``about["skipped"]``.
    flip : bool
        Whether a vector is the mean over the image and its mirror image.
    cache : path, optional
        Where vectors are kept; ``default_cache()`` if not given.
    about : dict, optional
        What else is known of the images, for the file: ``split``, ``source``, ...
    force : bool
        Whether files that are already there are replaced.
    progress : callable, optional
        See ``Progress``.

    Returns
    -------
    FeatureSet
        What was written.
    """
    target, report = Path(out), progress or _ignore
    _check(images, target, batch_size, workers, on_corrupt, force)
    side = backbone.view.output
    check_memory(f"two batches of {batch_size} images of {side} x {side} pixels", 2 * batch_size * side * side * 3)
    forward = _forward(backbone, choose_device(device), flip)
    recipe = _recipe(backbone, flip)
    told = {"weights": backbone.weights, "versions": _versions()} | recipe
    store = FeatureCache(Path(cache) if cache is not None else default_cache(), recipe, backbone.dim)

    digests = _digests(images, workers, on_corrupt, report)
    vectors = store.get(digest for digest in digests if digest)
    missing = {digest: row for row, digest in enumerate(digests) if digest and digest not in vectors}
    read = partial(read_resized, images, view=backbone.view, workers=workers, on_corrupt=on_corrupt)
    report("embedding", 0, len(missing))
    with ShardWriter(store) as shards:
        for done, (pixels, rows) in enumerate(_read_ahead(read, list(missing.values()), batch_size), start=1):
            made = forward(pixels)
            _check_finite(made, rows, images)
            names = [str(digests[row]) for row in rows]
            vectors |= zip(names, made, strict=True)
            shards.add(names, made)
            report("embedding", min(done * batch_size, len(missing)), len(missing))

    features = _gather(images, digests, vectors, (about or {}) | told)
    statistics = None if features.labels is None else BaseStatistics.of(features.features, features.labels)
    save(features, target, force=force)
    if statistics is not None:
        statistics.save(base_path(target), force=force)
    return features


def base_path(out: Path) -> Path:
    """Where the base statistics of a feature file are written: NAME_base.npz beside NAME.npz."""
    return out.with_name(f"{out.stem}_base.npz")


def choose_device(name: str) -> torch.device:
    """The device of this name, tried; ``"auto"`` is CUDA where there is some, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[:120].rstrip(".")
        raise InputError(f"device={name!r} cannot be used ({reason}). Choose auto, cpu, or cuda on a GPU.") from error
    return device


def _check(images: ImageSet, target: Path, batch_size: int, workers: int, on_corrupt: str, force: bool) -> None:
    """Refuse at the start what would be refused at the end."""
    if len(images) == 0:
        raise InputError(f"{images.name!r} has no images. Choose another set or split.")
    for name, value in (("batch_size", batch_size), ("workers", workers)):
        if value < 1:
            raise InputError(f"{name}={value} must be 1 or more.")
    if on_corrupt not in ("refuse", "skip"):
        raise UnknownNameError("choice for corrupt images", on_corrupt, ("refuse", "skip"))
    if target.suffix != ".npz":
        raise FeatureFileError(f"{target}: features are written as .npz. Name it so; `a2lp convert` makes other kinds.")
    if not target.parent.is_dir():
        raise FeatureFileError(f"{target}: there is no directory {target.parent}. Create it first.")
    try:
        with TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise FeatureFileError(
            f"{target}: nothing can be written into {target.parent} ({error.strerror}). Check its permissions."
        ) from error
    for path in (target, *([] if images.labels is None else [base_path(target)])):
        if path.exists() and not (force and path.is_file()):
            raise FeatureFileError(
                f"{path} exists already. Choose another name, or replace it with --force (in Python: force=True)."
            )


def _recipe(backbone: Backbone, flip: bool) -> dict[str, Any]:
    """Everything beside the image that decides a vector: what the cache is keyed by, and the file tells."""
    return {
        "backbone": backbone.name,
        "options": getattr(backbone.module, "options", {}),
        # of the weights as they are, not of the file that they once came from: they may have been trained since
        "state": f"sha256:{_state_hash(backbone.module)}",
        "view": asdict(backbone.view),
        "mean": list(backbone.mean),
        "std": list(backbone.std),
        "flip": flip,
        "precision": "float32, stored as float16",
        "pipeline": PIPELINE,
    }


def _state_hash(module: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    return {
        "a2lp": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": str(torch.__version__),
        "pillow": PIL.__version__,
    }


def _ignore(what: str, done: int, total: int) -> None:
    """No progress is shown."""


def _digests(images: ImageSet, workers: int, on_corrupt: OnCorrupt, report: Progress) -> list[str | None]:
    """Each image's digest; None for a file that cannot be read, if those are skipped."""

    def digest(row: int) -> str | None:
        try:
            return images.digest(row)
        except CorruptImageError:
            if on_corrupt == "refuse":
                raise
            return None

    found: list[str | None] = []
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(images), 1024):
            report("looking up", start, len(images))
            found += pool.map(digest, range(start, min(start + 1024, len(images))))
    report("looking up", len(images), len(images))
    return found


def _read_ahead(read: Callable[[Sequence[int]], Read], rows: Sequence[int], batch_size: int) -> Iterator[Read]:
    """One batch after the other; while the caller works on one, the next is read."""
    with ThreadPoolExecutor(1) as reader:
        ahead: deque[Future[Read]] = deque()
        for start in range(0, len(rows), batch_size):
            ahead.append(reader.submit(read, rows[start : start + batch_size]))
            if len(ahead) == 2:
                yield ahead.popleft().result()
        for last in ahead:
            yield last.result()


def _forward(backbone: Backbone, device: torch.device, flip: bool) -> Callable[[NDArray], NDArray]:
    """The function from pixels, uint8 (n, h, w, 3), to vectors, float16 (n, d)."""
    module = backbone.module.to(device, memory_format=torch.channels_last).eval()
    mean, std = (255 * torch.tensor(of, device=device).view(1, 3, 1, 1) for of in (backbone.mean, backbone.std))
    if device.type == "cpu":
        # freed at once; from then on glibc keeps blocks up to this size instead of returning their pages
        torch.empty(31 << 20, dtype=torch.uint8)

    def forward(pixels: NDArray) -> NDArray:
        n, height, width, _ = pixels.shape
        step = max(1, CPU_PIXELS // (height * width)) if device.type == "cpu" else max(1, n)
        parts = [torch.empty(0, backbone.dim, device=device)]  # alone where all images of a batch were skipped
        with torch.inference_mode():
            for start in range(0, n, step):
                # (n, 3, h, w) whose memory stays (n, h, w, 3): torch's channels_last, as the network's
                x = torch.from_numpy(pixels[start : start + step]).to(device).permute(0, 3, 1, 2)
                x = (x.float() - mean) / std
                y = module(x)
                parts.append((y + module(x.flip(-1))) / 2 if flip else y)
            made: NDArray = torch.cat(parts).half().cpu().numpy()
        return made

    return forward


def _check_finite(vectors: NDArray, rows: NDArray, images: ImageSet) -> None:
    wrong = ~np.isfinite(vectors).all(axis=1)
    if wrong.any():
        raise InputError(
            f"the network's output for {images.files[rows[int(np.argmax(wrong))]]} is not finite in float16 (at most "
            "65504). Look at the weights: they may be damaged, or belong to another network."
        )


def _gather(
    images: ImageSet, digests: Sequence[str | None], vectors: Mapping[str, NDArray], about: dict[str, Any]
) -> FeatureSet:
    """The vectors in the order of the images; those that were skipped are listed in ``about``."""
    rows = [row for row, digest in enumerate(digests) if digest in vectors]
    skipped = [images.files[row] for row, digest in enumerate(digests) if digest not in vectors]
    if not rows:
        raise InputError(f"none of the {len(images)} images of {images.name!r} can be read, such as {skipped[0]}.")
    return FeatureSet(
        np.stack([vectors[str(digests[row])] for row in rows]),
        labels=None if images.labels is None else images.labels[rows],
        classes=images.classes,
        files=tuple(images.files[row] for row in rows),
        name=images.name,
        about=about | {"images": len(rows), "skipped": skipped},
    )
