"""BAVARDAGE: Hu, Pateux and Gripon, "Adaptive dimension reduction and variational inference for transductive few-shot
classification" (WACV 2023).

Classes are Gaussians of one round covariance after the base classes' covariance has been divided out, with priors on
their means and shares; variational Bayes updates responsibilities and parameters in turn, from a start by soft
k-means. Base statistics: the mean, and the scatter within classes on the unit sphere. No uniform marginal is assumed
by default (a Dirichlet prior on the shares); ``marginal="uniform"`` is the authors' ``--balanced``: equal shares, held.

The authors rotate the task's vectors into the eigenvectors of the base covariance restricted to the task's span, scale
them (by at most 5), and project them on the differences of the class means in every round. A projection on these
adds the same number to a point's squared distances to all means, so that it changes nothing and we leave it out; the
rest is a matter of inner products, and we iterate on them (n, n) in the place of vectors. Shots that are unequal are
taken off the counts class by class.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import device

from a2lp.arrays import Array, chunks, is_numpy, like, namespace, on_host, one_hot
from a2lp.engines._special import digamma
from a2lp.methods.base import DIRECT, Method, Outcome, Points, direct_outcome, require_name
from a2lp.preprocess import require_base

_ROUNDS = 5  # of soft k-means, and again of variational Bayes
_MEANS_TEMPERATURE, _TEMPERATURE = 10.0, 4.0  # k-means: softmax(-10 d^2); then Gaussians of variance 1/4
_LARGEST_SCALE = 5.0  # of a direction in which base classes hardly spread
_MEAN_PRIOR = 10.0  # points at the origin that each class mean counts beside its own
_SHARE_PRIOR = 2.0  # queries that each class counts beside its own
_BLOCKS = 5  # of a triangular matrix: products with the zeros above its diagonal are left out, 6/10 of all stay
_TASKS = 16  # at a time on a processor: their matrices stay in its cache
_MOSTLY_DISTINCT = 0.8  # of the rows: looking the others up costs a tenth of multiplying them
_SMALL = 48  # matrices that are inverted as a whole
# p(t) = a t + b t^3 + c t^5, one after the other: each is as near to 1 as can be where the last one left numbers that
# began in [0.005, 1]; |t| is then found with an error of 6e-4 at most, near t = 0
_SIGN_STEPS = (
    (8.298704, -24.430499, 18.090305),
    (3.915221, -2.921131, 0.559223),
    (3.174604, -2.380433, 0.497826),
    (2.189463, -1.567221, 0.407887),
    (1.882279, -1.258065, 0.375807),
)


@dataclass(frozen=True, kw_only=True)
class BAVARDAGE(Method):
    """Variational Bayes with the base classes' covariance; probabilities are the responsibilities.

    Parameters
    ----------
    marginal : {"estimated", "uniform"}
        Whether the classes' shares among the queries are learned or held equal.
    """

    needs_base: ClassVar[bool] = True

    preprocess: str = "cl2n"
    marginal: str = "estimated"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_name("marginal", self.marginal, ("estimated", "uniform"))

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        xp = namespace(points.support)
        x = xp.concat([points.support, points.rest], axis=1)  # (b, n, d)
        base = require_base("bavardage", self.base, x.shape[-1])
        whitened = _whitened(x, like(base.sphere_factor, x, x.dtype))
        given = xp.matrix_transpose(one_hot(points.codes, points.n_classes, x.dtype))  # (b, c, s)
        size = _TASKS if on_host(x) else x.shape[0]
        found = [self._rounds(*(a[part, ...] for a in (x, whitened, given))) for part in chunks(x.shape[0], size)]
        logs, anchors = (xp.concat(arrays, axis=0) for arrays in zip(*found, strict=True))
        scores = xp.matrix_transpose(logs)[:, : points.n_query, :] / self.tau
        return direct_outcome(scores, anchors=anchors), DIRECT

    def _rounds(self, x: Array, whitened: Array, given: Array) -> tuple[Array, Array]:
        """Logarithms of responsibilities (b, c, n - s) and class means (b, c, d) of some tasks."""
        xp = namespace(x)
        (b, n, _), (_, c, s) = x.shape, given.shape
        gram = x @ xp.matrix_transpose(x)
        scaled = _scaled_gram(gram, whitened @ xp.matrix_transpose(whitened))
        nothing = xp.zeros((b, c, n - s), dtype=x.dtype, device=device(x))
        shares = xp.concat([given, nothing], axis=2)  # (b, c, n)
        for _ in range(_ROUNDS):
            nearness, _ = _nearness(gram, shares, 0.0)
            shares = xp.concat([given, xp.exp(_log_softmax(_MEANS_TEMPERATURE * nearness[:, :, s:]))], axis=2)
        for _ in range(_ROUNDS):
            logs = _log_softmax(self._logits(scaled, shares, s)[:, :, s:])
            shares = xp.concat([given, xp.exp(logs)], axis=2)
        return logs, (shares @ x) / xp.sum(shares, axis=2, keepdims=True)

    def _logits(self, gram: Array, shares: Array, s: int) -> Array:
        """Of the responsibilities (b, c, n), with the parameters that belong to the last ones."""
        xp = namespace(gram)
        nearness, counts = _nearness(gram, shares, _MEAN_PRIOR)
        logits = 0.5 * _TEMPERATURE * nearness - 0.5 * (shares.shape[1] - 1) / counts
        if self.marginal == "uniform":
            return logits
        mass = _SHARE_PRIOR + xp.sum(shares[:, :, s:], axis=2, keepdims=True)
        return logits + digamma(mass) - digamma(xp.sum(mass, axis=1, keepdims=True))


def _nearness(gram: Array, shares: Array, prior: float) -> tuple[Array, Array]:
    """2 x m - |m|^2 for means m under shares, a prior count of zeros among them (b, c, n); and their counts (b, c, 1).

    It is -|x - m|^2 but for |x|^2, which is the same for all classes.
    """
    xp = namespace(gram)
    counts = prior + xp.sum(shares, axis=2, keepdims=True)
    weights = shares / counts
    cross = weights @ gram  # (b, c, n)
    return 2 * cross - xp.sum(weights * cross, axis=2, keepdims=True), counts


def _log_softmax(x: Array) -> Array:
    """Over the classes of (b, c, n)."""
    xp = namespace(x)
    x = x - xp.max(x, axis=1, keepdims=True)
    return x - xp.log(xp.sum(xp.exp(x), axis=1, keepdims=True))


def _whitened(x: Array, factor: Array) -> Array:
    """Vectors times a lower triangular matrix (b, n, d).

    Tasks are often drawn from one pool: a vector that many of a batch have is multiplied once.
    """
    xp = namespace(x)
    rows = xp.reshape(x, (-1, x.shape[-1]))
    first, place = _distinct(rows) if is_numpy(xp) else (None, None)
    if first is not None:
        rows = rows[first]
    edges = [x.shape[-1] * i // _BLOCKS for i in range(_BLOCKS + 1)]
    product = xp.concat([rows[:, lo:] @ factor[lo:, lo:hi] for lo, hi in itertools.pairwise(edges)], axis=1)
    return xp.reshape(product if place is None else product[place], x.shape)


def _distinct(rows: Array) -> tuple[Array | None, Array | None]:
    """Places of distinct rows, and for each row which of them it is; nothing where most rows are distinct."""
    keys = np.stack([np.sum(rows, axis=1), rows[:, 0]], axis=1).astype(np.float32).view(np.uint64)[:, 0]
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) > _MOSTLY_DISTINCT * len(rows) or not np.array_equal(rows[first[place]], rows):
        return None, None
    return first, place


def _scaled_gram(gram: Array, inverse: Array) -> Array:
    """Inner products after each principal direction has been scaled by min(spread of the base^-1, 5) (b, n, n).

    With G = x x' and the inverse B = x S^-1 x' this is the smaller of B and 25 G in their common eigenvectors,
    (B + 25 G - |B - 25 G|) / 2. Relative to B + 25 G their difference has eigenvalues between -1 and 1, so that
    nothing is badly scaled.
    """
    xp = namespace(gram)
    n = gram.shape[-1]
    gram = _LARGEST_SCALE**2 * gram
    total, difference = inverse + gram, inverse - gram
    # points that coincide have no directions between them: a ridge keeps the factor from dividing by zero
    ridge = 1e-30 + 1e2 * xp.finfo(gram.dtype).eps * xp.max(total, axis=(-2, -1), keepdims=True)
    lower = xp.linalg.cholesky(total + ridge * xp.eye(n, dtype=gram.dtype, device=device(gram)))
    back = _lower_inverse(lower)
    relative = back @ difference @ xp.matrix_transpose(back)
    return 0.5 * (total - lower @ (relative @ _sign(relative)) @ xp.matrix_transpose(lower))


def _lower_inverse(lower: Array) -> Array:
    """The inverse of lower triangular matrices (b, n, n) by their halves, which costs half of a general one."""
    xp = namespace(lower)
    n = lower.shape[-1]
    if n < _SMALL:
        return xp.linalg.inv(lower)
    h = n // 2
    first, second = _lower_inverse(lower[:, :h, :h]), _lower_inverse(lower[:, h:, h:])
    corner = -(second @ lower[:, h:, :h] @ first)
    above = xp.zeros_like(xp.matrix_transpose(corner))
    return xp.concat([xp.concat([first, above], axis=2), xp.concat([corner, second], axis=2)], axis=1)


def _sign(matrix: Array) -> Array:
    """Eigenvalues between -1 and 1 of symmetric matrices (b, n, n) replaced by their signs.

    Polynomials, since products of small matrices are far cheaper than their eigenvectors.
    """
    for a, b, c in _SIGN_STEPS:
        square = matrix @ matrix
        matrix = a * matrix + matrix @ (b * square + c * (square @ square))
    return matrix
