"""Mathematics of methods that use class names: text probabilities, a directed graph, and mixtures smoothed on it."""

from __future__ import annotations

from a2lp.arrays import Array, device, kth_largest, log_softmax, namespace, softmax
from a2lp.engines.contract import Points

LOGIT_SCALE = 100.0  # of the cosines between images and names; CLIP's own, to which it was trained
_SMOOTHING_STEPS = 5
WIDTH = 50.0  # of the likelihood against the text; also the weight of the graph
_LEAST_VARIANCE = 1e-6  # of a coordinate, in units of 1/d, the mean square of a unit vector's coordinates


def text_logits(points: Points, scale: float = LOGIT_SCALE) -> Array:
    """Logarithms of the probabilities that the names alone give every point (b, n, c)."""
    assert points.prototypes is not None  # of methods that require names
    return log_softmax(scale * (points.vectors @ namespace(points.vectors).matrix_transpose(points.prototypes)))


def neighbour_graph(vectors: Array, n_neighbors: int) -> Array:
    """Cosines of each point (rows) with its nearest other points, zero elsewhere (b, n, n)."""
    xp, n = namespace(vectors), vectors.shape[1]
    if n == 1:
        return xp.zeros((vectors.shape[0], 1, 1), dtype=vectors.dtype, device=device(vectors))
    itself = xp.eye(n, dtype=vectors.dtype, device=device(vectors))
    cosines = vectors @ xp.matrix_transpose(vectors) - 4.0 * itself  # a point is not its own neighbour
    return xp.where(cosines >= kth_largest(cosines, min(n_neighbors, n - 1)), cosines, xp.zeros_like(cosines))


def smoothing_graph(vectors: Array, n_neighbors: int) -> Array:
    """TransCLIP's graph: ``neighbour_graph`` made symmetric, with the weight that it has in the mixture."""
    graph = neighbour_graph(vectors, n_neighbors)
    return WIDTH / (2 * n_neighbors) * (graph + namespace(vectors).matrix_transpose(graph))


def smoothed(likelihood: Array, text: Array, graph: Array, shares: Array, n_labelled: int) -> Array:
    """Soft labels (b, n, c) of TransCLIP's mixture, given the last ones; those of the labelled points stay.

    z_i is proportional to exp(text_i + (likelihood_i + (graph z)_i) / 50), in a few rounds.
    """
    xp = namespace(likelihood)
    labelled = shares[:, :n_labelled, :]
    for _ in range(_SMOOTHING_STEPS):
        logits = text + (likelihood + graph @ shares)[:, n_labelled:, :] / WIDTH
        shares = xp.concat([labelled, softmax(logits)], axis=1)
    return shares


def gaussian_logits(vectors: Array, means: Array, variances: Array) -> Array:
    """-1/2 (x - mu_c)' diag(variances_c)^-1 (x - mu_c) for all points and classes (b, n, c)."""
    xp = namespace(vectors)
    precision = 1.0 / variances
    squares = (vectors * vectors) @ xp.matrix_transpose(precision)  # (b, n, c or 1)
    cross = vectors @ xp.matrix_transpose(means * precision)
    return cross - 0.5 * (squares + xp.sum(means * means * precision, axis=-1)[:, None, :])


def weighted_variances(vectors: Array, means: Array, weights: Array) -> Array:
    """Mean squares of x - mu_c under weights (b, c, n), for each class and coordinate (b, c, d)."""
    xp = namespace(vectors)
    total = xp.clip(xp.sum(weights, axis=-1, keepdims=True), min=float(xp.finfo(vectors.dtype).smallest_normal))
    first, second = (weights @ x / total for x in (vectors, vectors * vectors))
    return at_least(second - 2 * means * first + means * means)


def at_least(variances: Array) -> Array:
    """Variances that can be divided by: those of equal points are zero up to rounding."""
    return namespace(variances).clip(variances, min=_LEAST_VARIANCE / variances.shape[-1])
