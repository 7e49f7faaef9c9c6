"""The nearest-neighbour graph of a task (eq. 1-3), dense and batched, for any array library.

Points are the rows of ``points`` (b, n, d), of unit length unless they are adapted anchors: similarities are
inner products, as in the authors' code, and equal the paper's cosines on the unit sphere.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from a2lp.arrays import Array, kth_largest, namespace

# Similarities closer than this many roundings are equal: a matrix product rounds those of two copies of a point
# differently, and differently in every library.
_TIE = 8
DEGREE_OFFSET = 1e-12  # an isolated point then has a row of zeros instead of NaN


def similarities(points: Array) -> Array:
    """Non-negative similarities [v_i . v_j]_+ (b, n, n); a point is no neighbour of its own, so the diagonal is -1."""
    xp = namespace(points)
    n = points.shape[-2]
    gram = points @ xp.matrix_transpose(points)
    return xp.where(xp.eye(n, dtype=xp.bool, device=device(points)), -1.0, xp.clip(gram, min=0.0))


def neighbours(sim: Array, k: int, threshold: Array | None = None) -> Array:
    """Which k columns each row keeps: its largest similarities, ties going to the lower column.

    Parameters
    ----------
    sim : array (b, n, n)
        Similarities with a diagonal of -1.
    k : int
        At most n - 1.
    threshold : array (b, n, 1), optional
        The k-th largest similarity of each row, where the caller knows it already.
    """
    xp = namespace(sim)
    if threshold is None:
        threshold = kth_largest(sim, k)
    slack = tie_slack(sim.dtype)
    low = threshold * (1.0 - slack)
    high = low * (1.0 + 2.0 * slack)
    chosen = sim >= low
    if int(xp.max(xp.sum(xp.astype(chosen, xp.int32), axis=-1))) <= k:
        return chosen
    above = sim > high
    tied = chosen & ~above
    room = k - xp.sum(xp.astype(above, xp.int32), axis=-1, keepdims=True)
    return above | (tied & (xp.cumulative_sum(xp.astype(tied, xp.int32), axis=-1) <= room))


def tie_slack(dtype: Any) -> float:
    """How far apart two similarities may be, as a share of them, and still count as equal."""
    eight_bytes = "float64" in str(dtype)
    return _TIE * (2.0**-52 if eight_bytes else 2.0**-23)


def share(chosen: Array, dtype: object) -> Array:
    """How much of a similarity enters W: 1 where both ends chose each other, 1/2 where one did, else 0."""
    xp = namespace(chosen)
    one_way = xp.astype(chosen, dtype)
    return 0.5 * (one_way + xp.matrix_transpose(one_way))


def affinity(points: Array, n_neighbors: int, gamma: float) -> Array:
    """W = (A + A') / 2 of eq. 1, shape (b, n, n)."""
    xp = namespace(points)
    sim = similarities(points)
    return share(neighbours(sim, n_neighbors), sim.dtype) * xp.clip(sim, min=0.0) ** gamma


def degrees(weights: Array) -> Array:
    """Row sums of W, kept away from zero (b, n)."""
    return namespace(weights).sum(weights, axis=-1) + DEGREE_OFFSET


def normalise(weights: Array) -> Array:
    """D^-1/2 W D^-1/2 (eq. 2)."""
    xp = namespace(weights)
    scale = 1.0 / xp.sqrt(degrees(weights))
    return scale[..., :, None] * weights * scale[..., None, :]
