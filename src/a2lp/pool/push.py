"""What a few changed labels change in label propagation, at once.

Propagation is linear in the labels: one more label of a class adds a column of (I - alpha S)^-1 to that class, and
taking it back subtracts it. The column is found by residual push (Andersen, Chung and Lang, 2006): work is done only
where a residual is larger than a threshold, so its cost depends on the neighbourhood and hardly on the pool's size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from a2lp.errors import InputError
from a2lp.pool.graph import PoolGraph
from a2lp.pool.neighbours import NdArray

RESIDUAL = 1e-4  # with 1e-3, one label in some thousands differed from the exact solution's


def push(
    graph: PoolGraph, rows: Any, weights: Any = 1.0, alpha: float = 0.8, *, residual: float = RESIDUAL
) -> tuple[NdArray, NdArray]:
    """The change of one class's column of Z when ``weights`` are added to its column of Y in ``rows``.

    Parameters
    ----------
    graph : PoolGraph
    rows : int or array (m,)
        Points whose label changed.
    weights : float or array (m,)
        1 for a new label of the class, -1 for one that was taken back.
    alpha : float
        As in ``propagate``.
    residual : float
        No residual of the solution is larger.

    Returns
    -------
    touched : array (k,)
        The points whose value changes, in no order.
    values : array (k,)
        By how much.
    """
    from a2lp.pool import _kernels as kernels

    places = np.atleast_1d(np.asarray(rows, dtype=np.int64))
    if len(places) and not (places.min() >= 0 and places.max() < graph.n):
        raise InputError(f"rows={rows!r:.80} must be positions of the graph's {graph.n} points.")
    s = graph.normalised
    column, touched = np.zeros(graph.n), np.empty(graph.n, np.int64)
    count = kernels.push(
        s.indptr.astype(np.int64, copy=False),
        s.indices.astype(np.int32, copy=False),
        s.data,
        float(alpha),
        places,
        np.broadcast_to(np.asarray(weights, np.float64), places.shape).copy(),
        float(residual),
        column,
        touched,
    )
    touched = touched[:count]
    return touched, column[touched]
