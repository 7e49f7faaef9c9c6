"""Embed more images than fit into memory: in parts, each written to disk when it is done.

A part is one task of a cluster. Its images are listed in a file of the plan, so that no worker lists a folder of
millions; a part that is there is never made again. ``a2lp.features.parts`` has the format of the folder.
"""

from __future__ import annotations

import hashlib
import json
import platform
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from a2lp._version import __version__
from a2lp.arrays import NDArray
from a2lp.checks import require_name, require_whole
from a2lp.errors import ClusterError, CorruptImageError, InputError
from a2lp.features.parquet_files import arrow
from a2lp.features.parts import PLAN, has_part, part_path, read_plan, skipped_images, write_part
from a2lp.files import exists, reading, replacing, write_text, writing
from a2lp.images.backbones import Backbone, create
from a2lp.images.datasets import ImageSet, Source, load
from a2lp.images.datasets.decode import Pixels
from a2lp.images.datasets.shards import Shards
from a2lp.images.datasets.sources import Files, Rows
from a2lp.images.embed import _recipe, embed_images
from a2lp.scale import Cluster, check_seen

Progress = Callable[[str, int, int], None]
"""Called with the step, the images done, and their total."""

PART_SIZE = 1000
_IMAGES = ("source", "split", "dataset")


def embed_parts(
    source: str | Path,
    out: str | Path,
    *,
    backbone: str = "efficientnet_lite0",
    weights: str | Path | None = None,
    view: str | None = None,
    normalise: str | None = None,
    split: str | None = None,
    dataset: str | None = None,
    flip: bool = True,
    on_corrupt: str = "refuse",
    part_size: int = PART_SIZE,
    device: str = "auto",
    batch_size: int = 64,
    workers: int | None = None,
    progress: Progress | None = None,
    cluster: Cluster | None = None,
) -> dict[str, str]:
    """Embed images into a folder of parts; finished parts are not computed again.

    Parameters
    ----------
    source, split, dataset
        As in ``a2lp.images.datasets.load``.
    out : path
        The folder.
    backbone, weights, view, normalise, flip, on_corrupt, device, batch_size, workers
        As in ``backbones.create`` and ``embed_images``.
    part_size : int
        Images per part; a killed process loses at most one part.
    progress : callable, optional
        See ``Progress``; a cluster has its own.
    cluster : Cluster, optional
        Makes the parts on its workers, which must see the images and the folder under the same names.

    Returns
    -------
    dict of str to str
        The images that were skipped, each with the reason.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> import a2lp
    >>> from a2lp.images.parts import embed_parts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for kind in ("red", "blue"):
    ...         (Path(folder) / "photos" / kind).mkdir(parents=True)
    ...         Image.new("RGB", (64, 64), kind).save(Path(folder) / "photos" / kind / "a.png")
    ...     skipped = embed_parts(Path(folder) / "photos", Path(folder) / "parts")
    ...     found = a2lp.load(Path(folder) / "parts").features.shape
    >>> found, skipped
    ((2, 1280), {})
    """
    require_whole("part_size", part_size, 1, "1000 is usual.")
    require_name("choice for corrupt images", on_corrupt, ("refuse", "skip"))
    folder = Path(out).resolve()
    network = {"backbone": backbone, "weights": None if weights is None else str(Path(weights).resolve())}
    network |= {"view": view, "normalise": normalise}
    where = {"source": str(Path(source).resolve()), "split": split, "dataset": dataset}
    plan = _prepare(folder, where | network | {"flip": flip, "on_corrupt": on_corrupt, "part_size": part_size})
    sizes = {n: min(part_size, plan["n_images"] - n * part_size) for n in range(plan["n_parts"])}
    missing = [number for number in sizes if not has_part(folder, number)]
    how = (device, batch_size, workers or 0)
    if cluster is not None and missing:
        with cluster.work(sum(sizes[number] for number in missing)) as work:
            for number in missing:
                work.add(f"part {number}", make_part, str(folder), number, *how, size=sizes[number])
            for outcome in work:
                if outcome.error is not None:
                    raise outcome.error
    elif missing:
        done, report = plan["n_images"] - sum(sizes[number] for number in missing), progress or (lambda *_: None)
        for number in missing:

            def forward(step: str, count: int, total: int, before: int = done) -> None:
                if step == "embedding":
                    report("embedding parts", before + count, plan["n_images"])

            make_part(str(folder), number, *how, progress=forward)
            done += sizes[number]
    return skipped_images(folder)


