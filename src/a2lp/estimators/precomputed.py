"""Label propagation on a graph that the caller has made, dense or sparse."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.linalg
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from a2lp.arrays import softmax
from a2lp.encoding import NdArray
from a2lp.errors import A2LPWarning, InputError, ShapeError
from a2lp.estimators.base import Answer

Graph = Any  # affinities: an array, or a sparse array in CSR form


def dense(X: Graph) -> NdArray:
    """Affinities as a dense array."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X)


def canonical(X: Graph) -> Graph:
    """Affinities as a sparse array without stored zeros, columns in order: equal rows are stored equally."""
    rows = sparse.csr_array(X, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return rows


def check_graph(X: Graph) -> None:
    """Refuse what is not a graph over the points."""
    if X.shape[0] != X.shape[1]:
        raise ShapeError(
            f"X has shape {X.shape}, and kernel='precomputed' takes the affinities of all points to each "
            "other, so it must be square. Pass the (n, n) graph, or coordinates with kernel='cosine'."
        )


def check_affinities(X: Graph) -> None:
    """Refuse negative affinities."""
    values = X.data if sparse.issparse(X) else X
    if values.size and values.min() < 0:
        raise InputError(
            f"Negative values in data: the smallest affinity is {values.min():.6g}, and they must be 0 (far) "
            "or more. Clip cosines at 0; make affinities of distances, e.g. exp(-distance**2)."
        )


def propagate(X: Graph, codes: NdArray, n_classes: int, alpha: float, tau: float) -> Answer:
    """Solve (I - alpha S) Z = Y on the graph (X + X') / 2 and answer for the points with code -1.

    Parameters
    ----------
    X : array or csr array (n, n)
    codes : array (n,)
        Classes; -1 for the points to label.
    n_classes : int
    alpha, tau : float
    """
    labelled = codes >= 0
    graph = _symmetric(X)
    labels = np.eye(n_classes)[codes] * labelled[:, None]  # (n, c)
    scores = (_solve_sparse if sparse.issparse(graph) else _solve_dense)(graph, labels, alpha)

    _, component = connected_components(graph, directed=False)
    reached = np.isin(component, component[labelled])
    scores[~reached] = 0
    lost = int((~reached).sum())
    common = int(np.bincount(codes[labelled]).argmax())
    if lost:
        warnings.warn(
            f"{lost} of the {len(codes)} points have no path to a labelled one in the graph: their "
            "probabilities are uniform, and their label is the most frequent one. reached_ says which they "
            "are; label one of them, or connect them.",
            A2LPWarning,
            stacklevel=4,
        )
    found = np.where(reached, scores.argmax(axis=1), common)
    rest = ~labelled
    return Answer(found[rest], softmax(tau * scores[rest]), reached[rest])


def _symmetric(X: Graph) -> Graph:
    """(X + X') / 2 without self-loops, in float64."""
    graph = (X.astype(np.float64) + X.T) / 2
    if sparse.issparse(graph):
        graph = graph.tocsr()
        graph.setdiag(0)
        graph.eliminate_zeros()
    else:
        np.fill_diagonal(graph, 0)
    return graph


def _solve_dense(graph: NdArray, labels: NdArray, alpha: float) -> NdArray:
    degrees = graph.sum(axis=1)
    # an isolated point has degree 0, and then a row of zeros
    scale = np.divide(1.0, np.sqrt(degrees), out=np.zeros_like(degrees), where=degrees > 0)
    system = -alpha * scale[:, None] * graph * scale
    np.fill_diagonal(system, 1)
    z: NdArray = scipy.linalg.solve(system, labels, assume_a="pos", overwrite_a=True, check_finite=False)
    return z


def _solve_sparse(graph: Graph, labels: NdArray, alpha: float) -> NdArray:
    from a2lp.pool.graph import PoolGraph  # compiles at its first use
    from a2lp.pool.propagate import propagate as solve

    return solve(PoolGraph(graph), labels, float(alpha), tolerance=1e-12).Z
