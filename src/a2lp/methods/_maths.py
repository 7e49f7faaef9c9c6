"""Mathematics that several methods use."""

from __future__ import annotations

import numpy as np

from a2lp import cores
from a2lp.arrays import Array, chunks, device, is_numpy, namespace, one_hot, softmax
from a2lp.engines.contract import Points
from a2lp.kernels import per_task
from a2lp.preprocess import l2, unit_gram

_LEAST_KERNEL = 1e-26  # added, since zeros cannot be scaled; entries between unit vectors are above 1e-17
_LEAST_PROBABILITY = 1e-30
_SINKHORN_ROUNDS = 1000
_FILLING_ROUNDS = 50
_LEAST_MASS = 1e-20
_TIE = 1e-6


def squared_distances(x: Array, w: Array) -> Array:
    """|x_i - w_j|^2 for rows of x (b, n, d) and w (b, c, d)."""
    xp = namespace(x)
    cross = x @ xp.matrix_transpose(w)
    return xp.vecdot(x, x)[:, :, None] + xp.vecdot(w, w)[:, None, :] - 2 * cross


def gram_distances(gram: Array) -> Array:
    """|x_i - x_j|^2 from inner products (b, n, n): never negative, and exactly zero where only rounding is left."""
    xp = namespace(gram)
    squares = xp.linalg.diagonal(gram)  # (b, n)
    sums = squares[:, :, None] + squares[:, None, :]
    distances = sums - 2 * gram
    return xp.where(distances > 32 * xp.finfo(gram.dtype).eps * sums, distances, xp.zeros_like(distances))


def rectified_means(points: Points, scale: float) -> tuple[Array, Array]:
    """BD-CSPN's class means (b, c, d), and the shift (b, 1, d) of the rest onto the support's mean.

    A single point is not shifted: it would land on the support's mean whatever it was. After the shift every point
    votes for the class whose support mean has the largest cosine to it, with the softmax of ``scale`` times the cosines
    as its weight. A new mean is the sum of weighted votes over their number, not over their weights, so that a class
    with doubtful members has a shorter mean; a class without votes keeps its support mean.
    """
    support, rest, means = points.support, points.rest, points.class_means
    xp = namespace(support)
    s = support.shape[1]
    move = xp.mean(support, axis=1, keepdims=True) - xp.mean(rest, axis=1, keepdims=True)
    if rest.shape[1] == 1:
        move = xp.zeros_like(move)
    # the shifted points, which are most of the memory, are never stored: products with them are sums
    columns = xp.matrix_transpose(xp.concat([l2(means), move], axis=1))  # (b, d, c + 1)
    shift = move @ columns  # (b, 1, c + 1)
    cross = rest @ columns
    apart = xp.vecdot(rest, rest) + shift[:, :, -1]  # (b, r)
    squares = apart + 2 * cross[:, :, -1]
    # a point that is shifted to zero, up to rounding, has no direction
    squares = xp.where(squares > 32 * xp.finfo(rest.dtype).eps * apart, squares, xp.zeros_like(squares))
    lengths = xp.sqrt(xp.concat([xp.vecdot(support, support), squares], axis=1))[:, :, None]  # (b, n, 1)
    along = xp.concat([support @ columns, cross + shift], axis=1)[:, :, :-1]  # (b, n, c)
    some = lengths > 0
    cosines = xp.where(some, along / xp.where(some, lengths, xp.ones_like(lengths)), xp.zeros_like(along))
    votes = one_hot(xp.argmax(cosines, axis=-1), points.n_classes, support.dtype)  # (b, n, c)
    counts = xp.sum(votes, axis=1)[:, :, None]  # (b, c, 1)
    weights = xp.matrix_transpose(votes * softmax(scale * cosines))  # (b, c, n)
    sums = weights[:, :, :s] @ support + weights[:, :, s:] @ rest + xp.sum(weights[:, :, s:], axis=2)[:, :, None] * move
    return xp.where(counts > 0, sums / xp.clip(counts, min=1.0), means), move


def centred_unit_gram(gram: Array, sizes: tuple[int, ...]) -> Array:
    """Inner products of unit points after consecutive groups of these sizes were centred and normalised again."""
    xp = namespace(gram)
    group = xp.concat([xp.full((size,), i, device=device(gram)) for i, size in enumerate(sizes)])
    together = xp.astype(group[:, None] == group, gram.dtype)  # (n, n)
    centre = xp.eye(gram.shape[-1], dtype=gram.dtype, device=device(gram))
    centre = centre - together / xp.sum(together, axis=0)
    # equal points have no direction after centring, only rounding
    return unit_gram(centre @ gram @ centre, 32)


def distances_to_sums(gram: Array, weights: Array) -> Array:
    """Squared distances (b, c, n) of points from their sums under weights (b, c, n), given their inner products."""
    xp = namespace(gram)
    cross = weights @ gram
    squares = xp.sum(cross * weights, axis=-1, keepdims=True)
    return xp.linalg.diagonal(gram)[:, None, :] - 2 * cross + squares


def transport(energies: Array, columns: Array, tolerance: float, fixed: Array | None = None) -> Array:
    """Shares of points (b, c, n) with the least energy, under the classes' masses ``columns``; see ``sinkhorn``.

    Where shares are equal up to the tolerance, as for a single point, the class of least energy gets a little more.
    """
    xp = namespace(energies)
    # up to a factor per point, which the scaling removes
    kernel = xp.exp(xp.min(energies, axis=1, keepdims=True) - energies) + _LEAST_KERNEL
    return sinkhorn(kernel, columns, tolerance, fixed=fixed) * (1.0 + _TIE * kernel)