def make_part(
    out: str, number: int, device: str, batch_size: int, workers: int, *, progress: Progress | None = None
) -> None:
    """Embed the images of a part and write it, unless it is there; 0 ``workers`` are one for each core."""
    folder = Path(out)
    check_seen(folder / PLAN)
    if has_part(folder, number):
        return
    plan = read_plan(folder)
    images, labels = _listed(folder, plan, number)
    watched = _Watched(images.source)
    options: dict[str, Any] = {"on_corrupt": plan["on_corrupt"], "flip": plan["flip"], "progress": progress}
    try:
        made = embed_images(
            ImageSet(images.name, None, None, images.files, watched),
            _network(out),
            device=device,
            batch_size=batch_size,
            workers=workers or None,
            cache=False,
            **options,
        )
        vectors, names, skipped = made.features, made.files or (), made.about["skipped"]
    except InputError:
        reasons = [watched.reason(row) for row in range(len(images))]
        if None in reasons:
            raise
        vectors, names = np.empty((0, plan["dim"]), np.float16), ()  # all were skipped
        skipped = dict(zip(images.files, reasons, strict=True))
    row_of = {name: row for row, name in enumerate(images.files)}
    rows = [row_of[name] for name in names]
    kept = None if labels is None else [int(labels[row]) for row in rows]
    write_part(folder, number, vectors, names, [watched.digests[row] for row in rows], kept, skipped)


@dataclass(eq=False)
class _Watched:
    """A source that remembers digests, and why images could not be read."""

    source: Source
    digests: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)

    def image(self, row: int) -> Pixels:
        """The image of the source."""
        try:
            return self.source.image(row)
        except CorruptImageError as error:
            self.failed[row] = error.reason
            raise

    def digest(self, row: int) -> str:
        """The digest of the source."""
        try:
            self.digests[row] = self.source.digest(row)
        except CorruptImageError as error:
            self.failed[row] = error.reason
            raise
        return self.digests[row]

    def reason(self, row: int) -> str | None:
        """Why an image, or the copy of it that was decoded, could not be read; None if it could."""
        same = [other for other in self.failed if other == row or self.digests.get(other, "") == self.digests.get(row)]
        return self.failed[same[0]] if same else None


@lru_cache(maxsize=1)
def _network(out: str) -> Backbone:
    """The network of a plan, with the same weights as where the plan was made."""
    plan = read_plan(Path(out))
    network = create(plan["backbone"], plan["weights"], view=plan["view"], normalisation=plan["normalise"])
    if json.loads(json.dumps(_recipe(network, plan["flip"]))) != plan["recipe"]:
        raise ClusterError(
            f"the network {plan['backbone']} is another on {socket.gethostname()} than in {out}: its weights, its view "
            "or the version of a package differ. Make them the same."
        )
    return network


# ---- the plan -----------------------------------------------------------------------------------------------------


