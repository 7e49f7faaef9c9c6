"""scikit-learn estimators.

The contract of all of them:

- ``fit(X, y)`` takes labelled and unlabelled points together: -1, None, NaN or "" in ``y`` mean unlabelled,
  so -1 is never a class. Labels are strings, whole numbers or booleans.
- ``transduction_`` and ``label_distributions_`` answer for the fitted points. Labelled points keep the label
  that they were given. ``reached_`` is False where no label arrives: such a point has uniform probabilities
  and the label of the nearest labelled point, never NaN and never just the first class.
- ``predict(X)`` and ``predict_proba(X)`` look each row up among the fitted ones: a row that was fitted gets
  its fitted answer (of equal rows, the first labelled one's, else the first one's). Other rows are answered
  by induction; each class says how. So the accuracy on labelled training points is 1 by construction: judge
  on points that were held out.
- ``score(X, y)`` leaves out the points that ``y`` does not label, so searches may run on partly labelled
  data.
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