def sinkhorn(
    kernel: Array, columns: Array, tolerance: float, *, rows: Array | None = None, fixed: Array | None = None
) -> Array:
    """Scale points and classes of a positive kernel (b, c, n) to the masses ``rows`` (b, n) and ``columns`` (b, c).

    The mass of a point is 1 by default. ``fixed`` (b, c) is the part of ``columns`` that belongs to labelled points,
    which are not scaled. A task stops when no point's mass, after classes were scaled, changes by more than the
    tolerance in a round, and after 1000 rounds at the latest: its plan does not depend on the other tasks.
    """
    xp = namespace(kernel)
    if is_numpy(xp):  # compiled, since NumPy's overhead is most of the time for such small arrays
        from a2lp.kernels.sinkhorn import scale as compiled_scale

        kernel = np.ascontiguousarray(kernel)
        plan = np.empty_like(kernel)
        rows = np.ones((kernel.shape[0], kernel.shape[2]), kernel.dtype) if rows is None else np.ascontiguousarray(rows)
        own = columns if fixed is None else fixed
        compiled_scale(kernel, columns, rows, own, fixed is not None, tolerance, _SINKHORN_ROUNDS, plan)
        return plan
    if per_task.can_scale(kernel):
        given = xp.ones_like(kernel[:, 0, :]) if rows is None else rows
        return per_task.scale(kernel, columns, given, fixed, tolerance, _SINKHORN_ROUNDS)
    columns = columns[:, None, :]  # (b, 1, c)
    before = xp.sum(kernel, axis=1, keepdims=True)  # (b, 1, n)  mass of each point before it is scaled
    rows = xp.ones_like(before) if rows is None else rows[:, None, :]
    by_class, by_point, masses = xp.ones_like(columns), rows, xp.zeros_like(rows)
    moving = xp.ones((kernel.shape[0], 1, 1), dtype=xp.bool, device=device(kernel))
    for _ in range(_SINKHORN_ROUNDS):
        scale = rows / before
        filled = scale @ xp.matrix_transpose(kernel)  # (b, 1, c)
        grown = columns / filled if fixed is None else by_class * columns / (fixed[:, None, :] + by_class * filled)
        by_point, by_class = xp.where(moving, scale, by_point), xp.where(moving, grown, by_class)
        before = by_class @ kernel
        last, masses = masses, before * by_point
        moving = moving & (xp.max(xp.abs(masses - last), axis=-1, keepdims=True) > tolerance)
        if not bool(xp.any(moving)):
            break
    return xp.matrix_transpose(by_class) * (kernel * by_point)


def eigh(matrices: Array) -> tuple[Array, Array]:
    """Ascending eigenvalues (b, n) and eigenvectors (b, n, n) of symmetric matrices."""
    if per_task.can_diagonalise(matrices):  # libraries are slow at many small matrices on a GPU
        return per_task.eigh(matrices)
    xp, total = namespace(matrices), matrices.shape[0]
    if is_numpy(xp) and total > 1:  # LAPACK's own threads make small matrices slower
        parts = chunks(total, -(-total // cores.count()))
        values, vectors = zip(*cores.map_on_cores(lambda part: np.linalg.eigh(matrices[part]), parts), strict=True)
        return np.concatenate(values), np.concatenate(vectors)
    values, vectors = xp.linalg.eigh(matrices)
    return values, vectors


def solve(matrix: Array, right: Array) -> Array:
    """X of ``matrix X = right`` (b, n, k); where a matrix on a GPU is singular, it is not finite."""
    if per_task.can_solve(matrix, right):  # libraries take longer, and wait for the device to report failures
        return per_task.solve(matrix, right)
    return namespace(matrix).linalg.solve(matrix, right)


def descent_losses(
    products: Array, target: Array, logits: Array, rates: tuple[float, float, float], steps: int
) -> Array:
    """Each point's cross-entropy (b, n), averaged over the steps of a descent of the logits (b, c, n).

    A step's gradient is ``(softmax - target) products`` with products (b, n, n) and one-hot targets (b, c, n).
    ``rates`` are the learning rate, the momentum, and the decay that is added to the gradient.
    """
    if per_task.can_descend(logits):
        return per_task.descent_losses(products, target, logits, rates, steps)
    xp, (rate, momentum, decay) = namespace(logits), rates
    velocity = xp.zeros_like(logits)
    logit_sums, norms = xp.zeros_like(logits), xp.zeros_like(logits[:, :1, :])
    for _ in range(steps):
        top = xp.max(logits, axis=1, keepdims=True)
        e = xp.exp(logits - top)
        sums = xp.sum(e, axis=1, keepdims=True)
        norms = norms + (top + xp.log(sums))
        logit_sums = logit_sums + logits
        velocity = momentum * velocity + (e / sums - target) @ products + decay * logits
        logits = logits - rate * velocity
    return (norms[:, 0, :] - xp.sum(target * logit_sums, axis=1)) / steps


def filled(shares: Array, least: Array) -> Array:
    """Soft labels (b, c, m) in which no class is smaller than ``least`` (b, 1, 1), as far as rows of 1 allow."""
    if per_task.can_fill(shares):
        return per_task.fill(shares, least, _LEAST_MASS, _FILLING_ROUNDS)
    xp = namespace(shares)
    for _ in range(_FILLING_ROUNDS):
        shares = shares / xp.clip(xp.sum(shares, axis=1, keepdims=True), min=_LEAST_MASS)
        mass = xp.sum(shares, axis=2, keepdims=True)
        shares = xp.where(mass < least, shares * (least / xp.clip(mass, min=_LEAST_MASS)), shares)
    return shares


def log_scores(probabilities: Array, tau: float) -> Array:
    """Scores with softmax(tau * scores) equal to these probabilities; finite where they are zero."""
    xp = namespace(probabilities)
    return xp.log(xp.clip(probabilities, min=_LEAST_PROBABILITY)) / tau
