"""Descent on mutual information (TIM): class weights, moved by Adam.

The weights start as class means; the objective is that of tau times the logits -|x - w|^2 / 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from a2lp.arrays import Array, namespace, softmax
from a2lp.cores import map_tasks
from a2lp.engines.contract import Callback, Loop, Points, Step, batched, fused_cpu
from a2lp.optimizers import Adam


class Objective(NamedTuple):
    """support * CE - (marginal * H(mean p) - conditional * mean H(p)), with entropies of order ``order``."""

    support: float
    marginal: float
    conditional: float
    order: float = 1.0

    def slope(self, p: Array, log_p: Array) -> Array:
        """d/dp of minus the entropy, less a constant that no probabilities feel."""
        if self.order == 1:
            return log_p
        return (self.order / (self.order - 1)) * namespace(p).exp((self.order - 1) * log_p)

    def gradient(self, logits: Array, labels: Array) -> Array:
        """By the logits (b, n, c); ``labels`` (b, s, c) are those of the first rows, the others are queries."""
        xp = namespace(logits)
        s = labels.shape[1]
        p_s = softmax(logits[:, :s, :])
        # 1 - p_y summed from its parts, since p_y is near one
        wrong = (1 - labels) * p_s
        d_support = (self.support / s) * (wrong - labels * xp.sum(wrong, axis=-1, keepdims=True))
        z = logits[:, s:, :] - xp.max(logits[:, s:, :], axis=-1, keepdims=True)
        log_p = z - xp.log(xp.sum(xp.exp(z), axis=-1, keepdims=True))
        p = xp.exp(log_p)
        mean = xp.mean(p, axis=1, keepdims=True)
        log_mean = xp.log(xp.clip(mean, min=1e-30))  # a class whose probabilities have all vanished
        u = self.marginal * self.slope(mean, log_mean) - self.conditional * self.slope(p, log_p)
        d_query = (p / p.shape[1]) * (u - xp.sum(p * u, axis=-1, keepdims=True))
        return xp.concat([d_support, d_query], axis=1)


class Settings(NamedTuple):
    """What is minimised, and how."""

    objective: Objective
    tau: float
    steps: int
    adam: Adam


def _batched(points: Points, settings: Settings, callback: Callback | None = None) -> Array:
    vectors, labels, weights = points.vectors, points.labels, points.class_means
    xp = namespace(vectors)
    tau, adam = settings.tau, settings.adam
    state = adam.init(weights)
    for step in range(settings.steps):
        # |x|^2 is the same for all classes: it changes no probability
        logits = vectors @ xp.matrix_transpose(weights) - 0.5 * xp.sum(weights * weights, axis=-1)[:, None, :]
        if callback is not None:
            callback(Step(step, slice(0, vectors.shape[0]), weights, None, logits))
        back = xp.matrix_transpose(tau * settings.objective.gradient(tau * logits, labels))  # (b, c, n)
        gradient = back @ vectors - xp.sum(back, axis=2)[:, :, None] * weights
        state, move = adam.update(state, gradient)
        weights = weights + move
    return weights


def _compiled(points: Points, settings: Settings) -> Array:
    from a2lp.kernels.information import parameters
    from a2lp.loops.tim import kernel

    vectors, codes, weights = points.vectors, np.asarray(points.codes, np.int64), points.class_means
    (b, n, d), s, c, dtype = vectors.shape, codes.shape[1], points.n_classes, vectors.dtype
    floats = parameters(settings.tau, settings.objective, settings.adam, dtype)
    rates = settings.adam.rates(settings.steps).astype(dtype)
    found = np.empty_like(weights)

    def solve(i: int, space: kernel.Workspace) -> None:
        space.X[:, :d] = vectors[i]
        space.XT[:, :n] = vectors[i].T
        space.W[:c, :d] = weights[i]
        space.codes[:] = codes[i]
        space.mean[:] = 0
        space.square[:] = 0
        kernel.descend(c, floats, rates, space)
        found[i] = space.W[:c, :d]

    map_tasks(solve, b, lambda: kernel.make_workspace(s, n, d, c, dtype))
    return found


# the result is the class weights (b, c, d)
LOOP = Loop(
    "tim",
    (fused_cpu(_compiled), batched(_batched, shows_steps=True)),
    is_one_pass=lambda settings: settings.steps == 0,
)
