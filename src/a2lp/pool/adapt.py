"""A2LP's adapted anchors on the sparse graph of a pool.

The closed-form gradient of ``engines.reference``, with conjugate gradients instead of a factorisation. Neighbours among
the points that do not move are found once; each step adds the anchors to the lists of all points, and all points to
theirs. Z and its adjoint start from the step before.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from a2lp.arrays import chunks
from a2lp.cores import map_on_cores
from a2lp.engines.contract import Settings
from a2lp.errors import InputError, ShapeError
from a2lp.pool.graph import PoolGraph, check_gamma, from_chosen, usable_k
from a2lp.pool.neighbours import SPARE, Lists, NdArray, Progress, check_points, pick_method, search, unit_rows
from a2lp.pool.propagate import propagate
from a2lp.preprocess import l2

_COLUMNS = 2048  # points that the anchors are compared with at a time
_EDGES = 1 << 14  # edges whose vectors are held at a time


class Adapted(NamedTuple):
    """The result of the adaptation.

    Attributes
    ----------
    Z : array (n, c)
        Manifold similarities (eq. 5) of all points, in the caller's order.
    anchors : array (s, d)
        The labelled points that ``Z`` was computed from, in the order of their rows.
    losses : array (steps,)
        The loss before each step.
    graph : PoolGraph
        The graph that ``Z`` was computed on.
    """

    Z: NdArray
    anchors: NdArray
    losses: NdArray
    graph: PoolGraph


class _Points(NamedTuple):
    """The pool with its anchors first, as in the engines, and what no step changes."""

    v: NdArray  # (n, d)  unit rows; the first s are the anchors as they are now
    rest: Lists  # (n - s, k + SPARE)  neighbours among the points that stay, as positions in v
    labels: NdArray  # (n, c)  eq. 4
    s: int
    k: int


def adapt(
    x: Any, codes: Any, settings: Settings, *, tolerance: float = 1e-6, progress: Progress | None = None
) -> Adapted:
    """Move the labelled points until propagation labels them well, then propagate (Algorithm 1).

    Parameters
    ----------
    x : array (n, d)
        Points of any length.
    codes : array (n,)
        Each point's class from 0 on, -1 where it has no label.
    settings : Settings
        As for the engines; ``loss_tol`` and ``grad_tol`` have no effect here.
    tolerance : float
        Relative residual of Z and of its adjoint.
    progress : callable, optional
        Called with the steps done and their total.
    """
    x = check_points(x)
    codes = _check_codes(codes, len(x))
    k = usable_k(settings.n_neighbors, len(x))
    check_gamma(settings.gamma)
    order = np.argsort(codes < 0, kind="stable")  # anchors first
    points = _arrange(x, codes, order, k)
    s = points.s
    optimizer = settings.make_optimizer()
    state = optimizer.init(points.v[:s])
    losses: list[float] = []
    z: NdArray | None = None
    adjoint: NdArray | None = None
    graph = _step_graph(points, settings.gamma)
    for step in range(settings.steps + 1):
        z = propagate(graph, points.labels, settings.alpha, tolerance=tolerance, start=z).Z
        if step == settings.steps:
            break
        value, d_anchors, d_rest = settings.loss_at(z[None, :s], z[None, s:], points.labels[None, :s])
        losses.append(float(value[0]))
        if progress is not None:
            progress(step + 1, settings.steps)
        if step >= settings.updates:
            break
        dz = np.zeros_like(z)
        dz[:s] = d_anchors[0]
        if d_rest is not None:
            dz[s:] = d_rest[0]
        adjoint = propagate(graph, dz, settings.alpha, tolerance=tolerance, start=adjoint).Z
        gradient = _gradient(points, graph, z, adjoint, dz, settings)
        if settings.renormalize:
            gradient = gradient - (gradient * points.v[:s]).sum(axis=1, keepdims=True) * points.v[:s]
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            state, move = optimizer.update(state, gradient)
            points.v[:s] += move
        _check_range(points.v[:s], settings)
        if settings.renormalize:
            points.v[:s] = l2(points.v[:s])
        graph = _step_graph(points, settings.gamma)
    back = np.argsort(order)
    assert z is not None
    weights = sparse.csr_array(graph.weights[back][:, back])
    return Adapted(z[back], points.v[:s].copy(), np.array(losses), PoolGraph(weights))


def _check_codes(codes: Any, n: int) -> NdArray:
    codes = np.asarray(codes)
    if codes.shape != (n,):
        raise ShapeError(f"codes has shape {codes.shape}; there are {n} points, so it must be ({n},).")
    if codes.dtype.kind not in "iu" or codes.max() < 0 or codes.min() < -1:
        raise InputError(
            "codes must be whole numbers: classes from 0 on, and -1 where a point has no label; at least one point "
            f"must have one. Found {codes.dtype} values from {codes.min()} to {codes.max()}."
        )
    found: NdArray = codes.astype(np.int64)
    return found


def _arrange(x: NdArray, codes: NdArray, order: NdArray, k: int) -> _Points:
    v = unit_rows(x, order)
    s = int((codes >= 0).sum())
    m = len(v) - s
    rest = Lists.empty(m, k + SPARE, v.dtype)
    if m > 1:
        length = min(k + SPARE, m - 1)
        found = search(v[s:], length, pick_method("auto", m))
        known = found.indices < m
        rest.similarities[:, :length] = found.similarities
        rest.indices[:, :length][known] = found.indices[known] + s
    labels = np.zeros((len(v), int(codes.max()) + 1), v.dtype)
    labels[np.arange(s), codes[order[:s]]] = 1
    return _Points(v, rest, labels, s, k)


def _step_graph(points: _Points, gamma: float) -> PoolGraph:
    """Eq. 1 for the current anchors."""
    from a2lp.pool import _kernels as kernels

    v, s = points.v, points.s
    anchors = np.ascontiguousarray(v[:s])
    mine = Lists.empty(s, points.k + SPARE, v.dtype)
    theirs = Lists(points.rest.similarities.copy(), points.rest.indices.copy())
    lock = threading.Lock()
    within = anchors @ anchors.T
    np.fill_diagonal(within, -1)
    kernels.merge_rows(within, 0, *mine)

    def offer(part: slice) -> None:
        block = anchors @ v[s:][part].T
        with lock:
            kernels.merge_rows(block, s + part.start, *mine)
        kernels.merge_columns(block, 0, theirs.similarities[part], theirs.indices[part])

    map_on_cores(offer, chunks(len(v) - s, _COLUMNS))
    lists = Lists(*(np.concatenate(pair) for pair in zip(mine, theirs, strict=True)))
    chosen, _ = lists.choose(points.k)
    return from_chosen(lists, chosen, gamma)


def _gradient(
    points: _Points, graph: PoolGraph, z: NdArray, adjoint: NdArray, dz: NdArray, settings: Settings
) -> NdArray:
    """dL/dV of the anchors (s, d): over the edges that end in an anchor."""
    v, s = points.v, points.s
    degree = np.where(graph.degree > 0, graph.degree, 1.0)
    scale = 1 / np.sqrt(degree)
    d_degree = -((adjoint * (z - points.labels)).sum(axis=1) + (z * (adjoint - dz)).sum(axis=1)) / (2 * degree)
    edges = graph.weights[:s].tocoo()
    a, j = edges.row, edges.col
    coefficient = np.empty(edges.nnz)
    for part in chunks(edges.nnz, _EDGES):
        p, q = a[part], j[part]
        pair = (adjoint[p] * z[q] + z[p] * adjoint[q]).sum(axis=1, dtype=np.float64)
        d_weight = settings.alpha * scale[p] * scale[q] * pair + d_degree[p] + d_degree[q]
        sim = np.maximum(np.einsum("ed,ed->e", v[p], v[q]), np.finfo(v.dtype).eps)
        # the weight is a share of sim^gamma, so its slope is gamma weight / sim
        coefficient[part] = d_weight * settings.gamma * edges.data[part] / sim
    touched, place = np.unique(j, return_inverse=True)
    pull = sparse.csr_array((coefficient, (a, place)), shape=(s, len(touched)))
    gradient: NdArray = (pull @ v[touched]).astype(v.dtype)
    return gradient


def _check_range(anchors: NdArray, settings: Settings) -> None:
    if not np.isfinite(anchors).all():
        raise InputError(f"lr={settings.lr} drives the anchors out of the range of {anchors.dtype}. Use a smaller one.")
