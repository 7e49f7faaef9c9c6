"""The default of ``a2lp.label`` as an estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from a2lp.encoding import NdArray, read_labels
from a2lp.estimators.base import Answer
from a2lp.estimators.propagation import GraphClassifier


class PoolClassifier(GraphClassifier):
    """Label propagation, expectation-maximisation and logistic regression combined, on whitened points.

    ``a2lp.label`` and ``a2lp classify`` use it by default: it is the most accurate of these estimators on many points
    with few labels. Points that were not fitted are predicted as by ``LabelPropagationClassifier``, from their nearest
    fitted points after whitening.

    Parameters
    ----------
    classes : array-like (c,), optional
        All classes, if the vectors of their names are known. Labels are then optional: ``fit(X)``.
    prototypes : array-like (c, d), optional
        The vector of each name, by the text encoder that belongs to the encoder of X. Earlier steps of a pipeline do
        not transform them.
    method : str
        One of ``a2lp.pool.methods.METHODS``.
    random_state : int
        Seed of the folds in which labels are held out.
    device : str
        As in ``Pool``.

    Attributes
    ----------
    pool_ : Pool
        The points with their labels. ``pool_.assessment`` is the accuracy to expect, ``pool_.suggest(20)`` the points
        to label next.
    classes_, transduction_, label_distributions_, reached_, anchors_, n_iter_, X_
        See ``TransductiveClassifier``; ``anchors_`` are the labelled points after whitening. With names, ``classes_``
        are all named classes, and every point is reached.

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

    With vectors of the classes' names instead of labels; here, means of the classes take their place.

    >>> import numpy as np
    >>> names = [f"digit {i}" for i in range(10)]
    >>> text = np.stack([X[y == i].mean(axis=0) for i in range(10)])
    >>> classifier = PoolClassifier(classes=names, prototypes=text).fit(X)
    >>> bool((classifier.transduction_ == np.array(names)[y]).mean() > 0.9)
    True
    """

    n_neighbors = 20
    gamma = 3

    def __init__(
        self,
        *,
        classes: Any = None,
        prototypes: Any = None,
        method: str = "auto",
        random_state: int = 0,
        device: str = "auto",
    ) -> None:
        self.classes = classes
        self.prototypes = prototypes
        self.method = method
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit labelled and unlabelled points, and predict the labels of the unlabelled ones.

        Parameters
        ----------
        X : array-like (n, d)
            Labelled and unlabelled points.
        y : array-like (n,), optional
            As in ``TransductiveClassifier.fit``; with names, None if there is no label.

        Returns
        -------
        self
        """
        super().fit(X, y)
        return self

    @property
    def _named(self) -> bool:
        return self.classes is not None or self.prototypes is not None

    def _encode(self, y: Any, X: NdArray) -> tuple[NdArray, NdArray]:
        if not self._named:
            return super()._encode(y, X)
        from a2lp.pool.names import check_names, encode_among

        classes, self._prototypes = check_names(self.classes, self.prototypes, X.shape[1])
        codes = np.full(len(X), -1, dtype=np.int64)
        if y is not None:
            labels, missing = read_labels(y, X)
            codes[~missing] = encode_among(classes, labels[~missing].tolist())
        return classes, codes

    def _make_method(self, **changes: Any) -> Any:
        return None  # the pool checks its parameters

    def _solve(self, method: Any, X: NdArray, codes: NdArray) -> Answer | None:
        from a2lp.pool.session import Pool  # compiles at its first use

        labelled = codes >= 0
        options: dict[str, Any] = {"method": self.method, "seed": self.random_state, "device": self.device}
        if self._named:
            options |= {"classes": np.arange(len(self.classes_)), "prototypes": self._prototypes}
        self.pool_ = Pool(X, codes, **options)
        points = self.pool_.points
        assert points is not None
        self._points = points
        self.anchors_, self.n_iter_ = self._points[labelled], int(not labelled.all())
        if labelled.all():
            return None
        answer, rest = self.pool_.answer, ~labelled
        return Answer(answer.labels[rest], answer.probabilities[rest].astype(X.dtype), answer.reached[rest])

    def _unit(self, X: NdArray) -> NdArray:
        assert self.pool_.whitening is not None
        return self.pool_.whitening.apply(X)

    def _induce_part(self, points: NdArray) -> Answer:
        if self.pool_.names is None:
            return super()._induce_part(points)
        nearest_name = np.argmax(points @ self.pool_.names.vectors.T.astype(points.dtype), axis=1)
        return self._average(self._affinity(points), nearest_name)

    def _is_large(self, X: NdArray) -> bool:
        return True
