"""What is known of the base classes without their images: the mean, the class means, the covariance within classes.

A file of them is an .npz of ``mean``, ``class_means``, ``within_cov`` (float32), ``count`` and ``sphere_cov``; the
last two may be absent, and a covariance may be its upper triangle alone.
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
from a2lp.features.bundled import BUNDLED, base_of
from a2lp.features.common import listed, replacing
from a2lp.features.files import load
from a2lp.features.sets import FeatureSet
from a2lp.preprocess import l2

NDArray = np.ndarray[Any, Any]

_BLOCK_BYTES = 32 << 20  # of float64 rows held at a time, whatever the number of images

_RIDGE = 0.3  # of a mean eigenvalue, added to each: chosen on validation classes of CUB, 0.1 to 1 differ little

_ARRAYS = ("mean", "class_means", "within_cov")

_CLASS_SIZE = 58.85  # the mean of CUB's: BAVARDAGE's constants suit 20 to 60 vectors a class, but not 200


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
    sphere_cov : array (d, d), optional
        The scatter within a class of the vectors with the mean subtracted and brought to unit length: each class's
        sum of squared deviations divided by its Frobenius norm, the mean of these over the classes, times the mean
        norm (Hu et al. 2023), so that no class counts for more because it is wide or large.
    """

    mean: NDArray
    class_means: NDArray
    within_cov: NDArray
    count: int | None = None
    sphere_cov: NDArray | None = None

    def __post_init__(self) -> None:
        given = (*_ARRAYS, *(() if self.sphere_cov is None else ("sphere_cov",)))
        shapes = {name: np.shape(getattr(self, name)) for name in given}
        d = shapes["mean"][0] if len(shapes["mean"]) == 1 else 0
        covariances = {shapes[name] for name in given if name.endswith("_cov")}
        if not d or shapes["class_means"][1:] != (d,) or covariances != {(d, d)}:
            raise ShapeError(
                "statistics of d dimensions are mean (d,), class_means (c, d), within_cov and sphere_cov (d, d); found "
                + ", ".join(f"{name} {shape}" for name, shape in shapes.items())
                + "."
            )
        for name in given:
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
        mean = sums.sum(axis=0) / n
        sphere = _sphere_scatter(checked.features, codes, mean, step)
        # one vector a class: nothing deviates, and nothing is divided by zero
        return cls(mean, means, scatter / max(1, n - len(present)), n, sphere)

    @cached_property
    def whitening(self) -> NDArray:
        """(S_w + r t I)^(-1/2) (d, d): S_w the covariance within classes, t its mean eigenvalue, r = 0.3."""
        values, vectors = np.linalg.eigh(self.within_cov.astype(np.float64))
        ridge = _RIDGE * float(values.mean()) + 1e-30  # one vector a class has no spread, and nothing is divided by 0
        whitening: NDArray = (vectors / np.sqrt(np.maximum(values, 0.0) + ridge)) @ vectors.T
        return whitening.astype(np.float32)

    @cached_property
    def sphere_scatter(self) -> NDArray:
        """``sphere_cov`` (d, d) or, where it is not known, ``within_cov`` in its place; of 59 vectors a class.

        The authors' is a sum over a class's vectors, which grows with their number. Their bound of the scale and their
        width of a class do not: with 600 images a class all directions shrink, points lie together beside that width,
        and labels are chance (23 % on miniImageNet, 73 % with 59). So the sum is brought to a fixed number of vectors,
        CUB's, for which it is the authors'. A ``sphere_cov`` without ``count`` is taken to be so already.

        In its place, ``within_cov`` is divided by the mean squared distance from the mean; this takes all classes to
        be alike, and the spread along a vector's own direction, which unit length removes, stays in.
        """
        if self.sphere_cov is not None:
            size = _CLASS_SIZE if self.count is None else self.count / len(self.class_means)
            return self.sphere_cov * np.float32(_CLASS_SIZE / size)
        between = ((self.class_means - self.mean) ** 2).sum(axis=1).mean()
        square = float(np.trace(self.within_cov) + between)
        return self.within_cov * np.float32(_CLASS_SIZE / max(square, 1e-30))

    @cached_property
    def sphere_factor(self) -> NDArray:
        """Lower triangular C (d, d) with C C' the inverse of ``sphere_scatter``, 1e-6 added to its diagonal."""
        scatter = self.sphere_scatter.astype(np.float64) + 1e-6 * np.eye(len(self.mean))
        backwards = np.linalg.cholesky(scatter[::-1, ::-1])  # of reversed rows: the inverse is lower triangular, too
        factor: NDArray = np.linalg.inv(backwards)[::-1, ::-1].T
        return np.ascontiguousarray(np.tril(factor), dtype=np.float32)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write them as .npz; a file that is there is replaced only with ``force``."""
        path = Path(path)
        if path.exists() and not force:
            raise FeatureFileError(
                f"{path} exists already. Choose another name, or replace it with --force (in Python: force=True)."
            )
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {} if self.count is None else {"count": self.count}
        arrays |= {} if self.sphere_cov is None else {"sphere_cov": self.sphere_cov}
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
                sphere = _whole(archive["sphere_cov"]) if "sphere_cov" in archive else None
                return cls(archive["mean"], archive["class_means"], _whole(archive["within_cov"]), count, sphere)
        except InputError as error:
            raise FeatureFileError(f"{path}: {error}") from error
        except Exception as error:  # on a damaged archive: zipfile's, zlib's, struct's, ...
            raise FeatureFileError(
                f"{path} cannot be read as base statistics, an .npz of {listed(_ARRAYS)} "
                f"({type(error).__name__}: {error}). Fetch or make it again."
            ) from error


def _sphere_scatter(features: NDArray, codes: NDArray, mean: NDArray, step: int) -> NDArray:
    """``sphere_cov`` of vectors (N, d) with codes (N,), a class at a time and ``step`` of its rows at a time."""
    d = features.shape[1]
    total, norms = np.zeros((d, d)), []
    for members in np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1]):
        blocks = [members[start : start + step] for start in range(0, len(members), step)]
        centre = sum(l2(features[rows] - mean).sum(axis=0) for rows in blocks) / len(members)
        scatter = np.zeros((d, d))
        for rows in blocks:
            deviations = l2(features[rows] - mean) - centre
            scatter += deviations.T @ deviations
        norm = float(np.linalg.norm(scatter))
        norms.append(norm)
        total += scatter / norm if norm > 0 else 0  # a class of one vector has no spread
    return total / len(norms) * np.mean(norms)


def _whole(covariance: NDArray) -> NDArray:
    """A symmetric matrix of which the file may hold the upper triangle alone."""
    if covariance.ndim != 2 or np.tril(covariance, -1).any():
        return covariance
    return covariance + np.triu(covariance, 1).T


def load_base(name_or_path: str | Path) -> BaseStatistics:
    """Statistics of the base classes: a bundled set's by name, a file of them, or of a file of labelled features."""
    if isinstance(name_or_path, str) and name_or_path in BUNDLED:
        base = base_of(name_or_path)
        if base is None:
            raise InputError(
                f"the bundled set {name_or_path!r} has no base classes: no network was trained for it. Take statistics "
                "of other labelled vectors, or a preprocessing that does without."
            )
        return base
    if is_zipfile(name_or_path):
        with ZipFile(name_or_path) as archive:
            if "within_cov.npy" in archive.namelist():
                return BaseStatistics.load(name_or_path)
    found = load(name_or_path)
    return BaseStatistics.of(found.features, found.labels)
