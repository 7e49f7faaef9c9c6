"""Statistics of the base classes: the mean, the class means, the covariance within classes.

They are saved as an .npz of ``mean``, ``class_means``, ``within_cov`` (float32), ``count`` and ``sphere_cov``; the last
two may be absent, and a covariance may be its upper triangle alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from a2lp import npz
from a2lp.errors import InputError, ShapeError
from a2lp.features.bundled import BUNDLED, base_of
from a2lp.features.feature_set import FeatureSet
from a2lp.features.files import load
from a2lp.files import check_target, reading, replacing, writing
from a2lp.preprocess import l2

NDArray = np.ndarray[Any, Any]

_BLOCK_BYTES = 32 << 20  # of float64 rows held at a time, whatever the number of images

_RIDGE = 0.3  # of a mean eigenvalue, added to each: chosen on validation classes of CUB, 0.1 to 1 differ little

_ARRAYS = ("mean", "class_means", "within_cov")
_EXPECTED = "base statistics (.npz; `a2lp embed` writes them beside the features, as NAME_base.npz)"

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
        if not d or shapes["class_means"][1:] != (d,) or not shapes["class_means"][0] or covariances != {(d, d)}:
            raise ShapeError(
                "statistics of d dimensions are mean (d,), class_means (c, d), within_cov and sphere_cov (d, d); found "
                + ", ".join(f"{name} {shape}" for name, shape in shapes.items())
                + "."
            )
        for name in given:
            values = np.asarray(getattr(self, name))
            if values.dtype.kind == "f":
                with np.errstate(over="ignore"):
                    values = values.astype(np.float32, copy=False)
            if values.dtype.kind != "f" or not np.isfinite(values).all():
                raise InputError(f"{name} has values that are not finite in float32. Make the statistics again.")
            if name.endswith("_cov") and not _is_covariance(values):
                raise InputError(
                    f"{name} is no covariance: it is not symmetric, or an eigenvalue is negative. Make the statistics "
                    "again."
                )
            object.__setattr__(self, name, values)
        if self.count is not None and not self.count >= shapes["class_means"][0]:
            raise InputError(
                f"count={self.count} is less than the number of classes, {shapes['class_means'][0]}. Correct it, or "
                "leave it out."
            )

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
        try:
            backwards = np.linalg.cholesky(scatter[::-1, ::-1])  # of reversed rows, for a lower triangular inverse
        except np.linalg.LinAlgError as error:
            raise InputError("sphere_cov has a negative eigenvalue. Make the base statistics again.") from error
        factor: NDArray = np.linalg.inv(backwards)[::-1, ::-1].T
        return np.ascontiguousarray(np.tril(factor), dtype=np.float32)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write them as .npz; a file that is there is replaced only with ``force``."""
        path = Path(path)
        check_target(path, (".npz",), "a file of statistics", force=force)
        present = (*_ARRAYS, *(name for name in ("count", "sphere_cov") if getattr(self, name) is not None))
        with writing(path), replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **{name: getattr(self, name) for name in present})

    @classmethod
    def load(cls, path: str | Path) -> BaseStatistics:
        """Read what ``save`` wrote, or any .npz that has its three arrays."""
        arrays: dict[str, Any] = npz.read(path, _EXPECTED, _ARRAYS, ["count", "sphere_cov"])
        with reading(path, _EXPECTED):
            arrays |= {name: _full(arrays[name]) for name in ("within_cov", "sphere_cov") if name in arrays}
            return cls(**arrays | ({"count": int(arrays["count"])} if "count" in arrays else {}))

    def same(self, other: BaseStatistics) -> bool:
        """Whether two sets of statistics are the same but for rounding."""
        return self.class_means.shape == other.class_means.shape and all(
            np.allclose(getattr(self, name), getattr(other, name), rtol=1e-4, atol=1e-6) for name in _ARRAYS
        )


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


def _full(covariance: NDArray) -> NDArray:
    """A symmetric matrix of which the file may hold the upper triangle alone."""
    if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1] or np.tril(covariance, -1).any():
        return covariance
    return covariance + np.triu(covariance, 1).T


def _is_covariance(matrix: NDArray) -> bool:
    """Whether a matrix is symmetric without an eigenvalue below zero, rounding to float32 aside."""
    exact = matrix.astype(np.float64)
    rounding = 1e-5 * np.trace(exact)
    if not (exact.diagonal() >= 0).all() or not np.allclose(exact, exact.T, rtol=1e-3, atol=rounding):
        return False
    try:
        np.linalg.cholesky(exact + (rounding + 1e-30) * np.eye(len(exact)))
    except np.linalg.LinAlgError:
        return False
    return True


def load_base(name_or_path: str | Path) -> BaseStatistics:
    """Statistics of the base classes: a bundled set's by name, a file of them, or of a file of labelled features."""
    if isinstance(name_or_path, str) and name_or_path in BUNDLED:
        base = base_of(name_or_path)
        if base is None:
            raise InputError(
                f"the bundled set {name_or_path!r} has no base classes: no network was trained for it. Use statistics "
                "of other labelled vectors, or a preprocessing that needs none."
            )
        return base
    is_npz = Path(name_or_path).suffix.lower() == ".npz"
    if is_npz and "within_cov" in npz.names(name_or_path, _EXPECTED):
        return BaseStatistics.load(name_or_path)
    features = load(name_or_path)
    return BaseStatistics.of(features.features, features.labels)
