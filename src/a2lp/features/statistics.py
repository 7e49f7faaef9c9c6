"""What is known of the base classes without their images: the mean, the class means, the covariance within classes.

A file of them is an .npz of ``mean``, ``class_means``, ``within_cov`` (float32) and ``count``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import numpy as np
from scipy.sparse import csr_array

from a2lp.errors import FeatureFileError, InputError, ShapeError
from a2lp.features.common import listed, replacing
from a2lp.features.files import load
from a2lp.features.sets import FeatureSet

NDArray = np.ndarray[Any, Any]

_BLOCK_BYTES = 32 << 20  # of float64 rows held at a time, whatever the number of images

_RIDGE = 0.3  # of a mean eigenvalue, added to each: chosen on validation classes of CUB, 0.1 to 1 differ little

_ARRAYS = ("mean", "class_means", "within_cov")


@dataclass(frozen=True, eq=False, repr=False)
class BaseStatistics:
    """Statistics of labelled features.

    Parameters
    ----------
    mean : array (d,)
        Of all vectors.
    class_means : array (c, d)
        One row for each class that has vectors, in the order of its label.
    within_cov : array (d, d)
        The pooled covariance within classes: squares of deviations from the class means, divided by N - c.
    count : int, optional
        N, how many vectors there were, where it is known.
    """

    mean: NDArray
    class_means: NDArray
    within_cov: NDArray
    count: int | None = None

    def __post_init__(self) -> None:
        shapes = {name: np.shape(getattr(self, name)) for name in _ARRAYS}
        d = shapes["mean"][0] if len(shapes["mean"]) == 1 else 0
        if not d or shapes["class_means"][1:] != (d,) or shapes["within_cov"] != (d, d):
            raise ShapeError(
                "statistics of d dimensions are mean (d,), class_means (c, d) and within_cov (d, d); found "
                + ", ".join(f"{name} {shape}" for name, shape in shapes.items())
                + "."
            )
        for name in _ARRAYS:
            values = np.asarray(getattr(self, name))
            if values.dtype.kind != "f" or not np.isfinite(values).all():
                raise InputError(f"{name} holds what is not a finite number. Make the statistics again.")
            object.__setattr__(self, name, values.astype(np.float32, copy=False))

    def __repr__(self) -> str:
        c, d = self.class_means.shape
        return f"BaseStatistics({c} classes, {d} dimensions, {self.count or 'unknown number of'} vectors)"

    @classmethod
    def of(cls, features: Any, labels: Any) -> BaseStatistics:
        """Statistics of vectors (N, d) with labels (N,); summed in float64, a bounded block of rows at a time."""
        checked = FeatureSet(features, labels)
        if checked.labels is None:
            raise InputError("labels is None; statistics of classes need one label for each vector.")
        n, d = checked.features.shape
        present, codes = np.unique(checked.labels, return_inverse=True)
        counts = np.bincount(codes)
        members = csr_array((np.ones(n), codes, np.arange(n + 1)), shape=(n, len(present)))
        step = max(1, _BLOCK_BYTES // (8 * d))
        blocks = [slice(start, start + step) for start in range(0, n, step)]

        sums = np.zeros((len(present), d))
        for rows in blocks:
            sums += members[rows].T @ checked.features[rows].astype(np.float64)
        means = sums / counts[:, None]
        # a second pass over deviations: the difference of two large sums of squares would lose digits
        scatter = np.zeros((d, d))
        for rows in blocks:
            deviations = checked.features[rows] - means[codes[rows]]
            scatter += deviations.T @ deviations
        # one vector a class: nothing deviates, and nothing is divided by zero
        return cls(sums.sum(axis=0) / n, means, scatter / max(1, n - len(present)), n)

    @cached_property
    def whitening(self) -> NDArray:
        """(S_w + r t I)^(-1/2) (d, d): S_w the covariance within classes, t its mean eigenvalue, r = 0.3."""
        values, vectors = np.linalg.eigh(self.within_cov.astype(np.float64))
        ridge = _RIDGE * float(values.mean()) + 1e-30  # one vector a class has no spread, and nothing is divided by 0
        whitening: NDArray = (vectors / np.sqrt(np.maximum(values, 0.0) + ridge)) @ vectors.T
        return whitening.astype(np.float32)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write them as .npz; a file that is there is replaced only with ``force``."""
        path = Path(path)
        if path.exists() and not force:
            raise FeatureFileError(
                f"{path} exists already. Choose another name, or replace it with --force (in Python: force=True)."
            )
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {} if self.count is None else {"count": self.count}
        try:
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.savez(file, **arrays)
        except OSError as error:
            raise FeatureFileError(
                f"{path} cannot be written ({error.strerror}). Check the directory and its space."
            ) from error

    @classmethod
    def load(cls, path: str | Path) -> BaseStatistics:
        """Read what ``save`` wrote, or any .npz that has its three arrays."""
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
                missing = [name for name in _ARRAYS if name not in archive]
                if missing:
                    raise InputError(
                        f"expected the arrays {listed(_ARRAYS)}; found {listed(archive.files)}. "
                        "`a2lp embed` writes them beside the features, as NAME_base.npz."
                    )
                count = int(archive["count"]) if "count" in archive else None
                return cls(archive["mean"], archive["class_means"], archive["within_cov"], count)
        except InputError as error:
            raise FeatureFileError(f"{path}: {error}") from error
        except Exception as error:  # on a damaged archive: zipfile's, zlib's, struct's, ...
            raise FeatureFileError(
                f"{path} cannot be read as base statistics, an .npz of {listed(_ARRAYS)} "
                f"({type(error).__name__}: {error}). Fetch or make it again."
            ) from error


def load_base(name_or_path: str | Path) -> BaseStatistics:
    """Statistics of the base classes from a file of them, or from labelled features by name or file."""
    if is_zipfile(name_or_path):
        with ZipFile(name_or_path) as archive:
            if "within_cov.npy" in archive.namelist():
                return BaseStatistics.load(name_or_path)
    found = load(name_or_path)
    return BaseStatistics.of(found.features, found.labels)
