"""Estimators that propagate labels over the graph of all points."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from a2lp.arrays import chunks
from a2lp.encoding import NdArray
from a2lp.errors import InputError, UnknownNameError
from a2lp.estimators import many, precomputed
from a2lp.estimators.base import Answer, TransductiveClassifier, preprocess_beside
from a2lp.graph import neighbours
from a2lp.methods.base import Method
from a2lp.preprocess import l2
from a2lp.tasks.batch import TaskBatch

DENSE_POINTS = 2_000  # beyond, the sparse graph of a pool is several times faster than a dense one of 32 MB
MAX_DENSE_POINTS = 20_000  # the graph is then 3.2 GB in float64, and a few such are held at a time
_NEW_POINTS = 1024  # new points whose affinities are held at a time


class GraphClassifier(TransductiveClassifier):
    """Propagates labels over the nearest-neighbour graph of the points."""

    def __init__(
        self,
        *,
        n_neighbors: int = 20,
        gamma: float = 3,
        alpha: float = 0.8,
        tau: float = 15.0,
        preprocess: str = "l2",
        base: Any = None,
        kernel: str = "cosine",
        engine: str = "auto",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.gamma = gamma
        self.alpha = alpha
        self.tau = tau
        self.preprocess = preprocess
        self.base = base
        self.kernel = kernel
        self.engine = engine

    def _solve(self, method: Any, X: NdArray, codes: NdArray) -> Answer | None:
        labelled = codes >= 0
        self._points = self._unit(X)
        if labelled.all():
            self.anchors_ = self._points
            self.n_iter_ = 0
            return None
        if self._is_large(X):
            answer, self.anchors_, self.n_iter_ = many.solve(self._points, codes, method._settings(len(X)))
            self._points[labelled] = self.anchors_
            return answer
        _check_size(X)
        prediction = method.predict(TaskBatch(X[labelled][None], codes[labelled][None], X[~labelled][None]))
        self.anchors_ = prediction.anchors[0]
        self._points[labelled] = self.anchors_
        self.n_iter_ = max(1, int(prediction.steps[0]))
        return Answer.of(prediction)

    def _unit(self, X: NdArray) -> NdArray:
        points = preprocess_beside(self.preprocess, X, self.X_, self.base)
        return np.asarray(l2(points)) if self.preprocess == "none" else points

    def _is_large(self, X: NdArray) -> bool:
        """Whether to use a sparse graph; engines given by name work on dense ones."""
        return self.engine == "auto" and len(X) > DENSE_POINTS

    def _induce(self, X: NdArray) -> Answer:
        points = self._unit(X)
        parts = [self._induce_part(points[part]) for part in chunks(len(points), _NEW_POINTS)]
        return Answer(*(np.concatenate(field) for field in zip(*parts, strict=True)))

    def _induce_part(self, points: NdArray) -> Answer:
        anchors = np.asarray(l2(self.anchors_))
        nearest = np.argmax(points @ anchors.T, axis=1)  # (m,)
        fallback = np.searchsorted(self.classes_, self.transduction_[self._labelled])[nearest]
        return self._average(self._affinity(points), fallback)

    def _affinity(self, points: NdArray) -> Any:
        """[cosine]_+ ** gamma of points (m, d) to their neighbours among the fitted ones, else 0 (m, n)."""
        k = min(self.n_neighbors, len(self._points))
        if self._is_large(self.X_):
            moved = self._labelled & (self.n_iter_ > 1)
            return many.affinities(points, self._points, moved, k, self.gamma)
        similarity = np.maximum(points @ self._points.T, 0)
        return (neighbours(similarity, k) * similarity) ** self.gamma

    def _average(self, affinity: NdArray, fallback: NdArray) -> Answer:
        """The affinity-weighted mean (m, c) of the fitted distributions that a label reaches.

        A row without such an affinity gets the uniform distribution and the class in ``fallback`` (m,).
        """
        c = len(self.classes_)
        weights = affinity * self.reached_  # (m, n)
        total = np.asarray(weights.sum(axis=1)).reshape(-1, 1)
        reached = total[:, 0] > 0
        safe = np.where(total > 0, total, 1)
        mean = np.where(total > 0, (weights @ self.label_distributions_) / safe, 1 / c)
        mean = mean.astype(self.X_.dtype)
        # far from all labels the distributions are uniform up to rounding, but the fitted labels still differ
        votes = weights @ np.eye(c, dtype=self.X_.dtype)[np.searchsorted(self.classes_, self.transduction_)]
        rounding = 1 - 8 * np.finfo(mean.dtype).eps
        best = np.where(mean >= rounding * mean.max(axis=1, keepdims=True), votes, -1.0)
        return Answer(np.where(reached, best.argmax(axis=1), fallback), mean, reached)


class LabelPropagationClassifier(GraphClassifier):
    """Label propagation on the weighted nearest-neighbour graph of the points.

    Points that were not fitted are predicted by induction: the distribution is the mean of those of the ``n_neighbors``
    nearest fitted points, weighted by the affinities [cosine]_+ ** gamma. If no affinity to a point that a label
    reaches is positive, the probabilities are uniform, and the label is that of the labelled point with the largest
    cosine.

    Parameters
    ----------
    n_neighbors : int
        Neighbours that each point chooses.
    gamma : float
        Power of the cosines.
    alpha : float
        How far labels propagate, from 0 (nowhere) to below 1.
    tau : float
        Probabilities are softmax(tau * scores).
    preprocess : {"l2", "plc", "cl2n", "whiten", "bpa", "none"}
        Preprocessing of the points; new points are centred like the fitted ones.
    base : BaseStatistics, optional
        Statistics of the base classes, for ``cl2n`` and ``whiten``.
    kernel : {"cosine", "precomputed"}
        ``"precomputed"``: X is a graph of non-negative affinities (n, n), dense or sparse, of which (X + X') / 2
        without self-loops is used; of the other parameters only ``alpha`` and ``tau`` have an effect. ``predict`` takes
        the affinities of m points to the fitted ones, (m, n). Without coordinates there is no ``anchors_``, and a point
        that no label reaches gets the most frequent label, with a warning.
    engine : str
        See ``a2lp.create("lp")``.

    Attributes
    ----------
    classes_, transduction_, label_distributions_, reached_, anchors_, n_iter_, X_
        See ``TransductiveClassifier``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from a2lp import LabelPropagationClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> some = y.copy()
    >>> some[100:] = -1
    >>> classifier = LabelPropagationClassifier(n_neighbors=7).fit(X, some)
    >>> bool((classifier.transduction_[100:] == y[100:]).mean() > 0.9)
    True
    """

    _method = "lp"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        given = self.kernel == "precomputed"
        tags.input_tags.pairwise = given
        tags.input_tags.sparse = given
        tags.input_tags.positive_only = given
        return tags

    def _read(self, X: Any, *, reset: bool) -> NdArray:
        if self.kernel not in ("cosine", "precomputed"):
            raise UnknownNameError("kernel", self.kernel, ("cosine", "precomputed"))
        if self.kernel == "cosine":
            return super()._read(X, reset=reset)
        dtype = [np.float64, np.float32] if reset else self.X_.dtype
        graph: NdArray = validate_data(self, X, dtype=dtype, reset=reset, copy=reset, accept_sparse="csr")
        precomputed.check_affinities(graph)
        keep_sparse = sparse.issparse(graph if reset else self.X_)
        return precomputed.canonical(graph) if keep_sparse else precomputed.dense(graph)

    def _solve(self, method: Method, X: NdArray, codes: NdArray) -> Answer | None:
        if self.kernel == "cosine":
            return super()._solve(method, X, codes)
        precomputed.check_graph(X)
        if (codes >= 0).all():
            self.n_iter_ = 0
            return None
        if not sparse.issparse(X):
            _check_size(X)
        self.n_iter_ = 1
        return precomputed.propagate(X, codes, len(self.classes_), self.alpha, self.tau)

    def _induce(self, X: NdArray) -> Answer:
        if self.kernel == "cosine":
            return super()._induce(X)
        given = np.searchsorted(self.classes_, self.transduction_[self._labelled])
        return self._average(X, np.full(X.shape[0], np.bincount(given).argmax()))


class A2LPClassifier(GraphClassifier):
    """Label propagation with adapted anchors: labelled points move until propagation labels them well.

    Points that were not fitted are predicted as by ``LabelPropagationClassifier``, with the adapted anchors instead of
    the labelled points. Without unlabelled points nothing is propagated or adapted.

    Parameters
    ----------
    n_neighbors, gamma, alpha, tau, preprocess, base, engine
        As for ``LabelPropagationClassifier``; ``tau`` is used in the loss, too.
    steps, lr : int, float
        Steps and learning rate of the adaptation; 0 steps are label propagation.
    numerics : {"exact", "official", "official_cpu"}
        The loss without cancellation, or the float32 arithmetic of the published code on a GPU or on a CPU.
    optimizer : {"adam", "gd"}
    kernel : {"cosine"}
        A precomputed graph is refused: it has no coordinates to move.

    Attributes
    ----------
    classes_, transduction_, label_distributions_, reached_, anchors_, n_iter_, X_
        See ``TransductiveClassifier``.

    Examples
    --------
    >>> from a2lp import A2LPClassifier
    >>> X = [[1.0, 0.1], [0.9, 0.2], [0.1, 1.0], [0.2, 0.9]]
    >>> A2LPClassifier(n_neighbors=2).fit(X, ["right", "", "up", ""]).transduction_.tolist()
    ['right', 'right', 'up', 'up']
    """

    _method = "a2lp"

    def __init__(
        self,
        *,
        n_neighbors: int = 20,
        gamma: float = 3,
        alpha: float = 0.8,
        tau: float = 15.0,
        steps: int = 1000,
        lr: float = 1e-4,
        preprocess: str = "l2",
        base: Any = None,
        numerics: str = "exact",
        optimizer: str = "adam",
        kernel: str = "cosine",
        engine: str = "auto",
    ) -> None:
        shared: dict[str, Any] = {"preprocess": preprocess, "base": base, "kernel": kernel, "engine": engine}
        super().__init__(n_neighbors=n_neighbors, gamma=gamma, alpha=alpha, tau=tau, **shared)
        self.steps = steps
        self.lr = lr
        self.numerics = numerics
        self.optimizer = optimizer

    def _read(self, X: Any, *, reset: bool) -> NdArray:
        if self.kernel == "precomputed":
            raise InputError(
                "kernel='precomputed' has no coordinates, and A2LP works by moving labelled points. Use "
                "LabelPropagationClassifier(kernel='precomputed'), or coordinates."
            )
        if self.kernel != "cosine":
            raise UnknownNameError("kernel", self.kernel, ("cosine",))
        return super()._read(X, reset=reset)


def _check_size(X: NdArray) -> None:
    n = X.shape[0]
    if n > MAX_DENSE_POINTS:
        raise InputError(
            f"X has {n:,} points, whose dense graph takes {n * n * X.dtype.itemsize / 1e9:.1f} GB, and its solution a "
            f"few times that; at most {MAX_DENSE_POINTS:,} points are allowed. Use a sparse graph: engine='auto' makes "
            "one from points, and kernel='precomputed' takes yours."
        )
