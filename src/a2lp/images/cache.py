"""A cache of vectors on disk: a folder for each recipe (backbone, weights, view, ...), with shards of vectors inside.

Shards are renamed into place and never changed, so a killed process leaves complete shards only, and several programs
may write at once. Any part of the cache may be deleted at any time: its vectors are then computed again.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from a2lp import npz
from a2lp.arrays import NDArray
from a2lp.errors import A2LPWarning, FeatureFileError, InputError
from a2lp.files import reading, replacing, write_text, writing

# A kill loses this much work and the current batch; with less, a large set would leave thousands of shards.
SHARD_SECONDS = 2.0
_EXPECTED = "a shard of the cache"
_REMEDY = "Choose another folder for embedded images with --cache DIR or the environment variable A2LP_CACHE."


class FeatureCache:
    """The vectors of one recipe, ``dim`` numbers each, in a folder of ``root/features``.

    ``recipe`` is everything except the image that determines a vector, in JSON values.
    """

    def __init__(self, root: Path, recipe: Mapping[str, Any], dim: int) -> None:
        text = json.dumps(recipe, sort_keys=True, allow_nan=False)
        self.folder = root / "features" / hashlib.sha256(text.encode()).hexdigest()[:32]
        self.dim = dim
        self._digests: list[str] = []
        self._vectors: list[NDArray] = []
        self._written = time.monotonic()
        with writing(self.folder, _REMEDY):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "recipe.json", text + "\n", _REMEDY)  # for people who read the folder

    def get(self, digests: Iterable[str]) -> dict[str, NDArray]:
        """The vectors that are in the cache, by digest; a damaged shard is named in a warning and left out."""
        wanted = set(digests)
        found: dict[str, NDArray] = {}
        for shard in sorted(self.folder.glob("*.npz")):
            try:
                found |= self._read(shard, wanted)
            except FeatureFileError as error:
                message = f"{error} Its images are embedded again. Delete it to avoid this warning."
                warnings.warn(message, A2LPWarning, stacklevel=2)
        return found

    def put(self, digests: Sequence[str], vectors: NDArray) -> None:
        """Write a shard."""
        names = np.array(digests, dtype=np.bytes_)
        name = hashlib.sha256(names.tobytes() + vectors.tobytes()).hexdigest()[:32]
        path = self.folder / f"{name}.npz"
        with writing(path, _REMEDY), replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, digests=names, vectors=vectors)

    def add(self, digests: Sequence[str], vectors: NDArray) -> None:
        """Collect the vectors of a batch, and write a shard every few seconds; call ``flush`` after the last."""
        self._digests += digests
        self._vectors.append(vectors)
        if time.monotonic() - self._written >= SHARD_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the vectors that were collected since the last shard."""
        if self._digests:
            self.put(self._digests, np.concatenate(self._vectors))
        self._digests, self._vectors, self._written = [], [], time.monotonic()

    def _read(self, shard: Path, wanted: set[str]) -> dict[str, NDArray]:
        with reading(shard, _EXPECTED):
            digests: list[str] = npz.read(shard, _EXPECTED, ["digests"])["digests"].astype(str).tolist()
            rows = [row for row, digest in enumerate(digests) if digest in wanted]
            if not rows:
                return {}
            vectors = npz.read(shard, _EXPECTED, ["vectors"])["vectors"]
            if vectors.shape != (len(digests), self.dim) or vectors.dtype != np.float16:
                raise InputError(
                    f"it has {vectors.shape} {vectors.dtype} for {len(digests)} vectors of {self.dim} dimensions."
                )
            if not np.isfinite(vectors[rows]).all():
                raise InputError("it has a vector that is not finite.")
            # indexing copies: the rest of the shard is not kept in memory
            return dict(zip((digests[row] for row in rows), vectors[rows], strict=True))
