"""How good an answer is: the accuracy to expect, calibrated probabilities, and given labels that look wrong.

The prediction for an unlabelled point is right if the point's class has a label, and the method chose that class. So
its confidence is

    (1 - u) sigmoid(a + b x),

where u is the probability that nobody has labelled the point's class (``unseen``), x the evidence for the prediction,
and a and b what held-out labels say about evidence of that size (``calibrate``). The expected accuracy is the mean of
the confidences of the unlabelled points, so it includes classes without a label.

Labels are held out in at most five folds, so that every class loses labels alike, and predicted by the same method.
The interval is normal, and covers the uncertainty of a and b, that of the share of unknown classes, and chance. Points
of a region are right or wrong together: it is not the chance of so many points, but of four regions for each label.

With names (``a2lp.pool.names``) every label can be held out, also the only one of a class, and no class is unknown:
whoever names the classes names all of them. Names can mislead without a sign of it, so the prior of ``calibrate`` is
wide, and without any label the interval is from 0 to 1: nothing was checked.

It holds for labels at random, class by class, suggested and mixed, as long as it is known how each was chosen
(``Pool.label``); docs/classify.md shows how often. Audits, points drawn at random among the suggestions, are the only
labels that are a fair sample whatever the model believes. Each was drawn from the points that had no label at the time;
it is judged by its prediction from all other labels of today.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from a2lp.pool.calibrate import Calibration, calibrate, evidence, left_behind, need_power, scale
from a2lp.pool.held_out import draw_folds, predict_held_out
from a2lp.pool.methods import Task, first_weights, predict_rows
from a2lp.pool.neighbours import NdArray
from a2lp.pool.open_set import novelty
from a2lp.pool.rows import by_rows
from a2lp.pool.solve import PoolAnswer
from a2lp.pool.unseen import UNREACHED, spread, unseen_mass

_FOLDS = 5
_REGION = 0.25  # of the unlabelled points for a label: these are right or wrong together
_SD_WITH_NAMES = 0.2  # of the accuracy, from what the model leaves out with names, divided by the root of the labels
_SURE = 0.75  # the probability of another class from which a given label is doubted


class Estimate(NamedTuple):
    """An expected accuracy and its 95 % interval."""

    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class Assessment:
    """How good an answer is.

    Attributes
    ----------
    accuracy : float
        The share of unlabelled points whose label is expected to be right.
    low, high : float
        Its 95 % interval.
    unseen : float
        The share of unlabelled points that are expected to belong to classes without any label. Their labels are
        wrong; ``accuracy`` includes them.
    probabilities : array (n, c)
        Calibrated: the largest of a row is the probability that the predicted label is right. Rows of unlabelled points
        sum to 1 minus the probability that the point belongs to none of the classes.
    held_out_rows : array (m,)
        Labelled points whose label was held out; none where every class has one label.
    held_out_probabilities : array (m, c)
        Their calibrated predictions.
    mistakes : array (k,)
        Rows whose given label disagrees with its held-out prediction, the most certain first. The only label of a class
        is never among them.
    suspicion : array (k,)
        The probability of the best other class, 0.75 or more.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from a2lp import Pool
    >>> x, y = load_digits(return_X_y=True)
    >>> found = Pool(x[:500], [*y[:60], *[None] * 440]).assessment
    >>> bool(found.low <= found.accuracy <= found.high)
    True
    """

    accuracy: float
    low: float
    high: float
    unseen: float
    probabilities: NdArray
    held_out_rows: NdArray
    held_out_probabilities: NdArray
    mistakes: NdArray
    suspicion: NdArray
    _beliefs: _Beliefs | None = field(default=None, repr=False)

    def of(self, rows: Any) -> Estimate:
        """The accuracy to expect on some of the unlabelled points, such as those whose confidence is high.

        Parameters
        ----------
        rows : array-like
            A mask (n,), or positions; points with a given label are left out.
        """
        chosen = np.zeros(len(self.probabilities), dtype=bool)
        chosen[rows] = True
        return Estimate(1.0, 1.0, 1.0) if self._beliefs is None else self._beliefs.estimate(chosen)

    def reaching(self, target: float, among: Any = slice(None)) -> NdArray:
        """The unlabelled points to keep for an accuracy (n,): the most confident ones, as many as it allows.

        Parameters
        ----------
        target : float
            The accuracy that is expected of them; none is kept where it cannot be reached.
        among : array-like, optional
            A mask (n,), or positions: no others are kept.
        """
        kept = np.zeros(len(self.probabilities), dtype=bool)
        if self._beliefs is not None:
            allowed = kept.copy()
            allowed[among] = True
            new = np.flatnonzero(self._beliefs.new & allowed)
            confidence = self._beliefs.confidence[new]
            order = np.argsort(-confidence, kind="stable")
            means = np.cumsum(confidence[order]) / np.arange(1, len(order) + 1)  # these only fall
            kept[new[order[means >= target]]] = True
        return kept

    def __repr__(self) -> str:
        return (
            f"Assessment(accuracy {100 * self.accuracy:.0f} %, 95 % interval {100 * self.low:.0f} to "
            f"{100 * self.high:.0f} %; {len(self.mistakes)} labels look wrong)"
        )


def assess(answer: PoolAnswer, how: NdArray | None = None, scores: NdArray | None = None) -> Assessment:
    """Judge an answer by the labels that it was made from.

    Parameters
    ----------
    answer : PoolAnswer
        The folds are drawn by the seed of its task.
    how : array (n,), optional
        How each label was chosen, one of ``a2lp.pool.unseen.HOW``; by the user's own choice if not given.
    scores : array (n,), optional
        ``novelty`` of the answer, where it is known already.
    """
    task, new = answer.task, ~answer.given
    how = np.full(len(new), "", dtype=object) if how is None else how
    rows, predicted, x = _held_out(answer)
    suggested = how[rows] == "suggested"
    right = predicted.argmax(axis=1) == task.codes[rows]
    calibration = calibrate(x, suggested, right, task.labels_per_class, named=task.names is not None)
    predicted = _with_largest(predicted, calibration.right(x, need_power(task.labels_per_class) * suggested))
    order, suspicion = _doubted(predicted, task.codes[rows])
    if not new.any():
        none = Estimate(1.0, 1.0, 1.0)
        return Assessment(*none, 0.0, answer.probabilities, rows, predicted, rows[order], suspicion)
    beliefs = _believe(answer, calibration, how, novelty(answer) if scores is None else scores)
    probabilities = _with_largest(answer.probabilities, calibration.right(beliefs.x))
    probabilities *= (1 - beliefs.unseen)[:, None]
    probabilities = task.pinned(probabilities)
    share = float(beliefs.unseen[new].mean())
    estimate = beliefs.estimate(new)
    return Assessment(*estimate, share, probabilities, rows, predicted, rows[order], suspicion, beliefs)


class _Beliefs(NamedTuple):
    """What is known about every point: the evidence for its prediction, and the probability of an unknown class."""

    calibration: Calibration
    new: NdArray
    x: NdArray
    unseen: NdArray
    unseen_variance: float
    region: float  # the number of points that are right or wrong together
    left_out: float  # standard deviation of the accuracy from what the model leaves out

    @property
    def confidence(self) -> NdArray:
        """The probability that each prediction is right (n,)."""
        return np.asarray((1 - self.unseen) * self.calibration.right(self.x))

    def estimate(self, rows: NdArray) -> Estimate:
        """The accuracy to expect on the unlabelled ones among these points."""
        rows = rows & self.new
        if not (m := int(rows.sum())):
            return Estimate(1.0, 1.0, 1.0)
        x, known = self.x[rows], 1 - self.unseen[rows]
        right, confidence = self.calibration.right(x), self.confidence[rows]
        accuracy = float(confidence.mean())
        # where there are more points of unknown classes than expected, they are so in proportion
        total = float(self.unseen[self.new].mean())
        lost = float(((1 - known) * right).mean()) / total if total else 1.0
        chance = confidence * (1 - confidence) + self.region * known * right * (1 - right)
        variance = self.calibration.variance(x, known) + self.left_out**2 + float(chance.mean()) / m
        variance += lost**2 * self.unseen_variance
        half = 1.96 * float(np.sqrt(variance))
        # the true share is a multiple of 1 / m
        low, high = np.floor(max(accuracy - half, 0) * m) / m, np.ceil(min(accuracy + half, 1) * m) / m
        return Estimate(accuracy, float(low), float(high))


def _believe(answer: PoolAnswer, calibration: Calibration, how: NdArray, scores: NdArray) -> _Beliefs:
    new = ~answer.given
    # whoever names the classes names all of them
    mass, variance = unseen_mass(answer.task.codes, how) if answer.task.names is None else (0.0, 0.0)
    lost = float((~answer.reached[new]).mean())
    variance += lost**2 * UNREACHED * (1 - UNREACHED)  # a part of the graph is of known classes or not as a whole
    unseen = np.zeros(len(new))
    unseen[new] = spread(mass, scores[new], answer.reached[new])
    x = evidence(answer.probabilities.max(axis=1), answer.propagated_confidence, _scale(answer))
    if answer.given.any():
        x *= left_behind(answer.task.labels_per_class, float((how[answer.given] == "suggested").mean()))
    region = _REGION * float(new.sum()) / max(float(answer.given.sum()), 1.0)
    return _Beliefs(calibration, new, x, unseen, variance, region, _left_out(answer.task))


def _scale(answer: PoolAnswer) -> float:
    task = answer.task
    if answer.method != "auto" or task.weights is None or task.names is not None:  # with names it was not tried
        return 1.0
    return scale(task.weights, first_weights(task))


def _left_out(task: Task) -> float:
    if task.names is None:
        return 0.0
    return _SD_WITH_NAMES / float(np.sqrt(task.given.sum())) if task.given.any() else np.inf


def _held_out(answer: PoolAnswer) -> tuple[NdArray, NdArray, NdArray]:
    """The points whose label can be held out (m,), their predictions (m, c), and the evidence for these (m,)."""
    task, part = answer.task.sample()
    folds = draw_folds(task.codes, _FOLDS, task.seed, named=task.names is not None)
    rows = part[folds >= 0]
    if task.n_classes == 1 or not len(rows):
        return np.zeros(0, np.int64), np.zeros((0, task.n_classes), np.float32), np.zeros(0)

    def predict(codes: NdArray, held_out: NdArray) -> NdArray:
        hidden = task.hiding(codes)
        predicted = predict_rows(hidden, answer.method, held_out)
        return np.column_stack([predicted, predict_rows(hidden, "lp", held_out).max(axis=1)])

    found = predict_held_out(task.codes, folds, predict, on_device=task.on_device)
    predicted = found[:, :-1]
    return rows, predicted, evidence(predicted.max(axis=1), found[:, -1], _scale(answer))


def _doubted(predicted: NdArray, codes: NdArray) -> tuple[NdArray, NdArray]:
    """Which of the held-out labels look wrong, the most certain first, and how certain that is."""
    others = predicted.copy()
    others[np.arange(len(codes)), codes] = 0
    suspicion = others.max(axis=1, initial=0)
    order = np.argsort(-suspicion, kind="stable")
    order = order[suspicion[order] >= _SURE]
    return order, suspicion[order]


def _with_largest(probabilities: NdArray, largest: NdArray) -> NdArray:
    """Distributions (n, c) whose largest probabilities are these (n,), or 1 / c if that is more.

    A larger one takes its share from all others in proportion; a smaller one leaves it to all classes equally, so that
    it remains the largest.
    """
    n, c = probabilities.shape
    if c == 1 or not n:
        return probabilities.astype(np.float64)

    def scaled(part: slice) -> NdArray:
        p = probabilities[part].astype(np.float64)
        best, top = p.argmax(axis=1), p.max(axis=1)
        goal = np.maximum(largest[part], 1 / c)
        scale = np.where(
            goal >= top, (1 - goal) / np.maximum(1 - top, 1e-12), (goal - 1 / c) / np.maximum(top - 1 / c, 1e-12)
        )
        made: NdArray = p * scale[:, None] + np.where(goal >= top, 0, (1 - scale) / c)[:, None]
        made[np.arange(len(p)), best] = goal
        return made

    found: NdArray = by_rows(scaled, np.empty((n, c)))
    return found
