"""Points and their graph, computed once and kept in the project's cache as .npy files, which processes memory-map."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy import sparse

from a2lp._version import __version__
from a2lp.arrays import NDArray
from a2lp.errors import A2LPError
from a2lp.files import read_json, replacing, write_text, writing
from a2lp.labelling.sources import Embedding, Points, Progress, embed_points, find_points
from a2lp.pool.graph import PoolGraph

_FORMAT = 1  # increase it when the same source gives other arrays
_ARRAYS = ("points", "indptr", "indices", "data")
_ABOUT = "prepared.json"


@dataclass(frozen=True)
class Spec:
    """What is labelled, in a form that another process can be given.

    Attributes
    ----------
    source : str
        As in ``a2lp.labelling.sources.find_points``.
    keys : tuple of str
    paths : tuple of str or None
        Images; None for vectors.
    how : Embedding
    folder : Path
        The cache.
    """

    source: str
    keys: tuple[str, ...]
    paths: tuple[str, ...] | None
    how: Embedding
    folder: Path

    def signature(self) -> str:
        """A hash of everything that decides the vectors: files by name, size and time of their last change."""
        digest = hashlib.sha256(f"{_FORMAT} {__version__} {Path(self.source).name}".encode())
        how = {name: str(value) for name, value in asdict(self.how).items() if name not in ("cache", "device")}
        digest.update(json.dumps(how, sort_keys=True).encode())
        weights = [] if self.how.weights is None else [str(self.how.weights)]
        for key in self.keys:
            digest.update(key.encode(errors="surrogateescape") + b"\0")
        for path in [*weights, *(self.paths or (self.source,))]:
            try:
                status = Path(path).stat()
                digest.update(f"{status.st_size} {status.st_mtime_ns}\n".encode())
            except OSError:  # a bundled set, or an image that cannot be read
                digest.update(b"-\n")
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Prepared:
    """Points that can be labelled.

    Attributes
    ----------
    keys : tuple of str
        Those of the images that could be read.
    skipped : dict of str to str
        The others, and why.
    points : array (n, r)
        Whitened unit vectors, mapped from the disk.
    graph : PoolGraph
        Mapped from the disk, too.
    """

    keys: Sequence[str]
    skipped: dict[str, str]
    points: NDArray
    graph: PoolGraph


def prepare(spec: Spec, progress: Progress) -> Prepared:
    """The points and their graph, from the cache if the source is unchanged."""
    if (known := load(spec)) is not None:
        return known
    from a2lp.pool.prepare import whitened_graph

    points = find_points(spec.source) if spec.paths is None else Points(spec.keys, tuple(map(Path, spec.paths)))
    points = embed_points(points, spec.how, progress)
    assert points.features is not None
    _, vectors, graph = whitened_graph(points.features, partial(progress, "finding neighbours"))
    arrays = dict(zip(_ARRAYS, (vectors, graph.weights.indptr, graph.weights.indices, graph.weights.data), strict=True))
    (spec.folder / _ABOUT).unlink(missing_ok=True)  # first: arrays of two sources must never be mixed
    for name, array in arrays.items():
        path = spec.folder / f"{name}.npy"
        with writing(path), replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, array)
    (spec.folder / "map.npy").unlink(missing_ok=True)
    about = {"signature": spec.signature(), "keys": list(points.keys), "skipped": dict(points.skipped)}
    write_text(spec.folder / _ABOUT, json.dumps(about))
    found = load(spec)
    assert found is not None
    return found


def load(spec: Spec) -> Prepared | None:
    """What the cache holds; None if it belongs to another source."""
    try:
        about = read_json(spec.folder / _ABOUT, "the project's cache")
        if about["signature"] != spec.signature():
            return None
        arrays = {name: np.load(spec.folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
        n = len(about["keys"])
        if len(arrays["points"]) != n:
            return None
        weights = sparse.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(n, n))
    except (A2LPError, OSError, ValueError, KeyError, TypeError):  # not there yet, or damaged
        return None
    return Prepared(about["keys"], about["skipped"], arrays["points"], PoolGraph(weights))
