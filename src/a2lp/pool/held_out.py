"""Cross-validation: predictions for labelled points whose labels are held out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from a2lp.cores import alone, count, crew
from a2lp.pool.neighbours import NdArray

_SMALL = 30_000  # points


def usual_count(codes: NdArray, n_classes: int) -> int:
    """The median number of labels per class."""
    return int(np.median(np.bincount(codes[codes >= 0], minlength=n_classes)))


def draw_folds(codes: NdArray, n_folds: int, seed: int, *, named: bool = False) -> NdArray:
    """Each point's fold (n,); -1 for unlabelled points and for the only label of a class, which is never held out.

    A class with as many labels as there are folds has one in each, so that all classes lose labels alike. ``named``
    classes are known without any label, so all of theirs are held out.
    """
    rng = np.random.default_rng(seed)
    folds = np.full(len(codes), -1)
    done = 0
    for code in range(codes.max() + 1):
        rows = rng.permutation(np.flatnonzero(codes == code))
        if len(rows) > 1 or named:
            folds[rows] = (done * named + np.arange(len(rows))) % n_folds
            done += len(rows)
    return folds


def predict_held_out(
    codes: NdArray, folds: NdArray, predict: Callable[[NdArray, NdArray], NdArray], *, on_device: bool = False
) -> NdArray:
    """Predictions for the points in folds, each made without the labels of its fold.

    Parameters
    ----------
    codes, folds : array (n,)
        ``folds`` as from ``draw_folds``; at least one point must be in a fold.
    predict : callable
        Gets codes with a fold's labels replaced by -1, and the rows of these labels; returns predictions for the rows.
    on_device : bool
        Whether a device does the work: threads would only wait for each other.

    Returns
    -------
    array (m, ...)
        In the order of ``np.flatnonzero(folds >= 0)``.
    """

    def predicted(fold: int) -> tuple[NdArray, NdArray]:
        rows = np.flatnonzero(folds == fold)
        return rows, predict(np.where(folds == fold, -1, codes), rows)

    numbers = np.unique(folds[folds >= 0]).tolist()
    with crew() as run:
        # a fold to a core; all cores to each of the large ones, and of those that would leave cores idle
        n_alone = 0 if len(numbers) <= count() else len(numbers) % count()
        if len(codes) > _SMALL or on_device:
            n_alone = len(numbers)
        found = alone(predicted, numbers[:n_alone]) + run(predicted, numbers[n_alone:])
    order = np.argsort(np.concatenate([rows for rows, _ in found]))
    return np.asarray(np.concatenate([values for _, values in found])[order])
