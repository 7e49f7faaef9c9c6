"""Hypotheses about the classes' shares, the evidence for each, and the centre that follows from it.

The shares of a task's classes are equal, or from a symmetric Dirichlet distribution: which is not known, so that each
hypothesis is tried, and weighted by how well its classes explain the points.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from a2lp.arrays import Array, device, log_gamma, namespace
from a2lp.engines.contract import Points

CONCENTRATIONS = (0.5, 2.0, math.inf)  # a class or two have most of the points; unequal; equal
_PROBABILITIES = (0.25, 0.25, 0.5)  # beforehand: equal or not are equally probable
_INDEPENDENCE = 0.5  # of the points: what is known of one is partly known from its neighbours
_DOUBT = 0.15  # as unequal as classes are when support and all points count alike in the centre, at one shot


class Prior(NamedTuple):
    """Concentrations (k,), and the probability of each in each task (b, k)."""

    concentrations: Array
    weights: Array


def fixed_prior(concentration: float, like: Array) -> Prior:
    """One concentration for all tasks of an array (b, ...)."""
    xp = namespace(like)
    options = {"dtype": like.dtype, "device": device(like)}
    return Prior(xp.full((1,), concentration, **options), xp.ones((like.shape[0], 1), **options))


def evidence(logits: Array, shares: Array, concentration: float) -> Array:
    """The logarithm of a hypothesis's probability in each task (b,), up to what all hypotheses have in common.

    logits (b, c, m) are those of the points without a label, but for what shares of classes add to them; shares
    (b, c, m) are their soft labels. Their sum less that of the shares' logarithms is the points' part of the bound that
    expectation-maximisation raises; the classes' masses have a Dirichlet-multinomial distribution.
    """
    xp, (_, c, m) = namespace(shares), shares.shape
    fit = xp.sum(shares * (logits - xp.log(xp.clip(shares, min=1e-30))), axis=(1, 2))
    believed = math.log(_PROBABILITIES[CONCENTRATIONS.index(concentration)])
    if math.isinf(concentration):
        return _INDEPENDENCE * fit + (believed - m * math.log(c))
    mass = xp.sum(shares, axis=2)
    each = xp.full_like(mass[:1, :1], concentration)
    total = xp.full_like(mass[:1, 0], c * concentration)
    masses = xp.sum(log_gamma(mass + each) - log_gamma(each), axis=1) + log_gamma(total) - log_gamma(total + m)
    return _INDEPENDENCE * fit + believed + masses


def trust_in_support(concentration: float, n_classes: int, n_shot: float) -> float:
    """How much the support counts in the centre.

    The mean of all points is off by the inequality of the classes, the support's by the fewness of its shots.
    """
    if math.isinf(concentration):
        return 0.0
    inequality = (n_classes - 1) / (n_classes * concentration + 1)  # relative variance of shares
    squared = (n_shot * inequality) ** 2
    return squared / (squared + _DOUBT**2)


def centre(points: Points, trust: float) -> Array:
    """Weights of the points (b, n) in a centre between their mean and the mean of the support's class means."""
    labels = points.all_labels  # (b, n, c)
    xp, (_, n, c) = namespace(labels), labels.shape
    equal = xp.full_like(labels[:, :, 0], 1.0 / n)
    shots = xp.clip(xp.sum(labels, axis=1, keepdims=True), min=1.0)
    support = xp.sum(labels / shots, axis=2) / c
    return trust * support + (1 - trust) * equal
