"""What is to be labelled: a folder of images, a list of their paths, a feature file, or a folder of parts.

``find_points`` names the points and computes nothing, so that labels can be checked before the minutes that embedding
takes; ``embed_points`` adds the vectors. ``open_source`` does both.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from a2lp.arrays import NDArray
from a2lp.checks import listed, shown
from a2lp.errors import InputError, did_you_mean
from a2lp.features import load
from a2lp.features.bundled import BUNDLED
from a2lp.features.files import FORMATS
from a2lp.features.parts import is_parts
from a2lp.files import exists

Progress = Callable[[str, int, int], None]
"""Called with the step, the amount done, and the total."""

STDIN = "-"


@dataclass(frozen=True, eq=False, repr=False)
class Points:
    """The points of a source.

    Attributes
    ----------
    keys : tuple of str
        The points' names, all different: the path under the folder, the path as it was listed, the name that the
        feature file has for the row, or the row's number.
    paths : tuple of Path or None
        The images; None for a feature file.
    features : array (n, d) or None
        The vectors; None for images that are not embedded yet.
    skipped : dict of str to str
        Images that could not be read and were left out, by key, and why.
    classes : tuple of str or None
        The names of classes that a feature file has vectors of.
    text : array (c, d) or None
        The vectors of these names.
    """

    keys: tuple[str, ...]
    paths: tuple[Path, ...] | None = None
    features: NDArray | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None
    text: NDArray | None = None

    def __post_init__(self) -> None:
        repeated = [key for key, count in Counter(self.keys).items() if count > 1]
        if repeated:
            raise InputError(
                f"the source has several points of the same name: {listed(repeated, 5)}. Points are identified by "
                "their names; rename these, or leave out all but one of each."
            )

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        what = "points" if self.paths is None else "images"
        vectors = "no vectors yet" if self.features is None else f"{self.features.shape[1]} dimensions"
        skipped = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"Points({len(self)} {what}, {vectors}{skipped})"


@dataclass(frozen=True)
class Embedding:
    """How images become vectors; see ``a2lp.images``.

    Attributes
    ----------
    backbone : str
        The network; the default one comes with weights.
    weights : Path or None
        The network's weights.
    view : str or None
        What the network sees, ``RESIZE/CROP``; None for its own.
    device : str
        ``"auto"`` is CUDA if available, else the CPU, where ``efficientnet_lite0`` and ``onnx:FILE`` always are.
    on_corrupt : {"skip", "refuse"}
        What to do with images that cannot be read.
    cache : Path or None
        Where vectors are kept, so that no image is embedded twice.
    flip : bool
        Whether a vector is the mean over the image and its mirror image: twice the time, and better labels.
    normalise : str or None
        ``imagenet``, ``clip``, ``half``, ``none``, or ``R,G,B/R,G,B``: how pixels are normalised; None for the
        network's own.
    prompts : tuple of str
        Texts with ``{}`` in the place of a class's name, for backbones that embed names; empty for
        ``a2lp.images.text.PROMPTS``.

    Examples
    --------
    >>> from a2lp.labelling import Embedding
    >>> Embedding(view="224/224", flip=False).backbone
    'efficientnet_lite0'
    """

    backbone: str = "efficientnet_lite0"
    weights: Path | None = None
    view: str | None = None
    device: str = "auto"
    on_corrupt: str = "skip"
    cache: Path | None = None
    flip: bool = True
    normalise: str | None = None
    prompts: tuple[str, ...] = ()


def open_source(source: str | Path, how: Embedding | None = None, progress: Progress | None = None) -> Points:
    """The points of a source and their vectors.

    Parameters
    ----------
    source : str or Path
        A folder of images, a feature file or the name of a bundled set, a folder of parts that ``a2lp embed`` wrote, or
        ``"-"`` for paths on standard input.
    how : Embedding, optional
        For images.
    progress : callable, optional
        Called with the number of images embedded.
    """
    return embed_points(find_points(source), how or Embedding(), progress)


def find_points(source: str | Path) -> Points:
    """The points of a source; images are listed, not read."""
    if str(source) == STDIN:
        return listed_images(_lines(sys.stdin.read()))
    if str(source) == "":  # an unset variable of a shell; as a path it would be the current folder
        raise InputError("the source is empty text; expected a folder of images or a feature file. Name one.")
    path = Path(source)
    if path.is_dir() and not is_parts(path):
        return _folder(path)
    if not exists(path) and str(source) not in BUNDLED and path.suffix.lower() not in FORMATS:
        raise InputError(
            f"there is no folder {shown(str(source))} here ({Path.cwd()}). {did_you_mean(str(source), BUNDLED)}Give a "
            f"folder of images, a feature file ({', '.join(FORMATS)}), or - for paths on standard input."
        )
    found = load(source)
    keys = found.files or tuple(map(str, range(len(found))))
    return Points(keys, features=found.features, classes=found.classes, text=found.text)


def listed_images(files: Iterable[str]) -> Points:
    """Images by their paths, which are their keys."""
    keys = tuple(files)
    if not keys:
        raise InputError("standard input lists no paths. Send one path a line, such as: ls *.jpg | a2lp classify - ...")
    missing = [key for key in keys if not Path(key).is_file()]
    if missing:
        raise InputError(
            f"{len(missing)} of the {len(keys)} listed paths are no files: {listed(missing, 5)}. List paths relative "
            f"to {Path.cwd()}, one a line."
        )
    return Points(keys, tuple(map(Path, keys)))


def embed_points(points: Points, how: Embedding, progress: Progress | None = None) -> Points:
    """The points with their vectors, from the backbone and its cache, without images that were skipped."""
    if points.paths is None:
        return points
    from a2lp.images.backbones import create
    from a2lp.images.datasets import ImageSet
    from a2lp.images.datasets.sources import Files
    from a2lp.images.embed import embed_images

    network = create(how.backbone, how.weights, view=how.view, normalisation=how.normalise, device=how.device)
    images = ImageSet("images", None, None, points.keys, Files(Path(), [str(path) for path in points.paths]))
    made = embed_images(
        images,
        network,
        device=how.device,
        on_corrupt=how.on_corrupt,  # type: ignore[arg-type]  # checked there
        flip=how.flip,
        cache=how.cache,
        progress=progress,
    )
    path_of = dict(zip(points.keys, points.paths, strict=True))
    keys = made.files or ()
    paths = tuple(path_of[key] for key in keys)
    return replace(points, keys=keys, paths=paths, features=made.features, skipped=made.about["skipped"])


def _folder(root: Path) -> Points:
    from a2lp.images.datasets.decode import EXTENSIONS
    from a2lp.images.datasets.folders import image_files

    listing = image_files(root, root)
    listing.warn_of_unread(root)
    if not listing.images:
        inside = sorted(path for path in root.iterdir() if path.suffix.lower() in FORMATS)
        hint = f"For the feature file in it, give {inside[0]}." if inside else "Give the folder that holds them."
        raise InputError(
            f"{root} has {listing.others.total()} files and no image ({', '.join(sorted(EXTENSIONS))}). {hint}"
        )
    return Points(tuple(listing.images), tuple(root / file for file in listing.images))


def _lines(text: str) -> Sequence[str]:
    """Paths, one per line, or separated by NUL as ``find -print0`` writes them."""
    return [line for line in (text.split("\0") if "\0" in text else text.splitlines()) if line.strip()]
