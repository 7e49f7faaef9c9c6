"""Transductive information maximisation (TIM): class weights, optimised by Adam.

The weights start as class means; the objective is a function of tau times the logits -|x - w|^2 / 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from a2lp.arrays import Array, log_softmax, namespace, softmax
from a2lp.cores import map_tasks
from a2lp.engines.contract import Callback, Engine, Loop, Points, Step, batched, fused_cpu
from a2lp.loops.tim import fused_cuda
from a2lp.optimizers import Adam


class Objective(NamedTuple):
    """support * CE - (marginal * H(mean p) - conditional * mean H(p)), with entropies of order ``order``."""

    support: float
    marginal: float
    conditional: float
    order: float = 1.0

    def slope(self, p: Array, log_p: Array) -> Array:
        """d/dp of minus the entropy, up to a constant, which changes no gradient by the logits."""
        if self.order == 1:
            return log_p
        return (self.order / (self.order - 1)) * namespace(p).exp((self.order - 1) * log_p)

    def gradient(self, logits: Array, labels: Array) -> Array:
        """The gradient by the logits (b, n, c); the first rows have ``labels`` (b, s, c), the others are queries."""
        xp = namespace(logits)
        s = labels.shape[1]
        p_s = softmax(logits[:, :s, :])
        # 1 - p_y is a sum of its parts, since p_y is near one
        wrong = (1 - labels) * p_s
        d_support = (self.support / s) * (wrong - labels * xp.sum(wrong, axis=-1, keepdims=True))
        log_p = log_softmax(logits[:, s:, :])
        p = xp.exp(log_p)
        mean = xp.mean(p, axis=1, keepdims=True)
        log_mean = xp.log(xp.clip(mean, min=1e-30))  # all probabilities of a class may be zero
        u = self.marginal * self.slope(mean, log_mean) - self.conditional * self.slope(p, log_p)
        d_query = (p / p.shape[1]) * (u - xp.sum(p * u, axis=-1, keepdims=True))
        return xp.concat([d_support, d_query], axis=1)


class Settings(NamedTuple):
    """The objective and the optimiser."""

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
        # without |x|^2, which is the same for all classes
        logits = vectors @ xp.matrix_transpose(weights) - 0.5 * xp.sum(weights * weights, axis=-1)[:, None, :]
        if callback is not None:
            callback(Step(step, slice(0, vectors.shape[0]), weights, None, logits))
        back = xp.matrix_transpose(tau * settings.objective.gradient(tau * logits, labels))  # (b, c, n)
        gradient = back @ vectors - xp.sum(back, axis=2)[:, :, None] * weights
        state, move = adam.update(state, gradient)
        weights = weights + move
    return weights


def _compiled(points: Points, settings: Settings) -> Array:
    from a2lp.loops.tim import kernel

    vectors, codes, weights = points.vectors, np.asarray(points.codes, np.int64), points.class_means
    (b, n, d), s, c, dtype = vectors.shape, codes.shape[1], points.n_classes, vectors.dtype
    floats = np.array([settings.tau, *settings.objective, *settings.adam.constants], dtype)
    rates = settings.adam.rates(settings.steps).astype(dtype)
    found = np.empty_like(weights)

    def solve(i: int, work: dict[str, Any]) -> None:
        work["X"][:, :d] = vectors[i]
        work["XT"][:, :n] = vectors[i].T
        work["W"][:c, :d] = weights[i]
        work["codes"][:] = codes[i]
        work["mean"][:] = 0
        work["square"][:] = 0
        kernel.descend(c, floats, rates, tuple(work.values()))
        found[i] = work["W"][:c, :d]

    map_tasks(solve, b, lambda: kernel.make_workspace(s, n, d, c, dtype))
    return found


_CUDA_REASON = "tensors on a GPU: all steps of all tasks in one launch"
_CUDA = Engine("fused_cuda", fused_cuda.run, _CUDA_REASON, fused_cuda.refusal)
# the result is the class weights (b, c, d)
LOOP = Loop("tim", (fused_cpu(_compiled), _CUDA, batched(_batched, shows_steps=True)))
