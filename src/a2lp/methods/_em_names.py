"""Expectation-maximisation on the graph with class names; docs/names.md has the equations.

As without names, everything is computed from inner products, here of the points and the names together: a class's
anchor is a weighted sum of points and of its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from a2lp.arrays import Array, cholesky_solve, device, digamma, kth_largest, namespace, softmax
from a2lp.engines.contract import Points
from a2lp.graph import gram_affinity, normalise
from a2lp.loops.em import LEAST, SINKHORN_ROUNDS, Result
from a2lp.methods._names import text_logits
from a2lp.preprocess import unit_gram

REASON = "tasks with class names are solved by array operations; the compiled engines have no names"
_NEAREST = 5  # neighbours whose differences whiten the points
_RIDGE = 0.3  # in mean eigenvalues
_SHOTS_OF_A_NAME = 4.0  # shots of a class at which its name counts half


class Settings(NamedTuple):
    """The constants of a run; ``A2LPEM`` documents them."""

    whitening: bool = True
    n_neighbors: int = 20
    gamma: float = 3
    alpha: float = 0.6
    temperature: float = 12.0  # anchors of unit length, as the names are, are farther apart than plain means
    rounds: int = 10
    prior: float = 2.0
    share_weight: float = 1.0
    text_weight: float = 1.5
    uniform: bool = False


def with_shots(text_weight: float, shots: float) -> float:
    """The weight of the names where each class has so many shots on average."""
    return text_weight / (1 + shots / _SHOTS_OF_A_NAME)


def run(points: Points, settings: Settings) -> Result:
    """Solve tasks with names; vectors and names are unit vectors."""
    vectors, names = points.vectors, points.prototypes
    assert names is not None
    xp, n, c, s = namespace(vectors), vectors.shape[1], points.n_classes, points.codes.shape[1]
    gram = joint_products(vectors, names, settings.whitening)  # (b, n + c, n + c)
    graph = normalise(gram_affinity(gram[:, :n, :n], max(1, min(settings.n_neighbors, n - 1)), settings.gamma))
    spread = xp.linalg.inv(xp.eye(n, dtype=vectors.dtype, device=device(vectors)) - settings.alpha * graph)
    own_name = xp.eye(c, dtype=vectors.dtype, device=device(vectors))[None, :, :]
    shares = rounds(
        xp.matrix_transpose(text_logits(points)),
        points.memberships[:, :, :s],
        lambda shares: shares @ spread,
        lambda shares, trust: _anchors(shares, trust, gram, own_name) @ gram[:, :, :n],
        settings,
    )
    return Result(shares, (shares @ vectors) / xp.clip(xp.sum(shares, axis=2, keepdims=True), min=LEAST))


def rounds(
    text: Array,
    given: Array,
    propagate: Callable[[Array], Array],
    cosines: Callable[[Array, Array], Array],
    settings: Settings,
) -> Array:
    """Soft labels of all points (b, c, n), those of the labelled ones, which come first, as given.

    Parameters
    ----------
    text : array (b, c, n)
        Logarithms of the probabilities that names give.
    given : array (b, c, s)
        The labels of the first points as 0 and 1.
    propagate : callable
        (I - alpha S)^-1 times soft labels (b, c, n), S the normalised graph.
    cosines : callable
        From soft labels (b, c, n) and the trust in their means (b, c, 1), the cosines of all points with unit anchors
        between the classes' means and their names (b, c, n).
    settings : Settings
    """
    xp, (_, c, n), s = namespace(text), text.shape, given.shape[2]
    uniform = settings.uniform and n - s >= c  # with fewer points than classes, no uniform marginal exists

    def smoothed(unknown: Array) -> Array:
        """Soft labels of all points (b, c, n), those of the points without a label propagated."""
        found = propagate(xp.concat([given, unknown], axis=2))[:, :, s:]
        found = xp.clip(found, min=0.0) + LEAST
        found = found / xp.sum(found, axis=1, keepdims=True)
        for _ in range(SINKHORN_ROUNDS * uniform):
            found = found * ((n - s) / c / xp.clip(xp.sum(found, axis=2, keepdims=True), min=LEAST))
            found = found / xp.clip(xp.sum(found, axis=1, keepdims=True), min=LEAST)
        return xp.concat([given, found], axis=2)

    shares = smoothed(xp.exp(text[:, :, s:]))
    for _ in range(settings.rounds):
        near = cosines(shares, _trust(shares))[:, :, s:]
        logits = 2 * settings.temperature * near + settings.text_weight * text[:, :, s:]
        if not uniform:
            mass = xp.sum(shares[:, :, s:], axis=2, keepdims=True)
            logits = logits + settings.share_weight * digamma(settings.prior + mass)
        shares = smoothed(softmax(logits, axis=1))
    return shares


def _trust(shares: Array) -> Array:
    """How far each class's anchor is at its mean (b, c, 1): as many points as have it for their label, against one."""
    xp = namespace(shares)
    best = xp.max(shares, axis=1, keepdims=True)
    counts = xp.sum(xp.astype(shares >= best, shares.dtype), axis=2, keepdims=True)
    return counts / (1 + counts)


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


def _anchors(shares: Array, trust: Array, gram: Array, own_name: Array) -> Array:
    """Each class's anchor as weights of points and names (b, c, n + c), of unit length: between its mean and name."""
    xp = namespace(shares)
    means = shares / xp.clip(xp.sum(shares, axis=2, keepdims=True), min=LEAST)
    means = xp.concat([means, xp.zeros_like(own_name + means[:, :, :1])], axis=2)
    names = xp.concat([xp.zeros_like(shares), own_name + xp.zeros_like(shares[:, :, :1])], axis=2)
    return _unit(trust * _unit(means, gram) + (1 - trust) * names, gram)


def _unit(weights: Array, gram: Array) -> Array:
    """Weights (b, c, n + c) scaled so that their sums of points and names have unit length."""
    xp = namespace(gram)
    squares = xp.sum(weights * (weights @ gram), axis=2, keepdims=True)
    some = squares > 32 * float(xp.finfo(gram.dtype).eps)
    return weights / xp.where(some, xp.sqrt(xp.where(some, squares, xp.ones_like(squares))), xp.ones_like(squares))
