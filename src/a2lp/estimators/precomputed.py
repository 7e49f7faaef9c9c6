"""Label propagation on a graph that the caller has made, dense or sparse."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse

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
    """Refuse a matrix that is not square."""
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
    """Solve (I - alpha S) Z = Y on the graph (X + X') / 2, and label the points with code -1.

    Parameters
    ----------
    X : array or csr array (n, n)
    codes : array (n,)
        Classes; -1 for the points to label.
    n_classes : int
    alpha, tau : float
    """
    from a2lp.pool.graph import from_sparse  # compiles at its first use
    from a2lp.pool.propagate import propagate as solve

    labelled = codes >= 0
    graph = from_sparse(X.astype(np.float64))
    one_hot = np.eye(n_classes)[codes] * labelled[:, None]  # (n, c)
    reached = graph.reached(labelled)
    z = np.where(reached[:, None], solve(graph, one_hot, float(alpha), tolerance=1e-12).Z, 0)
    if lost := int((~reached).sum()):
        warnings.warn(
            f"{lost} of the {len(codes)} points have no path to a labelled one in the graph: their "
            "probabilities are uniform, and their label is the most frequent one. reached_ says which they "
            "are; label one of them, or connect them.",
            A2LPWarning,
            stacklevel=4,
        )
    found = np.where(reached, z.argmax(axis=1), np.bincount(codes[labelled]).argmax())
    return Answer(found[~labelled], softmax(tau * z[~labelled]), reached[~labelled])
