"""What a method says about labelled points when their labels are hidden from it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from a2lp.pool.neighbours import NdArray


def usual_count(codes: NdArray) -> int:
    """The median number of labels per class."""
    return int(np.median(np.bincount(codes[codes >= 0])))


def draw_folds(codes: NdArray, n_folds: int, seed: int) -> NdArray:
    """Each point's fold (n,); -1 for the unlabelled, and for the only label of a class, which is never hidden.

    A class of as many labels as there are folds has one in each: all classes lose labels alike, so that none is at a
    disadvantage when its points are judged.
    """
    rng = np.random.default_rng(seed)
    folds = np.full(len(codes), -1)
    for code in range(codes.max() + 1):
        rows = rng.permutation(np.flatnonzero(codes == code))
        if len(rows) > 1:
            folds[rows] = np.arange(len(rows)) % n_folds
    return folds


def hide_in_turn(codes: NdArray, folds: NdArray, answer: Callable[[NdArray], NdArray]) -> NdArray:
    """What ``answer`` (codes in, anything (n, ...) out) says about each point of a fold while that fold is hidden.

    The rows are those of ``np.flatnonzero(folds >= 0)``.
    """
    kept: NdArray | None = None
    for fold in np.unique(folds[folds >= 0]):
        hidden = folds == fold
        said = answer(np.where(hidden, -1, codes))
        if kept is None:
            kept = np.zeros_like(said)
        kept[hidden] = said[hidden]
    if kept is None:
        raise ValueError("no fold holds a point")
    return kept[folds >= 0]
