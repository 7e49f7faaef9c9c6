"""Label propagation on a graph that grows by one point at a time, as compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np


def run(
    similarity: Any, nodes: Any, weights: Any, labels: Any, *, n_neighbors: int, gamma: float, steps: int
) -> tuple[Any, Any]:
    """Scores (n, c) of one task's points at their arrival, and on the last graph.

    Parameters
    ----------
    similarity : array (n, n)
        Of an earlier point (row) and a later one.
    nodes, weights : array (n, f)
        Fixed nodes that each point is linked to, and the weights of the edges.
    labels : array (a, c)
        Labels of the fixed nodes.
    n_neighbors, gamma : int, float
        Neighbours of each point among the points, and the power of their similarities.
    steps : int
        Of propagation at each arrival.
    """
    from a2lp.loops.stream.kernel import propagate_stream

    n, (a, c), dtype = len(similarity), labels.shape, similarity.dtype
    arrival, final, start = (np.zeros((n, c), dtype) for _ in range(3))
    near, sims = np.zeros((n, n_neighbors), np.int64), np.zeros((n, n_neighbors), dtype)
    list_near, list_sims = np.zeros((n + 2, n_neighbors), np.int64), np.zeros((n + 2, n_neighbors), dtype)
    scores, new = (np.zeros((n + 2, c), dtype) for _ in range(2))
    counts, degrees = np.zeros(n, np.int64), np.zeros(a + n + 2, dtype)
    work = near, sims, counts, list_near, list_sims, start, scores, new, degrees
    arrays = np.ascontiguousarray(similarity), nodes, weights.astype(dtype), labels.astype(dtype)
    propagate_stream(*arrays, dtype.type(gamma), steps, arrival, final, work)
    return arrival, final
