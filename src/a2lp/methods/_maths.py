"""Mathematics that several methods use."""

from __future__ import annotations

from a2lp.arrays import Array, namespace, one_hot


def class_means(support: Array, codes: Array, n_classes: int) -> Array:
    """Mean support vector of each class (b, c, d)."""
    xp = namespace(support)
    labels = one_hot(codes, n_classes, support.dtype)  # (b, s, c)
    counts = xp.sum(labels, axis=1)[:, :, None]  # (b, c, 1)
    return (xp.matrix_transpose(labels) @ support) / counts


def squared_distances(x: Array, w: Array) -> Array:
    """|x_i - w_j|^2 for rows of x (b, n, d) and w (b, c, d)."""
    xp = namespace(x)
    cross = x @ xp.matrix_transpose(w)
    return xp.sum(x * x, axis=-1)[:, :, None] + xp.sum(w * w, axis=-1)[:, None, :] - 2 * cross
