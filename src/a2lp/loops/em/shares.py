"""The prior of the classes' shares, inferred from their masses, and the centre that follows from it.

The shares of a task's classes are from a symmetric Dirichlet distribution. Its concentration is unknown: the masses
that a first run found give a probability to each of some concentrations, from very unequal classes to equal ones.
"""

from __future__ import annotations

from typing import NamedTuple

from a2lp.arrays import Array, device, log_gamma, namespace, softmax
from a2lp.engines.contract import Points

CONCENTRATIONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 128.0)
_SPREAD = 1.3  # large classes leak into small ones, so that masses are nearer to each other than the classes' sizes
_DOUBT = 0.3  # as unequal as classes are when support and all points count alike in the centre, at one shot


class Prior(NamedTuple):
    """Concentrations (k,), and the probability of each in each task (b, k)."""

    concentrations: Array
    weights: Array


def fixed_prior(concentration: float, like: Array) -> Prior:
    """One concentration for all tasks of an array (b, ...)."""
    xp = namespace(like)
    options = {"dtype": like.dtype, "device": device(like)}
    return Prior(xp.full((1,), concentration, **options), xp.ones((like.shape[0], 1), **options))


def inferred_prior(mass: Array) -> Prior:
    """Each concentration by the evidence of masses (b, c) under a Dirichlet-multinomial distribution."""
    xp, c = namespace(mass), mass.shape[1]
    mean = xp.mean(mass, axis=1, keepdims=True)
    sizes = xp.clip(mean + _SPREAD * (mass - mean), min=0.0)[:, None, :]  # (b, 1, c)
    values = xp.asarray(CONCENTRATIONS, dtype=mass.dtype, device=device(mass))
    each = values[None, :, None]
    evidence = xp.sum(log_gamma(sizes + each) - log_gamma(each), axis=2)  # (b, k)
    total = xp.sum(sizes, axis=2)
    evidence = evidence + log_gamma(c * values)[None, :] - log_gamma(total + c * values[None, :])
    return Prior(values, softmax(evidence))


def trust_in_support(prior: Prior, n_classes: int, n_shot: float) -> Array:
    """How much the support counts in the centre of each task (b,).

    The mean of all points is off by the inequality of the classes, the support's by the fewness of its shots.
    """
    xp = namespace(prior.weights)
    inequality = (n_classes - 1) / (n_classes * prior.concentrations + 1)  # relative variance of shares
    squared = (n_shot * xp.sum(prior.weights * inequality[None, :], axis=1)) ** 2
    return squared / (squared + _DOUBT**2)


def centre(points: Points, trust: float | Array) -> Array:
    """Weights of the points (b, n) in a centre between their mean and the mean of the support's class means."""
    labels = points.all_labels  # (b, n, c)
    xp, (b, n, c) = namespace(labels), labels.shape
    equal = xp.full_like(labels[:, :, 0], 1.0 / n)
    shots = xp.clip(xp.sum(labels, axis=1, keepdims=True), min=1.0)
    support = xp.sum(labels / shots, axis=2) / c
    part = trust if isinstance(trust, float) else xp.reshape(trust, (b, 1))
    return part * support + (1 - part) * equal
