"""Label propagation on a graph that grows by one point at a time, as compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np


def run(
    similarity: Any, nodes: Any, weights: Any, labels: Any, *, n_neighbors: int, gamma: float, steps: int
) -> tuple[Any, Any]:
    """Scores (n, c) of one task's points at their arrival, and on the last graph.

    ``similarity`` (n, n) is that of an earlier point (row) and a later one, and ``gamma`` its power; ``nodes`` (n, f)
    are the fixed nodes that each point is linked to, with the ``weights`` of the edges; ``labels`` (a, c) are theirs.
    At each arrival there are ``steps`` of propagation.
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
