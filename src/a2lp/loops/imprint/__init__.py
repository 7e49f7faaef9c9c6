"""Fine-tuning of class weights on the support by Adam.

The weights start as class means; the loss is the mean cross-entropy of tau times the logits -|x - w|^2 / 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from a2lp.arrays import Array, device, namespace
from a2lp.checks import choice, whole
from a2lp.cores import map_tasks
from a2lp.engines.contract import AdamSettings, Callback, Engine, Loop, Points, Step, batched, fused_cpu
from a2lp.loops.imprint import fused_cuda
from a2lp.losses import BY_NUMERICS, NUMERICS


@dataclass(frozen=True, kw_only=True)
class Settings(AdamSettings):
    """``methods.imprinting.Imprinting`` documents them."""

    steps: int = whole(1000, 0, "0 leaves the class means as they are.")
    numerics: str = choice("official", NUMERICS)
    tau: float = 15.0


def _batched(points: Points, settings: Settings, callback: Callback | None = None) -> tuple[Array, Array]:
    support, labels, weights = points.support, points.labels, points.class_means
    xp = namespace(support)
    b, s, _ = support.shape
    state = settings.adam.init(weights)
    lengths = xp.sum(support * support, axis=-1)[:, :, None]  # (b, s, 1)
    losses = []
    for step in range(settings.steps):
        squares = lengths + xp.sum(weights * weights, axis=-1)[:, None, :]  # (b, s, c)
        logits = support @ xp.matrix_transpose(weights) - 0.5 * squares
        loss = BY_NUMERICS[settings.numerics](logits, labels, tau=settings.tau, scale=1.0 / s)
        losses.append(loss.value)
        if callback is not None:
            callback(Step(step, slice(0, b), weights, loss.value, logits))
        back = xp.matrix_transpose(loss.d_anchors)  # (b, c, s)
        gradient = back @ support - xp.sum(back, axis=2)[:, :, None] * weights
        state, move = settings.adam.update(state, gradient)
        weights = weights + move
    none = xp.empty((b, 0), dtype=support.dtype, device=device(support))
    return weights, xp.stack(losses, axis=1) if losses else none


def _compiled(points: Points, settings: Settings) -> tuple[Array, Array]:
    from a2lp.loops.imprint import kernel

    support, codes, weights = points.support, np.asarray(points.codes, np.int64), points.class_means
    (b, s, d), c, dtype, adam = support.shape, points.n_classes, support.dtype, settings.adam
    floats = np.array([settings.tau, 1.0 / s, *adam.constants], dtype)
    rates = adam.rates(settings.steps).astype(dtype)
    losses = np.empty((b, settings.steps), dtype)

    def solve(i: int, work: dict[str, Any]) -> None:
        work["X"][:s, :d] = support[i]
        work["W"][:c, :d] = weights[i]
        work["mean"][:] = 0
        work["square"][:] = 0
        kind = NUMERICS.index(settings.numerics)
        kernel.fine_tune(codes[i], c, kind, floats, rates, losses[i], tuple(work.values()))
        weights[i] = work["W"][:c, :d]

    map_tasks(solve, b, lambda: kernel.make_workspace(s, d, c, dtype))
    return weights, losses


_CUDA_REASON = "tensors on a GPU: all steps of all tasks in one launch"
_CUDA = Engine("fused_cuda", fused_cuda.run, _CUDA_REASON, fused_cuda.refusal)
# the result is the class weights (b, c, d) and the loss before each step (b, steps)
LOOP = Loop("imprint", (fused_cpu(_compiled), _CUDA, batched(_batched, shows_steps=True)))
