"""Statistics of the base classes: the mean, the class means, the covariance within classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from a2lp import npz
from a2lp.arrays import NDArray, chunks
from a2lp.errors import InputError, ShapeError
from a2lp.features.bundled import BUNDLED
from a2lp.features.feature_set import FeatureSet
from a2lp.features.files import load
from a2lp.files import check_target, reading, replacing, writing
from a2lp.preprocess import l2

_BLOCK_BYTES = 32 << 20  # of float64 rows in memory at a time
_RIDGE = 0.3  # of a mean eigenvalue, added to each: chosen on validation classes of CUB, 0.1 to 1 differ little
_CLASS_SIZE = 58.85  # the mean of CUB's: BAVARDAGE's constants suit 20 to 60 vectors a class, but not 200
_ARRAYS = ("mean", "class_means", "within_cov")
_EXPECTED = "base statistics (.npz; `a2lp embed` writes them beside the features, as NAME_base.npz)"


@dataclass(frozen=True, eq=False, repr=False)
class BaseStatistics:
    """Statistics of N labelled vectors of d dimensions in c classes.

    Parameters
    ----------
    mean : array (d,)
        Of all vectors.
    class_means : array (c, d)
        One row for each class that has vectors, in the order of its label.
    within_cov : array (d, d)
        The pooled covariance within classes: squares of deviations from the class means, divided by N - c.
    count : int, optional
        N, the number of vectors.
    sphere_cov : array (d, d), optional
        The scatter within a class of the centred vectors at unit length: each class's sum of squared deviations divided
        by its Frobenius norm, the mean of these over the classes, times the mean norm (Hu et al. 2023), so that no
        class counts for more because it is wide or large.

    Examples
    --------
    >>> import a2lp
    >>> digits = a2lp.load("digits")
    >>> a2lp.BaseStatistics.of(digits.features, digits.labels)
    BaseStatistics(10 classes, 64 dimensions, 1797 vectors)
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
            rule = "statistics of d dimensions are mean (d,), class_means (c, d), within_cov and sphere_cov (d, d)"
            raise ShapeError(f"{rule}; found {', '.join(f'{name} {shape}' for name, shape in shapes.items())}.")
        for name in given:
            values = np.asarray(getattr(self, name))
            if values.dtype.kind == "f":
                with np.errstate(over="ignore"):
                    values = values.astype(np.float32, copy=False)
            if values.dtype.kind != "f" or not np.isfinite(values).all():
                raise InputError(f"{name} has values that are not finite in float32. Make the statistics again.")
            if name.endswith("_cov") and not _is_covariance(values):
                wrong = "it is not symmetric, or an eigenvalue is negative"
                raise InputError(f"{name} is not a covariance: {wrong}. Make the statistics again.")
            object.__setattr__(self, name, values)
        c = shapes["class_means"][0]
        if self.count is not None and not self.count >= c:
            raise InputError(f"count={self.count} is less than the number of classes, {c}. Correct or omit it.")

    def __repr__(self) -> str:
        c, d = self.class_means.shape
        return f"BaseStatistics({c} classes, {d} dimensions, {self.count or 'unknown number of'} vectors)"

    @classmethod
    def of(cls, features: Any, labels: Any) -> BaseStatistics:
        """Statistics of vectors (N, d) with labels (N,); summed in float64, in blocks of rows."""
        checked = FeatureSet(features, labels)
        if checked.labels is None:
            raise InputError("labels is None; statistics of classes need one label for each vector.")
        n, d = checked.features.shape
        present, codes = np.unique(checked.labels, return_inverse=True)
        counts = np.bincount(codes)
        members = csr_array((np.ones(n), codes, np.arange(n + 1)), shape=(n, len(present)))
        step = max(1, _BLOCK_BYTES // (8 * d))
        blocks = list(chunks(n, step))
        sums = np.zeros((len(present), d))
        for rows in blocks:
            sums += members[rows].T @ checked.features[rows].astype(np.float64)
        means = sums / counts[:, None]
        # a second pass, over deviations: the difference of two large sums of squares would lose digits
        scatter = np.zeros((d, d))
        for rows in blocks:
            deviations = checked.features[rows] - means[codes[rows]]
            scatter += deviations.T @ deviations
        mean = sums.sum(axis=0) / n
        sphere = _sphere_scatter(checked.features, codes, mean, step)
        # max: with one vector a class, nothing is divided by zero
        return cls(mean, means, scatter / max(1, n - len(present)), n, sphere)

    @cached_property
    def whitening(self) -> NDArray:
        """(S_w + r t I)^(-1/2) (d, d): S_w the covariance within classes, t its mean eigenvalue, r = 0.3."""
        values, vectors = np.linalg.eigh(self.within_cov.astype(np.float64))
        ridge = _RIDGE * float(values.mean()) + 1e-30  # not zero with one vector a class
        whitening: NDArray = (vectors / np.sqrt(np.maximum(values, 0.0) + ridge)) @ vectors.T
        return whitening.astype(np.float32)

    @cached_property
    def sphere_scatter(self) -> NDArray:
        """``sphere_cov`` (d, d), or ``within_cov`` scaled if it is not known, for 59 vectors a class.

        The authors' is a sum over a class's vectors, which grows with their number. Their bound of the scale and their
        width of a class do not: with 600 images a class all directions shrink, points lie together beside that width,
        and labels are chance (23 % on miniImageNet, 73 % with 59). So the sum is scaled to a fixed number of vectors,
        that of CUB, as the authors have it. A ``sphere_cov`` without ``count`` is taken to be scaled already.

        ``within_cov`` is divided by the mean squared distance from the mean. This treats all classes alike, and keeps
        the spread along a vector's own direction, which unit length removes.
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
        """Write the statistics as .npz; an existing file is replaced only with ``force``."""
        path = Path(path)
        check_target(path, (".npz",), "a file of statistics", force=force)
        present = (*_ARRAYS, *(name for name in ("count", "sphere_cov") if getattr(self, name) is not None))
        with writing(path), replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **{name: getattr(self, name) for name in present})

    @classmethod
    def load(cls, path: str | Path) -> BaseStatistics:
        """Read an .npz of ``mean``, ``class_means``, ``within_cov``, and optionally ``count`` and ``sphere_cov``.

        Of a covariance, the upper triangle alone is enough.
        """
        arrays: dict[str, Any] = npz.read(path, _EXPECTED, _ARRAYS, ["count", "sphere_cov"])
        with reading(path, _EXPECTED):
            arrays |= {name: _full(arrays[name]) for name in ("within_cov", "sphere_cov") if name in arrays}
            return cls(**arrays | ({"count": int(arrays["count"])} if "count" in arrays else {}))

    def same(self, other: BaseStatistics) -> bool:
        """Whether two sets of statistics are equal up to rounding."""
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
    """A covariance from itself or from its upper triangle."""
    if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1] or np.tril(covariance, -1).any():
        return covariance
    return covariance + np.triu(covariance, 1).T


def _is_covariance(matrix: NDArray) -> bool:
    """Whether a matrix is symmetric without negative eigenvalues, up to rounding to float32."""
    exact = matrix.astype(np.float64)
    rounding = 1e-5 * np.trace(exact)
    if not (exact.diagonal() >= 0).all() or not np.allclose(exact, exact.T, rtol=1e-3, atol=rounding):
        return False
    try:
        np.linalg.cholesky(exact + (rounding + 1e-30) * np.eye(len(exact)))
    except np.linalg.LinAlgError:
        return False
    return True


def base_path(out: Path) -> Path:
    """The file of base statistics beside a feature file: NAME_base.npz beside NAME.npz."""
    return out.with_name(f"{out.stem}_base.npz")


def base_of(name: str) -> BaseStatistics | None:
    """Statistics of the base classes of a bundled set; None for other names and sets without base classes."""
    if name not in ("cub", "cifar_fs"):
        return None
    with as_file(files("a2lp.features") / "data" / f"{name}_resnet12_base.npz") as path:
        return BaseStatistics.load(path)


def load_base(name_or_path: str | Path) -> BaseStatistics:
    """Statistics of base classes: those of a bundled set, those in a file, or those of a file of labelled features."""
    if isinstance(name_or_path, str) and name_or_path in BUNDLED:
        base = base_of(name_or_path)
        if base is None:
            raise InputError(
                f"the bundled set {name_or_path!r} has no base classes: no network was trained for it. Use statistics "
                "of other labelled vectors, or a preprocessing that needs none."
            )
        return base
    if Path(name_or_path).suffix.lower() == ".npz" and "within_cov" in npz.names(name_or_path, _EXPECTED):
        return BaseStatistics.load(name_or_path)
    features = load(name_or_path)
    return BaseStatistics.of(features.features, features.labels)
