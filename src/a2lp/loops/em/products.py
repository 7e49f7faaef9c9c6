"""Inner products of a task's points, as expectation-maximisation takes them: rooted, centred, locally whitened."""

from __future__ import annotations

import numpy as np
from array_api_compat import device

from a2lp.arrays import Array, is_numpy, kth_largest, namespace
from a2lp.engines.contract import Points
from a2lp.preprocess import rooted, unit_gram

# of the squares of a task's entries. After a (leaky) ReLU the negative ones are a small part, a tenth or so, and roots
# would make much of them; features that have both signs by nature have half or more.
_MOSTLY_POSITIVE = 2 / 3
_LOCAL_NEIGHBOURS = 12
_LOCAL_RIDGE = 6.0  # mean eigenvalues that are added to each


def inner_products(points: Points, root: bool, uniform: bool, local_whitening: bool) -> Array:
    """Inner products of unit vectors (b, n, n)."""
    x = points.vectors
    xp = namespace(x)
    if root:
        x = _rooted(x)
        weights = _all_alike(x) if uniform else _centre(points)
        gram = _centred(unit_gram(x @ xp.matrix_transpose(x)), weights)
    else:
        gram = x @ xp.matrix_transpose(x)
    return locally_whitened(gram) if local_whitening else gram


def _rooted(x: Array) -> Array:
    """Signed square roots; where a task's negative entries are a small part they count as zero."""
    xp = namespace(x)
    positive = xp.clip(x, min=0.0)
    kept, total = (xp.sum(xp.vecdot(v, v), axis=1) for v in (positive, x))  # (b,)
    rectify = kept >= _MOSTLY_POSITIVE * total
    if bool(xp.all(rectify)):
        return rooted(positive, "clamp")
    return rooted(xp.where(rectify[:, None, None], positive, x), "sign")


def _all_alike(x: Array) -> Array:
    """Weights of the points (b, n) in their mean."""
    return namespace(x).full(x.shape[:2], 1.0 / x.shape[1], dtype=x.dtype, device=device(x))


def _centre(points: Points) -> Array:
    """Weights of the points (b, n) in what they are centred on.

    The mean of all lies near the classes that have most queries, which brings those classes close to zero. The mean of
    the support's class means has every class alike, but is of few points. So: between them, nearer to the second the
    more shots there are.
    """
    x, labels = points.vectors, points.labels  # (b, n, d), (b, s, c)
    xp = namespace(x)
    (b, s, c), n = labels.shape, x.shape[1]
    shots = xp.clip(xp.sum(labels, axis=1, keepdims=True), min=1.0)
    supported = xp.sum(labels / shots, axis=2) / c  # (b, s)
    rest = xp.zeros((b, n - s), dtype=x.dtype, device=device(x))
    trust = s / (s + c)
    return trust * xp.concat([supported, rest], axis=1) + (1 - trust) * _all_alike(x)


def _centred(gram: Array, weights: Array) -> Array:
    """Inner products (b, n, n) of points less their sum under weights (b, n), made unit."""
    xp = namespace(gram)
    inner = gram @ weights[:, :, None]  # (b, n, 1)
    square = xp.sum(weights[:, :, None] * inner, axis=1, keepdims=True)
    gram = gram - inner - xp.matrix_transpose(inner) + square
    # what centring leaves of points that are all equal is rounding, not a direction
    return unit_gram(gram, 32)


def locally_whitened(gram: Array) -> Array:
    """Inner products (b, n, n) after the spread of points about their nearest neighbours was made rounder.

    With E the points X less the means of their neighbours and r the ridge, points become X (E'E + r I)^(-1/2), up to
    a factor, made unit. By the Woodbury identity this takes n by n matrices alone. NumPy's are changed in place, by
    compiled code: NumPy has neither a fast k-th largest nor products with few neighbours.
    """
    xp = namespace(gram)
    n, eps = gram.shape[-1], float(xp.finfo(gram.dtype).eps)
    k, least_ridge, least_square = min(_LOCAL_NEIGHBOURS, n - 1), 4 * (n + 16) * eps, 32 * eps
    if is_numpy(xp):
        from a2lp.loops.em import whitening

        gram = np.ascontiguousarray(gram)
        constants = np.array([_LOCAL_RIDGE / n, least_ridge, least_square], gram.dtype)
        whitening.whiten_tasks(gram, k, constants, whitening.make_workspace(n, gram.dtype))
        return gram
    eye = xp.eye(n, dtype=gram.dtype, device=device(gram))
    others = gram - 4.0 * eye  # a point is no neighbour of its own
    near = xp.astype(others >= kth_largest(others, k), gram.dtype)
    averages = near / xp.sum(near, axis=-1, keepdims=True)
    across = gram - averages @ gram  # E X'
    within = across - across @ xp.matrix_transpose(averages)  # E E'
    spread = xp.sum(xp.clip(xp.linalg.diagonal(within), min=0.0), axis=-1)[:, None, None]
    # points that are all equal have no spread but rounding: nothing is divided by that
    ridge = _LOCAL_RIDGE / n * spread + least_ridge
    taken = xp.matrix_transpose(across) @ xp.linalg.solve(within + ridge * eye, across)
    return unit_gram(gram - taken, 32)
