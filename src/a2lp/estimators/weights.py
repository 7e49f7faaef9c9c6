"""Estimators with a weight vector for each class; unlabelled points do not change it."""

from __future__ import annotations

from typing import Any

import numpy as np

from a2lp.encoding import NdArray
from a2lp.estimators.base import Answer, TransductiveClassifier, preprocess_beside
from a2lp.methods.base import Method
from a2lp.tasks.batch import TaskBatch


class _WeightClassifier(TransductiveClassifier):
    """Points are compared with one weight vector for each class, ``anchors_`` (c, d)."""

    def __init__(self, *, tau: float = 15.0, preprocess: str = "l2", base: Any = None) -> None:
        self.tau = tau
        self.preprocess = preprocess
        self.base = base

    def _solve(self, method: Method, X: NdArray, codes: NdArray) -> Answer | None:
        labelled = codes >= 0
        support = X[labelled]
        # Without unlabelled points the support serves as queries: they do not change the weights, and the same points
        # twice have the same mean, which plc subtracts.
        query = support if labelled.all() else X[~labelled]
        prediction = method.predict(TaskBatch(support[None], codes[labelled][None], query[None]))
        assert prediction.anchors is not None
        self.anchors_ = prediction.anchors[0]
        self.n_iter_ = max(1, int(prediction.steps[0]))
        return None if labelled.all() else Answer.of(prediction)

    def _induce(self, X: NdArray) -> Answer:
        points = preprocess_beside(self.preprocess, X, self.X_, self.base)
        return self._compare(points)

    def _compare(self, points: NdArray, **changes: Any) -> Answer:
        """The method's own comparison, with the weights as the only support vector of each class."""
        codes = np.arange(len(self.classes_))
        batch = TaskBatch(self.anchors_[None], codes[None], points[None])
        return Answer.of(self._make_method(preprocess="none", **changes).predict(batch))


class PrototypicalClassifier(_WeightClassifier):
    """The class of the nearest class mean.

    Unlabelled points have no effect, except with ``preprocess="plc"``, where they are part of the centring. New points
    are compared with the same means.

    Parameters
    ----------
    tau : float
        Probabilities are softmax(-tau * squared distance).
    preprocess, base
        As for ``LabelPropagationClassifier``.

    Attributes
    ----------
    classes_, transduction_, label_distributions_, reached_, anchors_, n_iter_, X_
        See ``TransductiveClassifier``; ``anchors_`` are the class means (c, d), and every point is reached.

    Examples
    --------
    >>> from a2lp import PrototypicalClassifier
    >>> classifier = PrototypicalClassifier().fit([[0, 1], [1, 0], [0.9, 0.2]], ["up", "right", None])
    >>> classifier.transduction_.tolist()
    ['up', 'right', 'right']
    """

    _method = "prototypical"


class ImprintingClassifier(_WeightClassifier):
    """Class means, fine-tuned on the labelled points by cross-entropy.

    Unlabelled points have no effect, except with ``preprocess="plc"``, where they are part of the centring. New points
    are compared with the same weights.

    Parameters
    ----------
    tau : float
        Probabilities are softmax(-tau / 2 * squared distance).
    steps, lr : int, float
        Steps and learning rate of Adam.
    preprocess, base
        As for ``LabelPropagationClassifier``.

    Attributes
    ----------
    classes_, transduction_, label_distributions_, reached_, anchors_, n_iter_, X_
        See ``TransductiveClassifier``; ``anchors_`` are the class weights (c, d), and every point is reached.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from a2lp import ImprintingClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> some = y.copy()
    >>> some[100:] = -1
    >>> bool((ImprintingClassifier(steps=50).fit(X, some).transduction_ == y)[100:].mean() > 0.6)
    True
    """

    _method = "imprinting"

    def __init__(
        self, *, tau: float = 15.0, steps: int = 1000, lr: float = 1e-4, preprocess: str = "l2", base: Any = None
    ) -> None:
        super().__init__(tau=tau, preprocess=preprocess, base=base)
        self.steps = steps
        self.lr = lr

    def _compare(self, points: NdArray, **changes: Any) -> Answer:
        return super()._compare(points, steps=0)
