"""Inner products of a task's points for expectation-maximisation: powers, centred, whitened; regression on them."""

from __future__ import annotations

import numpy as np

from a2lp.arrays import Array, device, is_numpy, kth_largest, namespace
from a2lp.engines.contract import Points
from a2lp.preprocess import rooted, unit_gram

# Share of the squares of a task's entries. After a (leaky) ReLU the negative entries have about a tenth of them, and
# powers would enlarge them; features with both signs by nature have half or more.
_MOSTLY_POSITIVE = 2 / 3
_LOCAL_NEIGHBOURS = 12
_LOCAL_RIDGE = 6.0  # in mean eigenvalues
_SUPPORT_RIDGE = 0.2


def inner_products(vectors: Array, powered: bool, local_whitening: bool) -> Array:
    """Inner products (b, n, n) of unit vectors."""
    xp = namespace(vectors)
    if powered:
        # NumPy's one after the other, so that a task's entries stay in a core's cache
        parts = [vectors[i : i + 1, ...] for i in range(vectors.shape[0])] if is_numpy(xp) else [vectors]
        powers = map(_powered, parts)
        gram = unit_gram(xp.concat([x @ xp.matrix_transpose(x) for x in powers], axis=0))
    else:
        gram = vectors @ xp.matrix_transpose(vectors)
    return locally_whitened(gram) if local_whitening else gram


def _powered(x: Array) -> Array:
    """Entries to the power 5/8 with their signs; where a task's negative entries are small they become zero."""
    xp = namespace(x)
    positive = xp.clip(x, min=0.0)
    kept, total = (xp.sum(xp.vecdot(v, v), axis=1) for v in (positive, x))  # (b,)
    rectify = kept >= _MOSTLY_POSITIVE * total
    if bool(xp.all(rectify)):
        roots = rooted(positive, "clamp")
        return roots * xp.sqrt(xp.sqrt(roots))
    roots = rooted(xp.where(rectify[:, None, None], positive, x), "sign")
    return roots * xp.sqrt(xp.sqrt(xp.abs(roots)))


def centred(gram: Array, weights: Array) -> Array:
    """Inner products (b, n, n) of points minus their sum under weights (b, n), normalised."""
    xp = namespace(gram)
    inner = gram @ weights[:, :, None]  # (b, n, 1)
    square = xp.sum(weights[:, :, None] * inner, axis=1, keepdims=True)
    # equal points have no direction after centring, only rounding
    return unit_gram(gram - inner - xp.matrix_transpose(inner) + square, 32)


def stretched(gram: Array) -> Array:
    """Inner products (b, n, n) over the largest of two different points, which leaves the normalised graph as it is.

    High powers of small cosines, as of signed features, would otherwise be lost beside the offset of degrees.
    """
    xp = namespace(gram)
    others = gram - 2.0 * xp.eye(gram.shape[-1], dtype=gram.dtype, device=device(gram))  # unit vectors: all are below 1
    largest = xp.max(xp.max(others, axis=-1), axis=-1)[:, None, None]
    return gram / xp.where(largest > float(xp.finfo(gram.dtype).eps), largest, xp.ones_like(largest))


def ridge_scores(gram: Array, points: Points) -> Array:
    """Kernel ridge regression of the support's labels (b, c, n): high for a class where points are near its shots."""
    xp, s = namespace(gram), points.codes.shape[1]
    targets = points.labels - 1.0 / points.n_classes  # (b, s, c)
    eye = xp.eye(s, dtype=gram.dtype, device=device(gram))
    weights = xp.linalg.solve(gram[:, :s, :s] + _SUPPORT_RIDGE * eye, targets)
    return xp.matrix_transpose(gram[:, :, :s] @ weights)


def locally_whitened(gram: Array) -> Array:
    """Inner products (b, n, n) after whitening by the deviations of points from their nearest neighbours.

    With E the points X minus the means of their neighbours and r the ridge, points become X (E'E + r I)^(-1/2), up to
    a factor, normalised; by the Woodbury identity only (n, n) matrices are needed. NumPy's are changed in place by
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
    others = gram - 4.0 * eye  # a point is not its own neighbour
    near = xp.astype(others >= kth_largest(others, k), gram.dtype)
    averages = near / xp.sum(near, axis=-1, keepdims=True)
    across = gram - averages @ gram  # E X'
    within = across - across @ xp.matrix_transpose(averages)  # E E'
    spread = xp.sum(xp.clip(xp.linalg.diagonal(within), min=0.0), axis=-1)[:, None, None]
    ridge = _LOCAL_RIDGE / n * spread + least_ridge  # equal points deviate by rounding only
    taken = xp.matrix_transpose(across) @ xp.linalg.solve(within + ridge * eye, across)
    return unit_gram(gram - taken, 32)
