"""BAVARDAGE's soft k-means and variational Bayes.

Everything is computed from (n, n) matrices of inner products: a class mean is a weighted sum of points, so its
distances follow from inner products and weights.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from a2lp.arrays import Array, chunks, device, digamma, distinct_rows, is_torch, like, log_softmax, namespace, on_host
from a2lp.cores import map_on_cores
from a2lp.engines.contract import Loop, Points, batched, fused_cpu

_ROUNDS = 5  # of soft k-means, and again of variational Bayes
_MEANS_TEMPERATURE, _TEMPERATURE = 10.0, 2.0  # k-means: softmax(-10 d^2); then Gaussians of variance 1/4
_LARGEST_SCALE = 5.0  # of a direction in which the base classes have little variance
_MEAN_PRIOR = 10.0  # points at the origin that are added to each class
_SHARE_PRIOR = 2.0  # queries that are added to each class
_BLOCKS = 5  # of a triangular matrix: products with the zeros above its diagonal are left out, 6/10 of all stay
_TASKS = 16  # per block, so that their matrices stay in a core's cache
_SMALL = 48  # size of matrices that are inverted as a whole
_RIDGE, _LEAST_RIDGE = 1e2, 1e-30  # times the largest inner product and eps, and at least: for coinciding points
# p(t) = a t + b t^3 + c t^5, one after the other: each is as near to 1 as possible on the range that the last one maps
# [0.005, 1] to. The error of |t| is at most 6e-4, near t = 0.
_SIGN_STEPS = (
    (8.298704, -24.430499, 18.090305),
    (3.915221, -2.921131, 0.559223),
    (3.174604, -2.380433, 0.497826),
    (2.189463, -1.567221, 0.407887),
    (1.882279, -1.258065, 0.375807),
)


class Settings(NamedTuple):
    """The base classes' factor, a lower triangular NumPy matrix (m, d), and whether the classes' shares are equal."""

    factor: Any
    uniform: bool


def _whitened(rows: Array, factor: Array) -> Array:
    """Vectors (m, d) with the base classes' covariance divided out."""
    factor = like(factor, rows, rows.dtype)
    edges = [rows.shape[1] * i // _BLOCKS for i in range(_BLOCKS + 1)]
    parts = [rows[:, lo:] @ factor[lo:, lo:hi] for lo, hi in itertools.pairwise(edges)]
    return namespace(rows).concat(parts, axis=1)


def _compiled(points: Points, settings: Settings) -> tuple[Array, Array]:
    from a2lp.loops.variational import kernel

    x, codes, c = points.vectors, np.asarray(points.codes, np.int64), points.n_classes
    (b, n, d), s, dtype = x.shape, codes.shape[1], x.dtype
    rows, places = distinct_rows(x.reshape(-1, d))
    whitened = np.ascontiguousarray(_whitened(rows, settings.factor))
    places = np.arange(b * n).reshape(b, n) if places is None else places.reshape(b, n)
    nr, cr, dp = kernel.padded(n, c, d)
    if (nr, dp) != (n, d):
        x = np.pad(x, ((0, 0), (0, nr - n), (0, dp - d)))
    x = np.ascontiguousarray(x)
    ridge = _RIDGE * np.finfo(dtype).eps
    constants = [_MEANS_TEMPERATURE, _TEMPERATURE, _MEAN_PRIOR, _SHARE_PRIOR, _LARGEST_SCALE**2, ridge, _LEAST_RIDGE]
    floats, steps = np.array(constants, dtype), np.array(_SIGN_STEPS, dtype)
    logs, means = np.empty((b, c, n - s), dtype), np.empty((b, cr, dp), dtype)

    def solve(part: slice) -> None:
        work = kernel.make_workspace(n, c, d, dtype)
        tasks = x[part], whitened, places[part], codes[part]
        kernel.solve_tasks(*tasks, floats, steps, _ROUNDS, settings.uniform, logs[part], means[part], work)

    map_on_cores(solve, chunks(b, _TASKS))
    return logs, means[:, :c, :d]


def _batched(points: Points, settings: Settings) -> tuple[Array, Array]:
    xp = namespace(points.vectors)
    b, n, d = points.vectors.shape
    whitened = xp.reshape(_whitened(xp.reshape(points.vectors, (-1, d)), settings.factor), (b, n, -1))
    parts = chunks(b, _TASKS if on_host(points.vectors) else b)
    found = [_rounds(points.part(part), whitened[part, ...], settings.uniform) for part in parts]
    logs, means = (xp.concat(list(arrays), axis=0) for arrays in zip(*found, strict=True))
    return logs, means


def _rounds(points: Points, whitened: Array, uniform: bool) -> tuple[Array, Array]:
    """All tasks a round at a time."""
    x, s, shares = points.vectors, points.codes.shape[1], points.memberships  # (b, c, n)
    xp = namespace(x)
    gram = x @ xp.matrix_transpose(x)
    scaled = _scaled_gram(gram, whitened @ xp.matrix_transpose(whitened))
    given = shares[:, :, :s]
    for _ in range(_ROUNDS):
        nearness, _ = _nearness(gram, shares, 0.0)
        logs = log_softmax(_MEANS_TEMPERATURE * nearness[:, :, s:], axis=1)
        shares = xp.concat([given, xp.exp(logs)], axis=2)
    for _ in range(_ROUNDS):
        nearness, counts = _nearness(scaled, shares, _MEAN_PRIOR)
        logits = _TEMPERATURE * nearness - 0.5 * (shares.shape[1] - 1) / counts
        if not uniform:  # without the digamma of all classes' mass, which changes no responsibility
            logits = logits + digamma(_SHARE_PRIOR + xp.sum(shares[:, :, s:], axis=2, keepdims=True))
        logs = log_softmax(logits[:, :, s:], axis=1)
        shares = xp.concat([given, xp.exp(logs)], axis=2)
    return logs, (shares @ x) / xp.sum(shares, axis=2, keepdims=True)


# the result is the log-responsibilities of unlabelled points (b, c, n - s) and the class means (b, c, d)
LOOP = Loop("variational", (fused_cpu(_compiled, "rounds"), batched(_batched)))


def _nearness(gram: Array, shares: Array, prior: float) -> tuple[Array, Array]:
    """2 x m - |m|^2 for class means m with ``prior`` points at zero (b, c, n), and the classes' counts (b, c, 1).

    It is -|x - m|^2 without |x|^2, which is the same for all classes.
    """
    xp = namespace(gram)
    counts = prior + xp.sum(shares, axis=2, keepdims=True)
    weights = shares / counts
    cross = weights @ gram  # (b, c, n)
    return 2 * cross - xp.sum(weights * cross, axis=2, keepdims=True), counts


def _scaled_gram(gram: Array, inverse: Array) -> Array:
    """Inner products (b, n, n) after each principal direction was scaled by min(1 / standard deviation of base, 5).

    With G = x x' and the inverse B = x S^-1 x' this is the smaller of B and 25 G in their common eigenvectors,
    (B + 25 G - |B - 25 G|) / 2. Relative to B + 25 G the difference is well scaled: eigenvalues are between -1 and 1.
    """
    xp = namespace(gram)
    n = gram.shape[-1]
    gram = _LARGEST_SCALE**2 * gram
    total, difference = inverse + gram, inverse - gram
    ridge = _LEAST_RIDGE + _RIDGE * xp.finfo(gram.dtype).eps * xp.max(total, axis=(-2, -1), keepdims=True)
    lower = xp.linalg.cholesky(total + ridge * xp.eye(n, dtype=gram.dtype, device=device(gram)))
    back = _lower_inverse(lower)
    relative = back @ difference @ xp.matrix_transpose(back)
    return 0.5 * (total - lower @ (relative @ _sign(relative)) @ xp.matrix_transpose(lower))


def _lower_inverse(lower: Array) -> Array:
    """The inverse of lower triangular matrices (b, n, n), by halves: half the cost of a general inverse."""
    xp = namespace(lower)
    n = lower.shape[-1]
    if is_torch(xp):
        eye = xp.eye(n, dtype=lower.dtype, device=device(lower))
        return xp.linalg.solve_triangular(lower, eye, upper=False)
    if n < _SMALL:
        return xp.linalg.inv(lower)
    h = n // 2
    first, second = _lower_inverse(lower[:, :h, :h]), _lower_inverse(lower[:, h:, h:])
    corner = -(second @ lower[:, h:, :h] @ first)
    above = xp.zeros_like(xp.matrix_transpose(corner))
    return xp.concat([xp.concat([first, above], axis=2), xp.concat([corner, second], axis=2)], axis=1)


def _sign(matrix: Array) -> Array:
    """Replace the eigenvalues, between -1 and 1, of symmetric matrices (b, n, n) by their signs.

    By polynomials, since products of small matrices are much cheaper than eigenvectors.
    """
    for a, b, c in _SIGN_STEPS:
        square = matrix @ matrix
        matrix = a * matrix + matrix @ (b * square + c * (square @ square))
    return matrix
