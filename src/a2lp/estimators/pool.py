"""The default of ``a2lp.label`` as an estimator."""

from __future__ import annotations

from typing import Any

from a2lp.encoding import NdArray
from a2lp.estimators.base import Answer
from a2lp.estimators.propagation import GraphClassifier


class PoolClassifier(GraphClassifier):
    """Label propagation, expectation-maximisation and logistic regression combined, on whitened points.

    This is what ``a2lp.label`` and ``a2lp classify`` use: the most accurate of these estimators on pools of many points
    with few labels. Points that were not fitted are answered as in ``LabelPropagationClassifier``, with their nearest
    fitted points after whitening.

    Parameters
    ----------
    method : str
        One of ``a2lp.pool.methods.METHODS``.
    random_state : int
        Of the folds in which labels are held out.

    Attributes
    ----------
    pool_ : Pool
        The points with their labels. ``pool_.assessment`` is the accuracy to expect, ``pool_.suggest(20)`` the points
        to label next.
    classes_, transduction_, label_distributions_, reached_, anchors_, n_iter_, X_
        See ``TransductiveClassifier``; ``anchors_`` are the labelled points after whitening.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from a2lp import PoolClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> some = y.copy()
    >>> some[100:] = -1
    >>> classifier = PoolClassifier().fit(X, some)
    >>> bool((classifier.transduction_[100:] == y[100:]).mean() > 0.85)
    True
    """

    n_neighbors = 20
    gamma = 3

    def __init__(self, *, method: str = "auto", random_state: int = 0) -> None:
        self.method = method
        self.random_state = random_state

    def _make_method(self, **changes: Any) -> Any:
        return None  # the pool checks its parameters

    def _solve(self, method: Any, X: NdArray, codes: NdArray) -> Answer | None:
        from a2lp.pool.session import Pool  # compiles at its first use

        labelled = codes >= 0
        self.pool_ = Pool(X, codes, method=self.method, seed=self.random_state)
        assert self.pool_.points is not None
        self._points = self.pool_.points
        self.anchors_, self.n_iter_ = self._points[labelled], int(not labelled.all())
        if labelled.all():
            return None
        answer, rest = self.pool_.answer, ~labelled
        return Answer(answer.labels[rest], answer.probabilities[rest].astype(X.dtype), answer.reached[rest])

    def _unit(self, X: NdArray) -> NdArray:
        assert self.pool_.whitening is not None
        return self.pool_.whitening.apply(X)

    def _is_large(self, X: NdArray) -> bool:
        return True
