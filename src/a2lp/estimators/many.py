"""Label propagation for many points, on the sparse graph of ``a2lp.pool``."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from a2lp.arrays import softmax
from a2lp.encoding import NdArray
from a2lp.engines.contract import Settings
from a2lp.estimators.base import Answer
from a2lp.graph import neighbours


def solve(points: NdArray, codes: NdArray, settings: Settings) -> tuple[Answer, NdArray, int]:
    """Adapt the anchors (with 0 steps they stay), propagate, and label the points with code -1.

    Parameters
    ----------
    points : array (n, d)
        Unit vectors.
    codes : array (n,)
        Classes; -1 for the points to label.
    settings : Settings

    Returns
    -------
    answer, anchors (s, d), steps
    """
    from a2lp.pool.adapt import adapt  # compiles at its first use
    from a2lp.pool.graph import neighbour_graph
    from a2lp.pool.neighbours import nearest
    from a2lp.pool.propagate import propagate

    if settings.numerics != "exact":
        points = points.astype(np.float32)  # as in the published code
    labelled = codes >= 0
    # relative residuals: as small as the rounding of Z allows, and no smaller than anybody can use
    tolerance = max(1e-9, 8 * float(np.finfo(points.dtype).eps) / (1 - settings.alpha))
    if settings.steps:
        adapted = adapt(points, codes, settings, tolerance=tolerance)
        z, anchors, graph, steps = adapted.Z, adapted.anchors, adapted.graph, len(adapted.losses)
    else:
        graph = neighbour_graph(points, settings.n_neighbors, settings.gamma)
        one_hot = np.eye(codes.max() + 1, dtype=points.dtype)[codes] * labelled[:, None]
        z = propagate(graph, one_hot.astype(points.dtype), settings.alpha, tolerance=tolerance).Z
        anchors, steps = points[labelled], 1
    reached = graph.reached(labelled)
    rest = np.flatnonzero(~labelled)
    z = np.where(reached[rest, None], np.maximum(z[rest], 0), 0)  # the solver may leave values slightly below 0
    found = z.argmax(axis=1)
    lost = np.flatnonzero(z.max(axis=1) <= 0)  # unreached, or so far from all labels that Z is rounded to 0
    if len(lost):
        found[lost] = codes[labelled][nearest(points[rest[lost]], anchors, 1)[0][:, 0]]
    return Answer(found, softmax(settings.tau * z), reached[rest]), anchors, steps


def affinities(
    new: NdArray, points: NdArray, moved: NdArray, n_neighbors: int, gamma: float
) -> sparse.csr_array[np.floating[Any]]:
    """The affinities [v' x]_+ ** gamma (m, n) of new unit vectors (m, d) to the nearest of the fitted points (n, d).

    Those that have moved (n,) may be of any length, as adapted anchors are; the others are unit vectors.
    """
    from a2lp.pool.neighbours import nearest

    anchors, rest = np.flatnonzero(moved), np.flatnonzero(~moved)
    places, cosines = nearest(new, points[rest], n_neighbors)
    similarity = np.maximum(np.concatenate([new @ points[anchors].T, cosines], axis=1), 0)  # (m, s + k)
    columns = np.concatenate([np.broadcast_to(anchors, (len(new), len(anchors))), rest[places]], axis=1)
    chosen = neighbours(similarity, n_neighbors) & (similarity > 0)
    rows, _ = np.nonzero(chosen)
    return sparse.csr_array((similarity[chosen] ** gamma, (rows, columns[chosen])), shape=(len(new), len(points)))
