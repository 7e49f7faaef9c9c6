"""The probability that a prediction is right, learned from labels that were held out.

A label is held out, predicted from the others, and found right or wrong. The points that people label are rarely a fair
sample, suggested ones least of all: they are the difficult ones. But the model knows which points are difficult. So the
errors are not averaged; they are explained by the evidence x for each prediction,

    P(right) = sigmoid(a + b x - d v),     x = 0.7 s logit(confidence) + 0.3 logit(confidence of label propagation),

and a and b are applied to the evidence for each unlabelled point. A point that was chosen for its difficulty informs
the estimate for points that are as difficult, and hardly that for others. v is 0 for labels that were not suggested.
For suggested ones it is the power p of ``need_power`` with which suggestions look for doubtful points: among points of
equal evidence they find those that are more often wrong. The points that they leave are more often right, so the
evidence for these is multiplied by 1 + 0.2 times the mean of v over all labels (``left_behind``).

The weights of ``auto`` are fitted to the labels, and their sum sets how confident it is. Where the labels are those of
difficult points, the sum is too small for the others. So s undoes a part of it (``scale``): it is the cube root of the
sum of the weights before the fit divided by that after it.

With few labels the data cannot determine a, b and d, and where every class has one label there are no data at all. So
each has a normal prior: a = -0.15 - 0.4 / (labels per class) ± 0.3, since methods are overconfident with one or two
labels per class, b = 1.2 ± 0.2, d = 0.9 ± 0.2. A held-out label counts as 0.6 of one, since errors come in groups: in a
class, or in a region of the pool. One that was suggested counts as 0.25: whether it is a typical point of its class or
an exception, it stands for others less. The normal approximation of the posterior at its maximum gives the uncertainty.

What is learned is learned from models that lack a fold of the labels. With one or two labels per class they say little
about the whole model: in some pools it is much better than they suggest, in others worse. So a has a further
uncertainty, of 0.4 / (labels per class), that no label lowers.

All constants were chosen on validation pools (ResNet-12 vectors of CUB, miniImageNet and CIFAR-FS, WRN-28-10 vectors
and photos of the first two, CLIP vectors of DTD, digits; whole and with 10 and 25 of their classes), by the likelihood
of the true accuracy and the calibration error; ``benchmarks/estimate.py`` tests them on others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from a2lp.pool.neighbours import NdArray

_PROPAGATION = 0.3  # its share in the evidence: auto is overconfident with few labels, propagation underconfident
_PRIOR = np.array([-0.15, 1.2, 0.9])  # of a, b and d
_PRIOR_SD = np.array([0.3, 0.2, 0.2])
_PRIOR_SD_WITH_NAMES = np.array([1.0, 0.3, 0.2])  # confidences from names may be far off
_FEW, _FEW_SD = -0.4, 0.4  # added to the prior of a, and its further uncertainty, divided by the labels per class
_COUNTS, _SUGGESTED_COUNTS = 0.6, 0.25  # of a label, for one that was held out
_WEIGHTS_UNDONE = 1 / 3  # the power of s
_LEFT_BEHIND = 0.2  # growth of the evidence for points that suggestions passed over
_CERTAIN = 1e-3  # probabilities closer to 0 or 1 are not told apart
_NEED_GROWS = 0.15  # for each label per class after the first


class Calibration(NamedTuple):
    """The posterior of a, b and d."""

    mean: NdArray
    covariance: NdArray

    def right(self, x: NdArray, v: NdArray | float = 0.0) -> NdArray:
        """The probability that predictions with this evidence are right."""
        a, b, d = self.mean
        return np.asarray(expit(a + b * x - d * v))

    def variance(self, x: NdArray, share: NdArray) -> float:
        """Of the mean of ``share`` times ``right`` over unlabelled points, from that of a and b."""
        p = self.right(x)
        slope = share * p * (1 - p)
        gradient = np.array([slope.mean(), (slope * x).mean(), 0.0])
        return float(gradient @ self.covariance @ gradient)


def evidence(confidence: NdArray, propagated: NdArray, s: float = 1.0) -> NdArray:
    """x, from the largest probabilities of a method and of label propagation."""
    ours, theirs = (logit(np.clip(p.astype(np.float64), _CERTAIN, 1 - _CERTAIN)) for p in (confidence, propagated))
    return np.asarray((1 - _PROPAGATION) * s * ours + _PROPAGATION * theirs)


def scale(weights: NdArray, first: NdArray) -> float:
    """s, from the weights of ``auto`` and those it starts from."""
    return float((first.sum() / weights.sum()) ** _WEIGHTS_UNDONE)


def need_power(labels_per_class: float) -> float:
    """The power of the doubt in the need for a label (``suggest``): 0 at one label per class, and 1 from 8 on."""
    return float(np.clip(_NEED_GROWS * (labels_per_class - 1), 0, 1))


def left_behind(labels_per_class: float, suggested: float) -> float:
    """The factor of the evidence for unlabelled points, where this share of the labels was suggested."""
    return 1 + _LEFT_BEHIND * need_power(labels_per_class) * suggested


def calibrate(
    x: NdArray, suggested: NdArray, right: NdArray, labels_per_class: float, *, named: bool = False
) -> Calibration:
    """Learn from held-out labels.

    Parameters
    ----------
    x : array (m,)
    suggested, right : array (m,)
        Whether each label was suggested, and each prediction right.
    labels_per_class : float
        The mean.
    named : bool
        Whether names of classes took part in the predictions: then one label per class is not few.
    """
    data = np.stack([np.ones_like(x), x, -need_power(labels_per_class) * suggested], axis=1)  # (m, 3)
    counts = np.where(suggested, _SUGGESTED_COUNTS, _COUNTS)
    prior_sd = _PRIOR_SD_WITH_NAMES if named else _PRIOR_SD
    precision = np.diag(prior_sd**-2.0)
    few, few_sd = (0.0, 0.0) if named else (_FEW / labels_per_class, _FEW_SD / labels_per_class)
    prior = _PRIOR + np.array([few, 0.0, 0.0])
    mean, covariance = prior, np.diag(prior_sd**2.0)
    for _ in range(25):  # Newton's method: the prior keeps the problem well conditioned
        p = expit(data @ mean)
        curvature = precision + (data * (counts * p * (1 - p))[:, None]).T @ data
        step = np.linalg.solve(curvature, data.T @ (counts * (right - p)) - precision @ (mean - prior))
        mean, covariance = mean + step, np.linalg.inv(curvature)
        if np.abs(step).max() < 1e-6:
            break
    return Calibration(mean, covariance + np.diag([few_sd**2, 0.0, 0.0]))
