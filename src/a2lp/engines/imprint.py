"""Fine-tuning of class weights on the support: compiled for NumPy arrays, a plain loop in any other library."""

from __future__ import annotations

import threading

import numpy as np
from array_api_compat import device

from a2lp.arrays import Array, is_numpy, namespace, one_hot
from a2lp.cores import map_on_cores
from a2lp.losses import NUMERICS, by_numerics
from a2lp.optimizers import Adam


def choose(support: Array, steps: int) -> tuple[str, str]:
    """Which engine ``run`` takes, and the reason in words."""
    if steps == 0:
        return "batched", "there is no step, so nothing is worth compiling"
    if is_numpy(namespace(support)):
        return "fused_cpu", "NumPy arrays: all steps of a task in one compiled call, a task to a core"
    return "batched", "its gradient has a closed form on any array library"


def run(
    support: Array,
    codes: Array,
    n_classes: int,
    *,
    tau: float,
    steps: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    numerics: str,
) -> tuple[Array, Array]:
    """Class means, fine-tuned by Adam on the mean cross-entropy of tau times the logits -|x - w|^2 / 2.

    Parameters
    ----------
    support : array (b, s, d)
        float32 or float64.
    codes : array (b, s)
        Each vector's class, 0 to n_classes - 1; no class is empty.
    n_classes : int
    tau, numerics
        The loss's; see ``losses``.
    steps, lr, betas, eps
        Adam's.

    Returns
    -------
    weights : array (b, c, d)
    losses : array (b, steps)
        Before each step.
    """
    xp = namespace(support)
    labels = one_hot(codes, n_classes, support.dtype)  # (b, s, c)
    sizes = xp.sum(labels, axis=1)[:, :, None]  # (b, c, 1)
    means = (xp.matrix_transpose(labels) @ support) / sizes
    adam = Adam(lr, betas, eps)
    engine, _ = choose(support, steps)
    if engine == "fused_cpu":
        return _compiled(support, np.asarray(codes, np.int64), means, adam, tau, steps, numerics)
    return _loop(support, labels, means, adam, tau, steps, numerics)


def _loop(
    support: Array, labels: Array, weights: Array, adam: Adam, tau: float, steps: int, numerics: str
) -> tuple[Array, Array]:
    """All tasks a step at a time."""
    xp = namespace(support)
    b, s, _ = support.shape
    state = adam.init(weights)
    loss_function = by_numerics(numerics)
    lengths = xp.sum(support * support, axis=-1)[:, :, None]  # (b, s, 1)
    nothing = support[:, :0, :]  # this loss looks at the support only
    losses = []
    for _ in range(steps):
        squares = lengths + xp.sum(weights * weights, axis=-1)[:, None, :]  # (b, s, c)
        logits = support @ xp.matrix_transpose(weights) - 0.5 * squares
        loss = loss_function(logits, nothing, labels, tau=tau, scale=1.0 / s)
        losses.append(loss.value)
        back = xp.matrix_transpose(loss.d_anchors)  # (b, c, s)
        gradient = back @ support - xp.sum(back, axis=2)[:, :, None] * weights
        state, move = adam.update(state, gradient)
        weights = weights + move
    none = xp.empty((b, 0), dtype=support.dtype, device=device(support))
    return weights, xp.stack(losses, axis=1) if losses else none


def _compiled(
    support: Array, codes: Array, weights: Array, adam: Adam, tau: float, steps: int, numerics: str
) -> tuple[Array, Array]:
    """All steps of a task in one call, without the GIL; tasks are spread over all cores."""
    from a2lp.engines import _imprint_kernel as kernel

    b, s, d = support.shape
    c, dtype = weights.shape[1], support.dtype
    b1, b2 = adam.betas
    floats = np.array([tau, 1.0 / s, b1, 1 - b1, b2, 1 - b2, adam.eps], dtype)
    rates = adam.rates(steps).astype(dtype)
    losses = np.empty((b, steps), dtype)
    own = threading.local()  # each core's memory, used for task after task

    def solve(i: int) -> None:
        if not hasattr(own, "space"):
            own.space = kernel.make_workspace(s, d, c, dtype)
        space = own.space
        space.X[:s, :d] = support[i]
        space.W[:c, :d] = weights[i]
        space.mean[:] = 0
        space.square[:] = 0
        kernel.fine_tune(codes[i], c, NUMERICS.index(numerics), floats, rates, losses[i], space)
        weights[i] = space.W[:c, :d]

    map_on_cores(solve, range(b))
    return weights, losses
