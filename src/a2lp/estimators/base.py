"""What the estimators share: reading X and y, the fitted attributes, predictions for fitted and new points."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, validate_data

from a2lp.encoding import NdArray, encode_labels, read_labels
from a2lp.errors import InputError
from a2lp.methods.base import Method
from a2lp.methods.registry import create
from a2lp.preprocess import plc, power_l2, preprocess
from a2lp.tasks.batch import Prediction


class Answer(NamedTuple):
    """Predictions for m points."""

    codes: NdArray  # (m,)  positions in classes_
    distributions: NdArray  # (m, c)
    reached: NdArray  # (m,)

    @classmethod
    def of(cls, prediction: Prediction) -> Answer:
        """The prediction for the queries of a batch of one task, whose labels are codes."""
        return cls(prediction.labels[0], prediction.probabilities[0], prediction.reached[0])


class TransductiveClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A classifier that is fitted on labelled and unlabelled points together.

    Attributes
    ----------
    classes_ : array (c,)
        The classes, sorted.
    transduction_ : array (n,)
        Labels of the fitted points; labelled ones keep what they were given.
    label_distributions_ : array (n, c)
        Probabilities of the fitted points; rows sum to one, and are 0 and 1 for labelled ones.
    reached_ : array (n,)
        False for a point that no label reaches: its probabilities are uniform, and its label is the nearest
        labelled point's.
    anchors_ : array (s, d) or (c, d)
        The labelled points as adapted by the method, in the order of the rows of X; or the class weights.
    n_iter_ : int
        Steps taken: 1 for a closed form, 0 if all points are labelled.
    X_ : array (n, d)
        The fitted points.

    Examples
    --------
    >>> from a2lp import PrototypicalClassifier
    >>> from a2lp.estimators.base import TransductiveClassifier
    >>> issubclass(PrototypicalClassifier, TransductiveClassifier)
    True
    """

    _method: str  # its name in the table of methods

    def fit(self, X: Any, y: Any) -> Self:
        """Fit labelled and unlabelled points, and predict the labels of the unlabelled ones.

        Parameters
        ----------
        X : array-like (n, d)
            Labelled and unlabelled points.
        y : array-like (n,)
            Their labels: strings, whole numbers or booleans. -1, None, NaN and "" mean unlabelled; -1 is
            never a class.

        Returns
        -------
        self
        """
        if y is None and not self._named:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. Pass one label "
                "for each row of X, with -1, None, NaN or '' where it has none."
            )
        X = self._read(X, reset=True)
        self.classes_, codes = self._encode(y, X)
        self.X_ = X
        self._labelled = codes >= 0
        found = self._solve(self._make_method(), X, codes)
        one_hot = np.eye(len(self.classes_), dtype=X.dtype)
        self.label_distributions_ = one_hot[codes]
        self.reached_ = np.ones(len(codes), dtype=bool)
        if found is not None:
            codes[~self._labelled] = found.codes
            self.label_distributions_[~self._labelled] = found.distributions
            self.reached_[~self._labelled] = found.reached
        self.transduction_ = self.classes_[codes]
        return self

    def predict(self, X: Any) -> NdArray:
        """Predict the labels of points: ``transduction_`` for fitted points, by induction for others.

        Parameters
        ----------
        X : array-like (m, d)

        Returns
        -------
        array (m,)
        """
        answer = self._answer(X)
        labels: NdArray = self.classes_[answer.codes]
        return labels

    def predict_proba(self, X: Any) -> NdArray:
        """Predict class probabilities: ``label_distributions_`` for fitted points, by induction for others.

        Parameters
        ----------
        X : array-like (m, d)

        Returns
        -------
        array (m, c)
            Columns are in the order of ``classes_``.
        """
        return self._answer(X).distributions

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the accuracy on the points that are labelled in ``y``.

        Parameters
        ----------
        X : array-like (m, d)
        y : array-like (m,)
            As in ``fit``.
        sample_weight : array-like (m,), optional

        Returns
        -------
        float
        """
        truth, missing = read_labels(y, X)
        if missing.all():
            raise InputError(f"y labels none of the {len(missing)} points, so there is nothing to score. Label some.")
        weights = None if sample_weight is None else np.asarray(sample_weight)[~missing]
        return float(accuracy_score(truth[~missing], self.predict(X)[~missing], sample_weight=weights))

    @property
    def _named(self) -> bool:
        """Whether names of classes make labels optional."""
        return False

    def _encode(self, y: Any, X: NdArray) -> tuple[NdArray, NdArray]:
        """The sorted classes (c,), and each row's position in them (n,), -1 where it has no label."""
        return encode_labels(y, X)

    @abstractmethod
    def _solve(self, method: Method, X: NdArray, codes: NdArray) -> Answer | None:
        """Set ``anchors_`` and ``n_iter_``, and predict the rows with code -1; None if there are none."""

    @abstractmethod
    def _induce(self, X: NdArray) -> Answer:
        """Predict rows that were not fitted."""

    def _make_method(self, **changes: Any) -> Method:
        """The method with this estimator's parameters; it checks them."""
        params = {name: value for name, value in self.get_params().items() if name != "kernel"} | changes
        return create(self._method, **params)

    def _read(self, X: Any, *, reset: bool) -> NdArray:
        """Points as a floating array, at prediction of the precision that was fitted."""
        dtype = [np.float64, np.float32] if reset else self.X_.dtype
        # a copy: rows are looked up in it later, when the caller may have changed X
        points: NdArray = validate_data(self, X, dtype=dtype, reset=reset, copy=reset)
        return points

    def _answer(self, X: Any) -> Answer:
        check_is_fitted(self)
        X = self._read(X, reset=False)
        rows = self._fitted_rows(X)
        new = rows < 0
        codes = np.searchsorted(self.classes_, self.transduction_)
        answer = Answer(codes[rows], self.label_distributions_[rows], self.reached_[rows])
        if new.any():
            for mine, theirs in zip(answer, self._induce(X[new]), strict=True):
                mine[new] = theirs
        return answer

    def _fitted_rows(self, X: NdArray) -> NdArray:
        """Which fitted point each row is, or -1; of equal ones the first labelled, else the first."""
        order = np.argsort(~self._labelled, kind="stable")
        first: dict[bytes, int] = {}
        keys = row_keys(self.X_)
        for row in order.tolist():
            first.setdefault(keys[row], row)
        return np.array([first.get(key, -1) for key in row_keys(X)], dtype=np.int64)


def row_keys(X: Any) -> list[bytes]:
    """One key for each row, the same for equal rows; sparse rows in canonical form."""
    if sparse.issparse(X):
        columns = X.indices.astype(np.int64)
        return [columns[i:j].tobytes() + X.data[i:j].tobytes() for i, j in pairwise(X.indptr)]
    # digests, so that the keys of many rows take little memory; -0.0 becomes 0.0, which it equals
    return [hashlib.blake2b(row + 0.0, digest_size=16).digest() for row in X]


def preprocess_beside(name: str, new: NdArray, fitted: NdArray, base: Any = None) -> NdArray:
    """New points (m, d), preprocessed like the fitted ones (n, d): for plc, with their mean."""
    if name == "bpa" and new is not fitted:
        raise InputError(
            f"preprocess='bpa' describes points by their affinities to the fitted ones, and {len(new)} of the points "
            "were not fitted. Fit all points together, or choose another preprocessing, such as 'plc'."
        )
    if name == "plc":
        return np.asarray(plc(new, centre=power_l2(fitted).mean(axis=0)))
    return np.asarray(preprocess(name, new, base))
