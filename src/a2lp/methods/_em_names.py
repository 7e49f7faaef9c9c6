"""Expectation-maximisation on the graph with class names; docs/names.md has the equations.

As without names, everything is computed from inner products, here of the points and the names together: a class's
anchor is a weighted sum of points and of its name.
"""

from __future__ import annotations

from typing import NamedTuple

from a2lp.arrays import Array, cholesky_solve, device, digamma, kth_largest, log_softmax, namespace, softmax
from a2lp.engines.contract import Points
from a2lp.graph import gram_affinity, normalise
from a2lp.loops.em import LEAST, SINKHORN_ROUNDS, Result
from a2lp.preprocess import unit_gram

REASON = "tasks with class names are solved by array operations; the compiled engines have no names"
_NEAREST = 5  # neighbours whose differences whiten the points
_RIDGE = 0.3  # in mean eigenvalues
_LOGIT_SCALE = 100.0  # of the cosines between points and names; CLIP's own


class Settings(NamedTuple):
    """The constants of a run; ``A2LPEM`` documents them."""

    whitening: bool
    n_neighbors: int
    gamma: float
    alpha: float
    temperature: float
    rounds: int
    prior: float
    share_weight: float
    text_weight: float
    uniform: bool


def run(points: Points, settings: Settings) -> Result:
    """Solve tasks with names; vectors and names are unit vectors."""
    vectors, names = points.vectors, points.prototypes
    assert names is not None
    xp, n, c, s = namespace(vectors), vectors.shape[1], points.n_classes, points.codes.shape[1]
    text = xp.matrix_transpose(log_softmax(_LOGIT_SCALE * (vectors @ xp.matrix_transpose(names))))  # (b, c, n)
    gram = joint_products(vectors, names, settings.whitening)  # (b, n + c, n + c)
    graph = normalise(gram_affinity(gram[:, :n, :n], max(1, min(settings.n_neighbors, n - 1)), settings.gamma))
    spread = xp.linalg.inv(xp.eye(n, dtype=vectors.dtype, device=device(vectors)) - settings.alpha * graph)
    given = points.memberships[:, :, :s]  # (b, c, s)
    own_name = xp.eye(c, dtype=vectors.dtype, device=device(vectors))[None, :, :]
    uniform = settings.uniform and n - s >= c  # with fewer points than classes, no uniform marginal exists

    def smoothed(unknown: Array) -> Array:
        """Soft labels of all points (b, c, n), those of the points without a label propagated."""
        found = (xp.concat([given, unknown], axis=2) @ spread)[:, :, s:]
        found = xp.clip(found, min=0.0) + LEAST
        found = found / xp.sum(found, axis=1, keepdims=True)
        for _ in range(SINKHORN_ROUNDS * uniform):
            found = found * ((n - s) / c / xp.clip(xp.sum(found, axis=2, keepdims=True), min=LEAST))
            found = found / xp.clip(xp.sum(found, axis=1, keepdims=True), min=LEAST)
        return xp.concat([given, found], axis=2)

    shares = smoothed(xp.exp(text[:, :, s:]))
    for _ in range(settings.rounds):
        cross = (
            _anchors(shares, gram, own_name) @ gram[:, :, s:n]
        )  # cosines of the anchors with the points (b, c, n - s)
        logits = 2 * settings.temperature * cross + settings.text_weight * text[:, :, s:]
        if not uniform:
            mass = xp.sum(shares[:, :, s:], axis=2, keepdims=True)
            logits = logits + settings.share_weight * digamma(settings.prior + mass)
        shares = smoothed(softmax(logits, axis=1))
    return Result(shares, (shares @ vectors) / xp.clip(xp.sum(shares, axis=2, keepdims=True), min=LEAST))


def joint_products(vectors: Array, names: Array, whitening: bool) -> Array:
    """Inner products (b, n + c, n + c) of points and names, centred on the points' mean, whitened, of unit length.

    The points are whitened by half the covariance of their differences from their nearest neighbours, most of which are
    of the same class; the names go through the same map.
    """
    xp, (_, n, d) = namespace(vectors), vectors.shape
    centre = xp.mean(vectors, axis=1, keepdims=True)
    both = xp.concat([vectors, names], axis=1) - centre
    if not whitening or n == 1:
        return unit_gram(both @ xp.matrix_transpose(both), 32)
    eye = xp.eye(n, dtype=vectors.dtype, device=device(vectors))
    k = min(_NEAREST, n - 1)
    cosines = vectors @ xp.matrix_transpose(vectors) - 4.0 * eye  # a point is not its own neighbour
    near = xp.astype(cosines >= kth_largest(cosines, k), vectors.dtype)
    edges = near + xp.matrix_transpose(near)
    laplacian = eye * xp.sum(edges, axis=2)[:, :, None] - edges
    points = both[:, :n, :]
    spread = xp.matrix_transpose(points) @ (laplacian @ points) / xp.sum(edges, axis=(1, 2), keepdims=True)  # (b, d, d)
    mean_value = xp.sum(xp.linalg.diagonal(spread), axis=-1)[:, None, None] / d
    least = 4 * (n + 16) * float(xp.finfo(vectors.dtype).eps) / d  # equal points differ by rounding only
    ridge = (_RIDGE * mean_value + least) * xp.eye(d, dtype=vectors.dtype, device=device(vectors))
    right = xp.matrix_transpose(both)
    factor = xp.linalg.cholesky(spread + ridge)
    return unit_gram(both @ cholesky_solve(factor, right), 32)


def _anchors(shares: Array, gram: Array, own_name: Array) -> Array:
    """Each class's anchor as weights of points and names (b, c, n + c), of unit length.

    Its direction is between that of the class's mean and that of its name. The mean counts as much as the points whose
    largest share is the class's, the name as one point.
    """
    xp = namespace(shares)
    means = shares / xp.clip(xp.sum(shares, axis=2, keepdims=True), min=LEAST)
    means = xp.concat([means, xp.zeros_like(own_name + means[:, :, :1])], axis=2)
    best = xp.max(shares, axis=1, keepdims=True)
    counts = xp.sum(xp.astype(shares >= best, shares.dtype), axis=2, keepdims=True)
    trust = counts / (1 + counts)
    names = xp.concat([xp.zeros_like(shares), own_name + xp.zeros_like(shares[:, :, :1])], axis=2)
    return _unit(trust * _unit(means, gram) + (1 - trust) * names, gram)


def _unit(weights: Array, gram: Array) -> Array:
    """Weights (b, c, n + c) scaled so that their sums of points and names have unit length."""
    xp = namespace(gram)
    squares = xp.sum(weights * (weights @ gram), axis=2, keepdims=True)
    some = squares > 32 * float(xp.finfo(gram.dtype).eps)
    return weights / xp.where(some, xp.sqrt(xp.where(some, squares, xp.ones_like(squares))), xp.ones_like(squares))
