"""Descent on mutual information: compiled for NumPy arrays, a plain loop in any other library."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from a2lp.arrays import Array, is_numpy, namespace, one_hot, softmax
from a2lp.cores import map_on_cores
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


def choose(points: Array, steps: int) -> tuple[str, str]:
    """Which engine ``run`` takes, and the reason in words."""
    if steps == 0:
        return "batched", "there is no step, so nothing is worth compiling"
    if is_numpy(namespace(points)):
        return "fused_cpu", "NumPy arrays: all steps of a task in one compiled call, a task to a core"
    return "batched", "its gradient has a closed form on any array library"


def run(
    support: Array,
    rest: Array,
    codes: Array,
    weights: Array,
    *,
    objective: Objective,
    tau: float,
    steps: int,
    adam: Adam,
) -> Array:
    """Class weights after ``steps`` of Adam on the objective of tau times the logits -|x - w|^2 / 2.

    Parameters
    ----------
    support, rest : arrays (b, s, d), (b, m, d)
        float32 or float64.
    codes : array (b, s)
        Each support vector's class, 0 to c - 1.
    weights : array (b, c, d)
        Where to start.
    """
    points = namespace(support).concat([support, rest], axis=1)
    if choose(points, steps)[0] == "fused_cpu":
        return _compiled(points, np.asarray(codes, np.int64), weights, objective, tau, steps, adam)
    return _loop(points, codes, weights, objective, tau, steps, adam)


def _loop(
    points: Array, codes: Array, weights: Array, objective: Objective, tau: float, steps: int, adam: Adam
) -> Array:
    """All tasks a step at a time."""
    xp = namespace(points)
    labels = one_hot(codes, weights.shape[1], points.dtype)
    state = adam.init(weights)
    for _ in range(steps):
        # |x|^2 is the same for all classes: no probability feels it
        logits = points @ xp.matrix_transpose(weights) - 0.5 * xp.sum(weights * weights, axis=-1)[:, None, :]
        back = xp.matrix_transpose(tau * objective.gradient(tau * logits, labels))  # (b, c, n)
        gradient = back @ points - xp.sum(back, axis=2)[:, :, None] * weights
        state, move = adam.update(state, gradient)
        weights = weights + move
    return weights


def _compiled(
    points: Array, codes: Array, weights: Array, objective: Objective, tau: float, steps: int, adam: Adam
) -> Array:
    """All steps of a task in one call, without the GIL; tasks are spread over all cores."""
    from a2lp.engines import _tim_kernel as kernel
    from a2lp.engines._information import parameters

    (b, n, d), s = points.shape, codes.shape[1]
    c, dtype = weights.shape[1], points.dtype
    floats, rates = parameters(tau, objective, adam, dtype), adam.rates(steps).astype(dtype)
    found = np.empty_like(weights)
    own = threading.local()  # each core's memory, used for task after task

    def solve(i: int) -> None:
        if not hasattr(own, "space"):
            own.space = kernel.make_workspace(s, n, d, c, dtype)
        space = own.space
        space.X[:, :d] = points[i]
        space.XT[:, :n] = points[i].T
        space.W[:c, :d] = weights[i]
        space.codes[:] = codes[i]
        space.mean[:] = 0
        space.square[:] = 0
        kernel.descend(c, floats, rates, space)
        found[i] = space.W[:c, :d]

    map_on_cores(solve, range(b))
    return found
