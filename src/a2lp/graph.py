"""The nearest-neighbour graph of a task (eq. 1-3), dense and batched, for any array library.

Similarities are inner products of points (b, n, d), as in the authors' code. They equal the paper's cosines for unit
vectors, which all points but adapted anchors are.
"""

from __future__ import annotations

from typing import Any

from a2lp.arrays import Array, device, kth_largest, namespace

# Similarities closer than this many roundings are equal: matrix products round those of two copies of a point
# differently, in every library in its own way.
_TIE = 8
DEGREE_OFFSET = 1e-12  # an isolated point then has a row of zeros, not NaN


def similarities(points: Array) -> Array:
    """Non-negative similarities [v_i . v_j]_+ (b, n, n), with a diagonal of -1: a point is not its own neighbour.

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.graph import similarities
    >>> similarities(np.array([[[1.0, 0.0], [0.6, 0.8]]])).tolist()
    [[[-1.0, 0.6], [0.6, -1.0]]]
    """
    return gram_similarities(points @ namespace(points).matrix_transpose(points))


def gram_similarities(gram: Array) -> Array:
    """``similarities`` from inner products (b, n, n)."""
    xp = namespace(gram)
    return xp.where(xp.eye(gram.shape[-1], dtype=xp.bool, device=device(gram)), -1.0, xp.clip(gram, min=0.0))


def neighbours(sim: Array, k: int, threshold: Array | None = None) -> Array:
    """Which k columns each row keeps: its largest similarities, ties going to the lower column.

    Parameters
    ----------
    sim : array (b, n, n)
        Similarities with a diagonal of -1.
    k : int
        At most n - 1.
    threshold : array (b, n, 1), optional
        The k-th largest similarity of each row, if it is known.

    Returns
    -------
    array of bool (b, n, n)

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.graph import neighbours
    >>> neighbours(np.array([[[-1.0, 0.6, 0.2], [0.6, -1.0, 0.1], [0.2, 0.1, -1.0]]]), 1).astype(int).tolist()
    [[[0, 1, 0], [1, 0, 0], [1, 0, 0]]]
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
    """The relative difference up to which two similarities count as equal."""
    return _TIE * (2.0**-52 if "float64" in str(dtype) else 2.0**-23)


def share(chosen: Array, dtype: object) -> Array:
    """The share of a similarity that enters W: 1 where both points chose each other, 1/2 where one did, else 0."""
    xp = namespace(chosen)
    one_way = xp.astype(chosen, dtype)
    return 0.5 * (one_way + xp.matrix_transpose(one_way))


def affinity(points: Array, n_neighbors: int, gamma: float) -> Array:
    """W = (A + A') / 2 of eq. 1, shape (b, n, n).

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.graph import affinity
    >>> affinity(np.array([[[1.0, 0.0], [0.6, 0.8]]]), n_neighbors=1, gamma=1).tolist()
    [[[0.0, 0.6], [0.6, 0.0]]]
    """
    return gram_affinity(points @ namespace(points).matrix_transpose(points), n_neighbors, gamma)


def gram_affinity(gram: Array, n_neighbors: int, gamma: float) -> Array:
    """``affinity`` from inner products (b, n, n)."""
    sim = gram_similarities(gram)
    return share(neighbours(sim, n_neighbors), sim.dtype) * namespace(sim).clip(sim, min=0.0) ** gamma


def degrees(weights: Array) -> Array:
    """Row sums of W plus a small offset (b, n).

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.graph import degrees
    >>> degrees(np.array([[[0.0, 0.6], [0.6, 0.0]]])).round(6).tolist()
    [[0.6, 0.6]]
    """
    return namespace(weights).sum(weights, axis=-1) + DEGREE_OFFSET


def normalise(weights: Array, offset: float = DEGREE_OFFSET) -> Array:
    """D^-1/2 W D^-1/2 (eq. 2), with ``offset`` added to the degrees.

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.graph import normalise
    >>> normalise(np.array([[[0.0, 0.6], [0.6, 0.0]]])).round(6).tolist()
    [[[0.0, 1.0], [1.0, 0.0]]]
    """
    xp = namespace(weights)
    scale = 1.0 / xp.sqrt(xp.sum(weights, axis=-1) + offset)
    return scale[..., :, None] * weights * scale[..., None, :]