def _prepare(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Write the plan, or compare it with the one that is there; return it."""
    arrow("parts")  # before anything is computed
    if exists(folder) and not exists(folder / PLAN) and not _is_ours(folder):
        raise InputError(f"{folder} exists and holds no parts. Name a new folder, or one of an earlier run.")
    network = create(asked["backbone"], asked["weights"], view=asked["view"], normalisation=asked["normalise"])
    images = load(asked["source"], asked["split"], dataset=asked["dataset"])
    plan = asked | {
        "n_images": len(images),
        "n_parts": -(-len(images) // asked["part_size"]),
        "dim": network.dim,
        "classes": None if images.classes is None else list(images.classes),
        "listing": _fingerprint(images),
        "recipe": _recipe(network, asked["flip"]),
    }
    if exists(folder / PLAN):
        old = read_plan(folder)
        changed = [name for name, value in plan.items() if old.get(name) != json.loads(json.dumps(value))]
        if changed:
            raise InputError(
                f"{folder} holds parts of another run; it differs in {', '.join(changed)}. Name another folder, or "
                "repeat the command that began it."
            )
        return old
    with writing(folder):
        (folder / "plan").mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(_slices(len(images), asked["part_size"])):
        _write_listing(folder, number, images, rows)
    versions = {"a2lp": __version__, "python": platform.python_version(), "numpy": np.__version__}
    write_text(folder / PLAN, json.dumps(plan | _kind(images) | {"versions": versions}, indent=1) + "\n")
    return read_plan(folder)


def _is_ours(folder: Path) -> bool:
    """Whether a folder is empty, or holds only what a run wrote before it was killed, without a plan."""
    return folder.is_dir() and all(path.name == "plan" for path in folder.iterdir())


def _slices(n: int, size: int) -> Iterator[NDArray]:
    return (np.arange(start, min(start + size, n)) for start in range(0, n, size))


def _fingerprint(images: ImageSet) -> str:
    digest = hashlib.sha256()
    for name in images.files:
        digest.update(name.encode() + b"\0")
    if images.labels is not None:
        digest.update(images.labels.tobytes())
    return digest.hexdigest()


def _only(images: ImageSet) -> tuple[Source, NDArray] | None:
    """The one source of a set and the rows in it; None for sets of several."""
    if not isinstance(images.source, Rows) or len(images.source.sources) > 1:
        return None
    return images.source.sources[0], images.source.inner


def _kind(images: ImageSet) -> dict[str, Any]:
    """How workers find the images: as files, inside shards, or by reading the whole set as the command did."""
    source = (_only(images) or (None,))[0]
    if isinstance(source, Files):
        return {"kind": "files", "root": str(source.root.resolve())}
    return {"kind": "shards"} if isinstance(source, Shards) else {"kind": "rows"}


def _write_listing(folder: Path, number: int, images: ImageSet, rows: NDArray) -> None:
    pyarrow = arrow("parts")
    columns: dict[str, Any] = {"name": [images.files[row] for row in rows.tolist()], "row": rows}
    source, inner = _only(images) or (None, rows)
    if isinstance(source, Files):
        columns["file"] = [source.files[row] for row in inner[rows].tolist()]
    elif isinstance(source, Shards):
        at = inner[rows]
        columns["file"] = [str(source.paths[shard].resolve()) for shard in source.which[at].tolist()]
        columns |= {"start": source.start[at], "size": source.size[at]}
    if images.labels is not None:
        columns["label"] = images.labels[rows]
    with writing(folder), replacing(part_path(folder / "plan", number, ".parquet")) as temporary:
        pyarrow.parquet.write_table(pyarrow.table(columns), temporary)


def _listed(folder: Path, plan: dict[str, Any], number: int) -> tuple[ImageSet, NDArray | None]:
    """The images of a part, and their labels."""
    path = part_path(folder / "plan", number, ".parquet")
    check_seen(path)
    with reading(path, "the list of a part's images (.parquet)"):
        table = arrow("parts").parquet.read_table(path)
        names = tuple(table["name"].to_pylist())
        labels = table["label"].to_numpy() if "label" in table.column_names else None
        if plan["kind"] == "rows":
            return _whole(*(plan[name] for name in _IMAGES)).select(table["row"].to_numpy()), labels
        files = table["file"].to_pylist()
        source: Source = Files(Path(plan.get("root", "")), files)
        if plan["kind"] == "shards":
            shards = list(dict.fromkeys(files))
            which = np.array([shards.index(file) for file in files])
            start, size = table["start"].to_numpy(), table["size"].to_numpy()
            source = Shards([Path(shard) for shard in shards], which, start, size, names)
    return ImageSet("part", None, None, names, source), labels


@lru_cache(maxsize=1)
def _whole(source: str, split: str | None, dataset: str | None) -> ImageSet:
    return load(source, split, dataset=dataset)
