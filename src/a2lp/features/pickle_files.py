"""Pickles of ``{class: vectors}``, as S2M2 and PT-MAP publish their features (``output.plk``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from a2lp.arrays import NDArray
from a2lp.checks import shown
from a2lp.errors import FeatureFileError, InputError
from a2lp.features.numpy_files import Fields
from a2lp.features.unpickle import PickledArray, describe, load_pickle

# Real files need about as many bytes on disk as in memory; one that grows more was made to fill the memory.
_GROWTH = 8


def read_pickle(path: Path) -> Fields:
    """Read features, labels and class names in the order of the file, on which the authors' tasks depend."""
    content = load_pickle(path, "a pickled dict {class: vectors}", FeatureFileError)
    if not isinstance(content, dict) or not content:
        found = "an empty dict" if isinstance(content, dict) else describe(content)
        raise InputError(f"expected a pickled dict {{class: list of vectors}}, found {found}.")
    blocks: list[NDArray] = []
    left = _GROWTH * path.stat().st_size + (1 << 20)
    for key, vectors in content.items():
        block = _vectors(f"class {shown(key)}", vectors, left)
        left -= block.nbytes
        if blocks and block.shape[1] != blocks[0].shape[1]:
            sizes = f"{block.shape[1]} dimensions and the first class of {blocks[0].shape[1]}"
            raise InputError(f"class {shown(key)} has vectors of {sizes}; all must have the same.")
        blocks.append(block)
    return {
        "features": np.concatenate(blocks),
        "labels": np.repeat(np.arange(len(blocks)), [len(block) for block in blocks]),
        "classes": [key if isinstance(key, str | bytes) else str(key) for key in content],
    }


def _vectors(what: str, vectors: Any, limit: int) -> NDArray:
    """The vectors of one class as (n, d)."""
    if isinstance(vectors, PickledArray):
        if vectors.array is None or vectors.array.ndim != 2 or 0 in vectors.array.shape:
            found = None if vectors.array is None else vectors.array.shape
            raise InputError(f"{what} holds an array of shape {found}; expected (n, d): n vectors of d numbers.")
        _check_growth(vectors.array.nbytes, limit)
        return vectors.array
    if not isinstance(vectors, list | tuple) or not vectors:
        raise InputError(f"{what} holds {describe(vectors)}; expected a list of vectors.")
    rows: list[NDArray] = []
    for i, vector in enumerate(vectors):
        row = _vector(f"vector {i} of {what}", vector)
        if len(row) != len(rows[0] if rows else row):
            sizes = f"vector {i} has {len(row)} dimensions and vector 0 has {len(rows[0])}"
            raise InputError(f"{what} is ragged: {sizes}; all must have the same.")
        rows.append(row)
        _check_growth(row.nbytes * len(rows), limit)
    return np.stack(rows)


def _vector(what: str, vector: Any) -> NDArray:
    if isinstance(vector, PickledArray) and vector.array is not None and vector.array.ndim == 1 and vector.array.size:
        return vector.array
    if isinstance(vector, list | tuple) and vector and all(isinstance(x, int | float | np.number) for x in vector):
        return np.array(vector)
    raise InputError(f"{what} is {describe(vector)}; expected a list or 1-D array of numbers.")


def _check_growth(needed: int, limit: int) -> None:
    if needed > limit:
        raise InputError(
            f"the pickle repeats itself: it grows to more than {_GROWTH} times its size in memory. It is damaged or "
            "forged; if you trust it, open it in Python yourself and save `features` and `labels` as .npz."
        )
