"""scikit-learn estimators.

All of them follow the same rules:

- ``fit(X, y)`` takes labelled and unlabelled points together: -1, None, NaN or "" in ``y`` mean unlabelled, so -1 is
  never a class. Labels are strings, whole numbers or booleans.
- ``transduction_`` and ``label_distributions_`` are the predictions for the fitted points. Labelled points keep their
  label. ``reached_`` is False where no path of the graph leads to a label: such a point has uniform probabilities and
  the label of the nearest labelled point.
- ``predict(X)`` and ``predict_proba(X)`` look up rows that were fitted (of equal rows, the first labelled one, else the
  first). Other rows are predicted by induction; each class says how. So the accuracy on labelled training points is 1
  by construction: evaluate on held-out points.
- ``score(X, y)`` leaves out unlabelled points, so searches may run on partly labelled data.
- Without unlabelled points nothing is propagated, and the estimator is an inductive classifier.
"""

from a2lp.estimators.pool import PoolClassifier
from a2lp.estimators.propagation import A2LPClassifier, LabelPropagationClassifier
from a2lp.estimators.weights import ImprintingClassifier, PrototypicalClassifier

__all__ = [
    "A2LPClassifier",
    "ImprintingClassifier",
    "LabelPropagationClassifier",
    "PoolClassifier",
    "PrototypicalClassifier",
]
