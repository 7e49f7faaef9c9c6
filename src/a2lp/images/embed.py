"""From images to feature vectors, with a cache: an interrupted run continues where it stopped."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

import numpy as np
import PIL

from a2lp import cores
from a2lp._version import __version__
from a2lp.checks import require_name, require_whole
from a2lp.errors import CorruptImageError, FeatureFileError, InputError
from a2lp.features import FeatureSet, save
from a2lp.features.statistics import BaseStatistics, base_path
from a2lp.files import cache_folder, check_target, exists, writing
from a2lp.images.backbones.backbone import Backbone
from a2lp.images.cache import FeatureCache
from a2lp.images.datasets import ImageSet
from a2lp.images.datasets.image_set import OnCorrupt, check_memory
from a2lp.images.forward import embed_rows

NDArray = np.ndarray[Any, Any]
Progress = Callable[[str, int, int], None]
"""Called with the step (``"looking up"`` or ``"embedding"``), the images done, and their total."""

# Increase it when the same image, backbone and view give other vectors, so that old caches are not used.
PIPELINE = 1


def embed_images(
    images: ImageSet,
    backbone: Backbone,
    *,
    device: str = "auto",
    batch_size: int = 64,
    workers: int | None = None,
    on_corrupt: OnCorrupt = "refuse",
    flip: bool = True,
    cache: str | Path | Literal[False] | None = None,
    about: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> FeatureSet:
    """Compute the vectors of images with a backbone.

    Vectors are saved to a cache every two seconds, and images whose vectors are in it are not embedded again: a run
    that was killed continues when it is started again.

    Parameters
    ----------
    images : ImageSet
        The images; equal ones are embedded once.
    backbone : Backbone
        The network, with its view and normalisation. One of torch is moved to ``device``.
    device : str
        ``"auto"``, ``"cpu"``, or for a network of torch any of its devices; ``"auto"`` is then CUDA if available.
    batch_size : int
        The number of images that are decoded and held at a time.
    workers : int, optional
        Threads; one for each core if not given. On a CPU, each decodes images and runs the network on one core. On
        other devices, they decode images while the network works on the previous batch.
    on_corrupt : {"refuse", "skip"}
        Whether an image that cannot be read raises an error, or is left out: ``about["skipped"]`` has the reasons.
    flip : bool
        Whether a vector is the mean over the image and its mirror image: twice the time, and better features.
    cache : path, optional
        The folder of the cache; ``cache_folder()`` if not given. False for none: a run that is killed starts again.
    about : dict, optional
        Further entries of the set's ``about``: ``split``, ``source``, ...
    progress : callable, optional
        See ``Progress``.

    Returns
    -------
    FeatureSet
        float16; ``about`` has everything that determines the vectors, ``flip`` included.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from a2lp.images import View, backbones, datasets
    >>> from a2lp.images.embed import embed_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("RGB", (80, 60), "red").save(f"{folder}/1.png")
    ...     network = backbones.create("efficientnet_lite0", view=View(64, 64))
    ...     embed_images(datasets.load(folder), network, cache=f"{folder}/cache").features.shape
    (1, 1280)
    """
    report = progress or (lambda step, done, total: None)
    if len(images) == 0:
        raise InputError(f"{images.name!r} has no images. Choose another set or split.")
    require_whole("batch_size", batch_size, 1, "64 is usual.")
    workers = cores.count() if workers is None else workers
    require_whole("workers", workers, 1, "It is the number of threads.")
    require_name("choice for corrupt images", on_corrupt, ("refuse", "skip"))
    side = backbone.view.output
    check_memory(f"two batches of {batch_size} images of {side} x {side} pixels", 2 * batch_size * side * side * 3)
    runner = backbone.on(device)
    recipe = _recipe(backbone, flip)
    store = None if cache is False else FeatureCache(Path(cache or cache_folder()), recipe, backbone.dim)

    skipped: dict[int, str] = {}
    digests = _digests(images, workers, on_corrupt, report, skipped)
    vectors = {} if store is None else store.get(digest for digest in digests if digest)
    missing = {digest: row for row, digest in enumerate(digests) if digest and digest not in vectors}
    read = partial(images.read, view=backbone.view, on_corrupt=on_corrupt, skipped=skipped)
    rows = list(missing.values())
    found = embed_rows(read, rows, backbone, runner, flip=flip, batch_size=batch_size, workers=workers)
    report("embedding", 0, len(missing))
    done = -len(skipped)  # files that could not even be hashed are not among the missing ones
    try:
        with closing(found):
            for new, kept in found:
                _check_finite(new, kept, images)
                names = [str(digests[row]) for row in kept]
                vectors |= zip(names, new, strict=True)
                if store is not None:
                    store.add(names, new)
                done += len(kept)
                report("embedding", done + len(skipped), len(missing))
    finally:
        if store is not None:
            store.flush()
    versions = {"a2lp": __version__, "python": platform.python_version(), "numpy": np.__version__}
    versions |= backbone.versions | {"pillow": PIL.__version__}
    origin = {"weights": backbone.weights, "versions": versions} | recipe
    skipped |= {  # copies of an image that cannot be read
        row: skipped[missing[digest]] for row, digest in enumerate(digests) if digest and digest not in vectors
    }
    reasons = {images.files[row]: skipped[row] for row in sorted(skipped)}
    return _gather(images, digests, vectors, (about or {}) | origin | {"skipped": reasons})


def embed(images: ImageSet, backbone: Backbone, out: str | Path, *, force: bool = False, **options: Any) -> FeatureSet:
    """Embed images and write a feature file; with labels, also write base statistics, ``NAME_base.npz``.

    Parameters
    ----------
    images, backbone, **options
        As in ``embed_images``.
    out : path
        The .npz file to write.
    force : bool
        Whether existing files are replaced.

    Returns
    -------
    FeatureSet

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from a2lp.images import View, backbones, datasets
    >>> from a2lp.images.embed import embed
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("RGB", (80, 60), "red").save(f"{folder}/1.png")
    ...     network = backbones.create("efficientnet_lite0", view=View(64, 64))
    ...     embed(datasets.load(folder), network, f"{folder}/out.npz", cache=f"{folder}/cache").files
    ('1.png',)
    """
    out, base = Path(out), base_path(Path(out))
    check_targets(out, labels=images.labels is not None, dim=backbone.dim, force=force)
    features = embed_images(images, backbone, **options)
    if features.labels is not None:
        statistics = BaseStatistics.of(features.features, features.labels)
        statistics.save(base, force=force or _holds(base, statistics.same))
    # last: a kill before this leaves nothing that the same command would refuse to replace
    save(features, out, force=force)
    return features


def check_targets(out: Path, *, labels: bool, dim: int | None = None, force: bool = False) -> None:
    """Refuse files before embedding that could not be written after it."""
    check_target(out, (".npz",), "a file of features (`a2lp convert` makes other kinds)", force=force)
    with writing(out), TemporaryFile(dir=out.parent):
        pass
    # statistics of an interrupted run are accepted here, and compared with the new ones at the end
    if labels and not _holds(base_path(out), lambda found: dim in (None, len(found.mean))):
        check_target(base_path(out), (), "a file of statistics", force=force)


def _holds(path: Path, condition: Callable[[BaseStatistics], bool]) -> bool:
    """Whether a file has statistics that meet a condition."""
    try:
        return exists(path) and condition(BaseStatistics.load(path))
    except FeatureFileError:
        return False


def _recipe(backbone: Backbone, flip: bool) -> dict[str, Any]:
    """Everything beside the image that determines a vector: the key of the cache, and a part of ``about``."""
    return {
        "backbone": backbone.name,
        "options": backbone.options,
        "state": backbone.state(),
        "view": asdict(backbone.view),
        "mean": list(backbone.mean),
        "std": list(backbone.std),
        "flip": flip,
        "precision": "float32, stored as float16",
        "pipeline": PIPELINE,
    }


def _digests(
    images: ImageSet, workers: int, on_corrupt: OnCorrupt, report: Progress, skipped: dict[int, str]
) -> list[str | None]:
    """The digest of each image; None for a file that cannot be read, if those are skipped."""

    def digest(row: int) -> str | None:
        try:
            return images.digest(row)
        except CorruptImageError as error:
            if on_corrupt == "refuse":
                raise
            skipped[row] = error.reason
            return None

    found: list[str | None] = []
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(images), 1024):
            report("looking up", start, len(images))
            found += pool.map(digest, range(start, min(start + 1024, len(images))))
    report("looking up", len(images), len(images))
    return found


def _check_finite(vectors: NDArray, rows: NDArray, images: ImageSet) -> None:
    wrong = ~np.isfinite(vectors).all(axis=1)
    if wrong.any():
        raise InputError(
            f"the network's output for {images.files[rows[int(np.argmax(wrong))]]} is not finite in float16 (at most "
            "65504). Check the weights: they may be damaged, or belong to another network."
        )


def _gather(
    images: ImageSet, digests: Sequence[str | None], vectors: Mapping[str, NDArray], about: dict[str, Any]
) -> FeatureSet:
    """The vectors in the order of the images, without those that were skipped."""
    rows = [row for row, digest in enumerate(digests) if digest in vectors]
    if not rows:
        first, reason = next(iter(about["skipped"].items()))
        raise InputError(f"none of the {len(images)} images can be read, such as {first}: {reason}.")
    features = np.stack([vectors[str(digests[row])] for row in rows])
    labels = None if images.labels is None else images.labels[rows]
    files = tuple(images.files[row] for row in rows)
    about |= {"images": len(rows)}
    return FeatureSet(features, labels, classes=images.classes, files=files, name=images.name, about=about)
