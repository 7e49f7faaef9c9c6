"""Vectors that were computed before, on disk: a folder for each way of computing them, shards of vectors inside.

A vector is found by what decides its numbers: the digest of the image, and the recipe (backbone, weights, view, ...)
whose hash names the folder. Shards are written once, under a temporary name that is then renamed, and never changed;
so a kill at any moment leaves whole shards, and several programs may write beside each other. Deleting a shard, a
folder or the whole cache is safe: it costs the time to compute the vectors again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.errors import A2LPWarning, InputError
from a2lp.features.common import replacing

NDArray = np.ndarray[Any, Any]

# Work that a kill can cost, beside the batch in flight; shorter, and a large set would leave thousands of shards.
SHARD_SECONDS = 2.0


def default_cache() -> Path:
    """The folder that ``A2LP_CACHE`` names, else ``a2lp`` where this system keeps caches."""
    chosen = os.environ.get("A2LP_CACHE")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "a2lp" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "a2lp"
    of_user = os.environ.get("XDG_CACHE_HOME")
    return (Path(of_user) if of_user else Path.home() / ".cache") / "a2lp"


class FeatureCache:
    """The vectors of one recipe.

    Parameters
    ----------
    root : Path
        The cache; the recipe's folder is made in ``root/features``.
    recipe : mapping
        Everything beside the image that decides a vector, as JSON can hold it.
    dim : int
        Length of a vector.
    """

    def __init__(self, root: Path, recipe: Mapping[str, Any], dim: int) -> None:
        text = json.dumps(recipe, sort_keys=True, allow_nan=False)
        self.folder = root / "features" / hashlib.sha256(text.encode()).hexdigest()[:32]
        self.dim = dim
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self.folder / "recipe.json") as temporary:  # for people who look into the folder
                temporary.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise self._unwritable(error) from error

    def get(self, digests: Iterable[str]) -> dict[str, NDArray]:
        """The vectors that are there, by digest; a damaged shard is named in a warning and counts as absent."""
        wanted = set(digests)
        found: dict[str, NDArray] = {}
        for shard in sorted(self.folder.glob("*.npz")):
            try:
                found |= self._read(shard, wanted)
            except Exception as error:  # zipfile's, zlib's, struct's, ...: whatever the damage leads to
                warnings.warn(
                    f"{shard} in the cache cannot be read ({type(error).__name__}: {error}); its images are embedded "
                    "again. Delete it, and this note will not come back.",
                    A2LPWarning,
                    stacklevel=2,
                )
        return found

    def put(self, digests: Sequence[str], vectors: NDArray) -> None:
        """Add a shard."""
        names = np.array(digests, dtype=np.bytes_)
        name = hashlib.sha256(names.tobytes() + vectors.tobytes()).hexdigest()[:32]
        try:
            with replacing(self.folder / f"{name}.npz") as temporary, temporary.open("wb") as file:
                np.savez(file, digests=names, vectors=vectors)
        except OSError as error:
            raise self._unwritable(error) from error

    def _read(self, shard: Path, wanted: set[str]) -> dict[str, NDArray]:
        with shard.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            digests: list[str] = archive["digests"].astype(str).tolist()
            rows = [row for row, digest in enumerate(digests) if digest in wanted]
            if not rows:
                return {}
            vectors = archive["vectors"]
        if vectors.shape != (len(digests), self.dim) or vectors.dtype != np.float16:
            raise ValueError(f"{vectors.shape} {vectors.dtype} for {len(digests)} vectors of {self.dim} dimensions")
        # indexing copies: the rest of the shard is not kept in memory
        return dict(zip((digests[row] for row in rows), vectors[rows], strict=True))

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(
            f"the cache {self.folder} cannot be written ({error.strerror}); embedded images are kept there. Choose "
            "another folder with --cache DIR or the environment variable A2LP_CACHE."
        )


class ShardWriter:
    """Collects vectors and puts them into a cache every few seconds, and at the end, whatever brings it about."""

    def __init__(self, cache: FeatureCache) -> None:
        self._cache = cache
        self._digests: list[str] = []
        self._vectors: list[NDArray] = []
        self._written = time.monotonic()

    def add(self, digests: Sequence[str], vectors: NDArray) -> None:
        """Take the vectors of a batch."""
        self._digests += digests
        self._vectors.append(vectors)
        if time.monotonic() - self._written >= SHARD_SECONDS:
            self._write()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *raised: object) -> None:
        self._write()

    def _write(self) -> None:
        if self._digests:
            self._cache.put(self._digests, np.concatenate(self._vectors))
        self._digests, self._vectors, self._written = [], [], time.monotonic()
