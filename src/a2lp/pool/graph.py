"""The sparse graph of a pool (eq. 1-3): from its points, from neighbours, or from a matrix of affinities."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from a2lp.arrays import chunks
from a2lp.checks import require_number, require_whole
from a2lp.cores import map_on_cores
from a2lp.errors import A2LPWarning, InputError, ShapeError
from a2lp.pool.neighbours import SPARE, Lists, NdArray, Progress, check_points, pick_method, search, search_rows
from a2lp.pool.ordering import fast_order
from a2lp.pool.stages import Stages, release
from a2lp.scale import Cluster

Sparse = Any  # a scipy.sparse.csr_array

_ORDERED = 20_000  # points up to which everything is in the cache, whatever the order of the rows
_ROWS = 65_536  # that are sorted at a time


class System(NamedTuple):
    """S = D^-1/2 W D^-1/2 of eq. 2, its rows and columns in an order that makes products fast: by cells of neighbours.

    Attributes
    ----------
    order : array (n,) or None
        The point of each row; None for that of the points.
    indptr, indices, data : array
        As in a csr_array; columns are not sorted.
    """

    order: NdArray | None
    indptr: NdArray
    indices: NdArray
    data: NdArray


@dataclass(frozen=True, eq=False, repr=False)
class PoolGraph:
    """An undirected weighted graph over n points.

    Attributes
    ----------
    weights : csr_array (n, n)
        W of eq. 1: symmetric, non-negative, without self-loops, floating.
    lists : Lists, optional
        The neighbours that it was made from, and some more of each point; with them it can grow (``a2lp.pool.growth``).
    """

    weights: Sparse
    lists: Lists | None = None

    def __repr__(self) -> str:
        return f"PoolGraph({self.n} points, {self.weights.nnz // 2} edges)"

    @property
    def n(self) -> int:
        """How many points there are."""
        return int(self.weights.shape[0])

    @cached_property
    def degree(self) -> NdArray:
        """Row sums of the weights (n,), in float64."""
        from a2lp.pool import _solver as kernels

        sums = np.empty(self.n)
        kernels.row_sums(self._pattern[0], self.weights.data, 1, sums)
        return sums

    @property
    def _pattern(self) -> tuple[NdArray, NdArray]:
        """Where rows begin, and the columns of their entries: of one type each, so that kernels are compiled once."""
        return self.weights.indptr.astype(np.int64, copy=False), self.weights.indices.astype(np.int32, copy=False)

    @cached_property
    def system(self) -> System:
        """What ``propagate`` solves."""
        from a2lp.pool import _solver as kernels

        w, (indptr, indices) = self.weights, self._pattern
        if self.n <= _ORDERED:
            return System(None, indptr, indices, self.normalised.data)
        order = fast_order(indptr, indices, w.data)
        starts, columns, data = np.empty_like(indptr), np.empty_like(indices), np.empty_like(w.data)
        kernels.arrange(indptr, indices, w.data, self._scale, order, np.argsort(order), starts, columns, data)
        release(w.data, w.indices, w.indptr)
        return System(order, starts, columns, data)

    @property
    def _scale(self) -> NdArray:
        # weights may have any scale, so nothing is added to the degrees; the row of an isolated point is zero
        return np.divide(1.0, np.sqrt(self.degree), out=np.zeros(self.n), where=self.degree > 0)

    @cached_property
    def normalised(self) -> Sparse:
        """S = D^-1/2 W D^-1/2 of eq. 2 (n, n)."""
        from a2lp.pool import _solver as kernels

        w, data = self.weights, np.empty_like(self.weights.data)
        kernels.scaled(*self._pattern, w.data, self._scale, data)
        return sparse.csr_array((data, w.indices, w.indptr), shape=w.shape)

    @cached_property
    def _on_devices(self) -> dict[Any, Any]:
        return {}

    def on(self, device: Any) -> Any:
        """``system`` on a torch device, as ``a2lp.pool.device_solver.System``; it is copied there once."""
        import torch

        from a2lp.pool.device_solver import make_system

        if device not in self._on_devices:
            w = self.weights
            arrays = (torch.from_numpy(np.array(array)).to(device) for array in (w.indptr, w.indices, w.data))
            self._on_devices[device] = make_system(*arrays)
        return self._on_devices[device]

    @cached_property
    def _components(self) -> tuple[int, NdArray]:
        """The number of parts that no edge connects, and the part of each point (n,)."""
        for system in self._on_devices.values():
            from a2lp.pool.device_graph import components

            return self.n, components(system).cpu().numpy()
        from a2lp.pool import _solver as kernels

        part = np.empty(self.n, np.int32)
        count = kernels.components(*self._pattern, part)
        release(self.weights.indices)
        return int(count), part

    def reached(self, labelled: NdArray) -> NdArray:
        """Which points have a path to a labelled one (n,)."""
        count, part = self._components
        found = np.zeros(count, bool)
        found[part[labelled]] = True
        return found[part]


def neighbour_graph(
    x: Any,
    n_neighbors: int = 20,
    gamma: float = 3,
    *,
    method: str = "auto",
    progress: Progress | None = None,
    stages: Stages | None = None,
    cluster: Cluster | None = None,
) -> PoolGraph:
    """The nearest-neighbour graph of points: weights [cosine]_+^gamma between each point and those it chooses.

    Parameters
    ----------
    x : array (n, d)
        Points of any length, float16, float32 or float64; a memory map is read a tile at a time.
    n_neighbors : int
        Neighbours that each point chooses, k; ties go to the lower row.
    gamma : float
        Power of the cosines.
    method : {"auto", "exact", "cells"}
        How neighbours are found: by comparing all points, or by cells (``a2lp.pool.cells``), which misses a few
        percent of them and is faster for many points. ``"auto"`` is exact up to 20,000.
    progress : callable, optional
        Called with the amount done and the total.
    stages : Stages, optional
        Files of what was found already.
    cluster : Cluster, optional
        Where the search by cells runs; it needs the folder of ``stages``.

    Returns
    -------
    PoolGraph
        In float64 if the points are, else in float32.
    """
    x = check_points(x)
    n = len(x)
    k = usable_k(n_neighbors, n)
    check_gamma(gamma)
    method = pick_method(method, n)

    def make() -> tuple[NdArray, ...]:
        lists = search(x, min(k + SPARE, n - 1), method, progress, stages, cluster)
        chosen, cut = lists.choose(k)
        cut &= lists.indices.shape[1] < n - 1
        if method == "exact" and cut.any():
            lists, chosen = _with_all_ties(x, lists, chosen, np.flatnonzero(cut), k)
        weights = from_chosen(lists, chosen, gamma).weights
        return weights.data, weights.indices, weights.indptr, *lists

    arrays = make() if stages is None else stages.aside(stages.keep(f"graph {k} {gamma:g} {method}", make))
    found = PoolGraph(sparse.csr_array(arrays[:3], shape=(n, n)), Lists(*arrays[3:]))
    release(*arrays)
    return found


def from_distances(indices: Any, similarities: Any, gamma: float = 3) -> PoolGraph:
    """The graph of given neighbours.

    Parameters
    ----------
    indices : array (n, k)
        Each point's neighbours; -1 for none. The point itself is ignored.
    similarities : array (n, k)
        Their cosines; those below 0 count as 0. The cosine of unit vectors is ``1 - distance**2 / 2`` for Euclidean
        distances, ``1 - distance`` for cosine distances.
    gamma : float
        Power of the similarities.
    """
    indices, similarities = np.asarray(indices), np.asarray(similarities)
    check_gamma(gamma)
    if indices.ndim != 2 or indices.shape != similarities.shape:
        raise ShapeError(
            f"indices has shape {indices.shape} and similarities {similarities.shape}; both must be (n, k): a row for "
            "each point, with its neighbours and how similar they are."
        )
    n = len(indices)
    if indices.dtype.kind not in "iu" or (indices < -1).any() or (indices >= n).any():
        raise InputError(
            f"indices must hold whole numbers from 0 to {n - 1}, the rows of {n} points, or -1 for no neighbour; found "
            f"{indices.dtype} values from {indices.min()} to {indices.max()}."
        )
    if similarities.dtype.kind != "f" or not np.isfinite(similarities).all():
        raise InputError(
            "similarities must be finite floating-point numbers. Where there is no neighbour, put -1 in indices."
        )
    ordered = np.sort(indices, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        raise InputError(f"row {int(np.argmax(twice.any(axis=1)))} of indices names a neighbour twice; name each once.")
    usable = (indices >= 0) & (indices != np.arange(n)[:, None]) & (similarities > 0)
    dtype = np.float64 if similarities.dtype == np.float64 else np.float32
    return from_chosen(Lists(similarities.astype(dtype), indices.astype(np.int32)), usable, gamma)


def from_sparse(weights: Any) -> PoolGraph:
    """The graph (X + X') / 2 without self-loops, of a matrix X (n, n) of affinities, sparse or dense."""
    given = sparse.csr_array(weights)
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise ShapeError(
            f"the graph has shape {given.shape}; it must be (n, n): affinities of all points to each other."
        )
    if given.dtype.kind not in "fiub":
        raise InputError(f"the graph holds {given.dtype} values; affinities must be numbers, 0 (far) or more.")
    given = given.astype(np.float32 if given.dtype in (np.float16, np.float32) else np.float64)
    if given.nnz and not (np.isfinite(given.data).all() and given.data.min() >= 0):
        raise InputError(
            f"the graph holds values from {given.data.min():.6g} to {given.data.max():.6g}; affinities must be finite, "
            "and 0 (far) or more. Clip cosines at 0; make affinities of distances, e.g. exp(-distance**2)."
        )
    return PoolGraph(_half_sum(given))


def from_chosen(lists: Lists, chosen: NdArray, gamma: float) -> PoolGraph:
    """The graph W = (A + A') / 2 of lists of neighbours, of which some places were chosen (n, length)."""
    from a2lp.pool import _search as kernels

    n = len(chosen)
    lengths = np.zeros(n, np.int64)
    kernels.symmetric_lengths(lists.indices, chosen, lengths)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    columns, data = np.empty(starts[-1], np.int32), np.empty(starts[-1], lists.similarities.dtype)
    kernels.symmetric(*lists, chosen, float(gamma), starts[:-1].copy(), columns, data)
    map_on_cores(lambda part: kernels.sort_rows(starts, part.start, part.stop, columns, data), chunks(n, _ROWS))
    starts = starts.astype(np.int32 if starts[-1] < 2**31 else np.int64)
    weights = sparse.csr_array((data, columns, starts), shape=(n, n))
    if not data.all():  # powers that were rounded to zero
        weights.eliminate_zeros()
    return PoolGraph(weights, lists)


def check_gamma(gamma: float) -> None:
    """Refuse a power of the cosines that is not positive."""
    require_number("gamma", gamma, "positive", lambda v: v > 0, "The paper uses 3.")


def usable_k(n_neighbors: int, n: int) -> int:
    """The number of neighbours, at most n - 1, with a warning if that is less than requested."""
    require_whole("n_neighbors", n_neighbors, 1, "The paper uses 20.")
    if n < 2:
        raise InputError("a graph needs at least two points; there is one. Add points.")
    if n_neighbors >= n:
        warnings.warn(
            f"n_neighbors={n_neighbors}, but the pool has {n} points, so each has {n - 1} neighbours at most; using "
            f"{n - 1}.",
            A2LPWarning,
            stacklevel=3,
        )
    return min(int(n_neighbors), n - 1)


def _with_all_ties(x: NdArray, lists: Lists, chosen: NdArray, rows: NdArray, k: int) -> tuple[Lists, NdArray]:
    """The lists, with those that ended in a tie chosen again from all points."""
    for row, found in zip(rows, search_rows(x, rows, k), strict=True):
        kth = lists.similarities[row, k - 1]  # all new ones are tied with it
        known = dict(zip(lists.indices[row].tolist(), lists.similarities[row].tolist(), strict=True))
        lists.indices[row, : len(found)] = found
        lists.similarities[row, : len(found)] = [known.get(index, kth) for index in found.tolist()]
        chosen[row] = np.arange(chosen.shape[1]) < len(found)
    return lists, chosen


def _half_sum(a: Sparse) -> Sparse:
    """(A + A') / 2 without diagonal and stored zeros, columns in order."""
    a.sum_duplicates()
    weights = sparse.csr_array(a + a.T)
    weights.data *= 0.5
    rows = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
    weights.data[rows == weights.indices] = 0
    weights.eliminate_zeros()
    weights.sort_indices()
    return weights
