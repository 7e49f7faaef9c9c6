"""How good an answer is: the accuracy to expect, calibrated probabilities, and given labels that look wrong.

**The estimate.** Labels are held out in turn and predicted by the same method, in as many folds as most classes have
labels, at most five, so that every class loses labels alike. A model that lacks a fold is a little worse than the whole
one: on the pools that were tried, errors fall about as (labels per class) ** -0.25, and they are scaled by that. The
interval covers the uncertainty from the number of labels, from the number of unlabelled points, from that extrapolation
(sd 7 points at two labels per class, 3 at five, 2 from eight on), and from a prior: the confidence of the answer
itself, with an sd of 10 points. With one label per class nothing can be held out, the prior is all there is, and the
interval is some 40 points wide.

Labels must be a random sample of each class. If points were chosen for being difficult, the estimate is too low. Points
of classes without any label are not part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import beta

from a2lp.arrays import softmax
from a2lp.pool.held_out import draw_folds, predict_held_out, usual_count
from a2lp.pool.methods import METHODS
from a2lp.pool.neighbours import NdArray
from a2lp.pool.solve import PoolAnswer

_FOLDS = 5
_PRIOR_SD = 0.1  # of the answer's own confidence around the accuracy
_LEARNING = 0.25  # errors fall with this power of the labels per class
_EXTRAPOLATION_SD = 0.15, 0.02  # divided by the labels per class, and the least
_MANY = 4  # labels per class from which auto's weights, and so its confidence, are fitted to them
_SURE = 0.8  # the probability of another class from which a given label is doubted


@dataclass(frozen=True, eq=False, repr=False)
class Assessment:
    """How good an answer is.

    Attributes
    ----------
    accuracy : float
        The share of unlabelled points whose label is expected to be right.
    low, high : float
        Its 95 % interval.
    probabilities : array (n, c)
        The answer's, raised to a power such that the mean confidence on unlabelled points is ``accuracy``.
    held_out_rows : array (m,)
        Labelled points whose label was held out; none where every class has one label.
    held_out_probabilities : array (m, c)
        Their calibrated predictions.
    mistakes : array (k,)
        Rows whose given label disagrees with its held-out prediction, the most certain first. The only label of a class
        is never among them.
    suspicion : array (k,)
        The probability of the best other class, 0.8 or more.
    """

    accuracy: float
    low: float
    high: float
    probabilities: NdArray
    held_out_rows: NdArray
    held_out_probabilities: NdArray
    mistakes: NdArray
    suspicion: NdArray

    def __repr__(self) -> str:
        return (
            f"Assessment(accuracy {100 * self.accuracy:.0f} %, 95 % interval {100 * self.low:.0f} to "
            f"{100 * self.high:.0f} %; {len(self.mistakes)} labels look wrong)"
        )


def assess(answer: PoolAnswer) -> Assessment:
    """Judge an answer by the labels that it was made from; the folds are drawn by the task's seed."""
    task = answer.task
    none = np.zeros(0, np.int64)
    if task.given.all():
        return Assessment(1.0, 1.0, 1.0, answer.probabilities, none, np.zeros((0, task.n_classes)), none, none)
    n_folds = int(np.clip(usual_count(task.codes), 2, _FOLDS))
    folds = draw_folds(task.codes, n_folds, task.seed)
    rows, predicted = none, np.zeros((0, task.n_classes), np.float32)
    if task.n_classes > 1 and (folds >= 0).any():
        rows = np.flatnonzero(folds >= 0)
        predicted = predict_held_out(
            task.codes, folds, lambda codes: METHODS[answer.method](replace(task, codes=codes))
        )
    wrong = predicted.argmax(axis=1) != task.codes[rows]
    accuracy, low, high = _estimate(answer, wrong, 1 - 1 / n_folds)
    power = _power(answer.probabilities[~task.given], accuracy)
    predicted = _raised(predicted, power)
    others = predicted.copy()
    others[np.arange(len(rows)), task.codes[rows]] = 0
    suspicion = others.max(axis=1, initial=0)
    order = np.argsort(-suspicion, kind="stable")
    order = order[suspicion[order] >= _SURE]
    probabilities = task.pinned(_raised(answer.probabilities, power))
    return Assessment(accuracy, low, high, probabilities, rows, predicted, rows[order], suspicion[order])


def _estimate(answer: PoolAnswer, wrong: NdArray, kept: float) -> tuple[float, float, float]:
    """The mean of a beta distribution of the accuracy, and its 95 % interval.

    ``wrong`` are errors on held-out labels, found with a share ``kept`` of all labels.
    """
    task = answer.task
    m = int((~task.given).sum())
    prior = _prior(answer)
    weight = _equivalent_labels(prior, _PRIOR_SD)
    right, errors = weight * prior, weight * (1 - prior)
    if len(wrong):
        error = float(wrong.mean()) * kept**_LEARNING
        sampled = _variance(error) * (1 / len(wrong) + 1 / m)
        drift = max(_EXTRAPOLATION_SD[0] / usual_count(task.codes), _EXTRAPOLATION_SD[1])
        weight = _equivalent_labels(error, np.sqrt(sampled + drift**2))
        right, errors = right + weight * (1 - error), errors + weight * error
    low, high = beta.ppf([0.025, 0.975], right, errors)
    # the true share is a multiple of 1 / m
    return right / (right + errors), float(np.floor(low * m) / m), float(np.ceil(high * m) / m)


def _prior(answer: PoolAnswer) -> float:
    """The accuracy that the confidences suggest."""
    task = answer.task
    confidence = answer.propagation_confidence
    if task.weights is not None:
        own = float(answer.probabilities[~task.given].max(axis=1).mean())
        # with few labels auto is overconfident and propagation underconfident, by about as much
        confidence = own if usual_count(task.codes) >= _MANY else (confidence + own) / 2
    return float(np.clip(confidence, 0.02, 0.98))


def _variance(share: float) -> float:
    return max(share * (1 - share), 0.04)  # no error among few labels does not prove that there is none


def _equivalent_labels(share: float, sd: float) -> float:
    """How many independent labels would determine a share to within ``sd``."""
    return float(_variance(share) / sd**2)


def _raised(probabilities: NdArray, power: float) -> NdArray:
    return np.asarray(softmax(power * np.log(np.maximum(probabilities, 1e-12))))


def _power(probabilities: NdArray, target: float) -> float:
    """The power at which the mean confidence is ``target``, between 1/20 and 20."""
    low, high = np.log(1 / 20), np.log(20)
    for _ in range(30):
        middle = (low + high) / 2
        if _raised(probabilities, float(np.exp(middle))).max(axis=1).mean() < target:
            low = middle
        else:
            high = middle
    return float(np.exp((low + high) / 2))
