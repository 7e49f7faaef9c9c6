"""What an answer is worth: the accuracy to expect, calibrated probabilities, and given labels that look wrong.

**The estimate.** Labels are hidden in turn and predicted by the same method: as many folds as most classes have
labels, at most five, so that every class loses labels alike. A model that misses a fold is a little worse than the
whole one: errors fall about as (labels per class) ** -0.25 on all pools that were looked at, and are scaled by that.
The interval holds the doubt from the number of labels, from the number of points they speak for, from that
extrapolation (7 points at two labels per class, 3 at five, 2 from eight on), and a prior, the answer's own confidence,
which was seen to be right within 10 points. At one label per class nothing can be hidden, the prior is all there is,
and the interval says so: some 40 points wide.

Labels must be a random draw of each class. Of points that were chosen for being difficult the estimate is too low.
Points of classes that nobody labelled are not in it at all.

Seen on the validation pools of ``methods`` (47, 10, 5 and 3 classes; 36 draws for each number of labels per class):

==================  ====  ====  ====  ====
labels per class       1     2     5    10
==================  ====  ====  ====  ====
mean bias, points    0.9  -2.7   1.0   0.6
mean error, points   9.1   5.8   3.6   2.7
intervals right, %    97    97    97    94
interval, points      37    29    18    14
calibration error   10.7   7.4   5.2   4.5
==================  ====  ====  ====  ====
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.stats import beta

from a2lp.arrays import softmax
from a2lp.pool.held_out import draw_folds, hide_in_turn, usual_count
from a2lp.pool.methods import METHODS, Task, lp
from a2lp.pool.neighbours import NdArray
from a2lp.pool.solve import PoolAnswer

_FOLDS = 5
_PRIOR_SD = 0.1  # of the answer's own confidence around the accuracy
_LEARNING = 0.25  # errors fall with this power of the labels per class
_EXTRAPOLATION_SD = 0.15, 0.02  # divided by the labels per class, and the least
_MANY = 4  # labels per class from which auto's confidence is fitted to them
_SURE = 0.8  # the chance that another class must have before a label is doubted


@dataclass(frozen=True, eq=False)
class Assessment:
    """What an answer is worth.

    Attributes
    ----------
    accuracy : float
        The share of unlabelled points that are expected to be labelled rightly.
    low, high : float
        Its 95 % interval.
    probabilities : array (n, c)
        The answer's, raised to a power such that the mean confidence on unlabelled points is ``accuracy``.
    mistakes : array (m,)
        Rows whose given label disagrees with what the others say, the surest first. The only label of a class is
        never among them.
    suspicion : array (m,)
        The chance of the best other class, 0.8 or more.
    """

    accuracy: float
    low: float
    high: float
    probabilities: NdArray
    mistakes: NdArray
    suspicion: NdArray


def assess(answer: PoolAnswer, *, seed: int = 0) -> Assessment:
    """Judge an answer by the labels that it was made of.

    Parameters
    ----------
    answer : PoolAnswer
    seed : int
        Of the folds in which labels are hidden.
    """
    task = Task(answer.prepared.points, answer.graph, answer.codes, len(answer.classes), seed, answer.weights)
    new = ~task.given
    if not new.any():
        return Assessment(1.0, 1.0, 1.0, answer.probabilities, np.zeros(0, np.int64), np.zeros(0))
    hidden = _hide(task, answer.method)
    accuracy, low, high = _estimate(task, answer, hidden)
    power = _power(answer.probabilities[new], accuracy)
    probabilities = task.pinned(_raised(answer.probabilities, power))
    rows, suspicion = _mistakes(task, hidden, power)
    return Assessment(accuracy, low, high, probabilities, rows, suspicion)


class _Hidden(NamedTuple):
    """What was said about labelled rows while their labels were hidden."""

    rows: NdArray  # (m,)
    said: NdArray  # (m, c)
    kept: float  # the share of labels that was not hidden


def _hide(task: Task, method: str) -> _Hidden | None:
    n_folds = int(np.clip(usual_count(task.codes), 2, _FOLDS))
    folds = draw_folds(task.codes, n_folds, task.seed)
    if task.n_classes == 1 or (folds < 0).all():
        return None
    said = hide_in_turn(task.codes, folds, lambda codes: METHODS[method](replace(task, codes=codes)).probabilities)
    return _Hidden(np.flatnonzero(folds >= 0), said, 1 - 1 / n_folds)


def _estimate(task: Task, answer: PoolAnswer, hidden: _Hidden | None) -> tuple[float, float, float]:
    """The mean of a beta distribution of the accuracy, and its 95 % interval."""
    prior = _prior(task, answer)
    weight = _worth(prior, _PRIOR_SD)
    right, wrong = weight * prior, weight * (1 - prior)
    if hidden is not None:
        error = float(np.mean(hidden.said.argmax(axis=1) != task.codes[hidden.rows]))
        error *= hidden.kept**_LEARNING
        sampled = _variance(error) * (1 / len(hidden.rows) + 1 / int((~task.given).sum()))
        drift = max(_EXTRAPOLATION_SD[0] / usual_count(task.codes), _EXTRAPOLATION_SD[1])
        weight = _worth(error, np.sqrt(sampled + drift**2))
        right, wrong = right + weight * (1 - error), wrong + weight * error
    low, high = beta.ppf([0.025, 0.975], right, wrong)
    m = int((~task.given).sum())  # the truth is a multiple of 1 / m
    return right / (right + wrong), float(np.floor(low * m) / m), float(np.ceil(high * m) / m)


def _prior(task: Task, answer: PoolAnswer) -> float:
    """The accuracy that confidences speak for."""
    new = ~task.given
    # with few labels auto is too sure and propagation not sure enough, by about as much
    propagated = _confidence(lp(task).probabilities, new)
    if answer.weights is None:
        confidence = propagated
    elif usual_count(task.codes) >= _MANY:
        confidence = _confidence(answer.probabilities, new)
    else:
        confidence = (propagated + _confidence(answer.probabilities, new)) / 2
    return float(np.clip(confidence, 0.02, 0.98))


def _confidence(probabilities: NdArray, rows: NdArray) -> float:
    return float(probabilities[rows].max(axis=1).mean())


def _variance(share: float) -> float:
    return max(share * (1 - share), 0.04)  # no error among few labels is no proof of none


def _worth(share: float, sd: float) -> float:
    """How many independent labels would know a share to within ``sd``."""
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


def _mistakes(task: Task, hidden: _Hidden | None, power: float) -> tuple[NdArray, NdArray]:
    if hidden is None:
        return np.zeros(0, np.int64), np.zeros(0)
    said = _raised(hidden.said, power)
    places = np.arange(len(hidden.rows))
    said[places, task.codes[hidden.rows]] = 0
    suspicion = said.max(axis=1)
    order = np.argsort(-suspicion, kind="stable")
    order = order[suspicion[order] >= _SURE]
    return hidden.rows[order], suspicion[order]
