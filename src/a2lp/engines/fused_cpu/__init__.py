"""The loop as compiled code, one task per core: the engine for NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from a2lp.cores import map_tasks
from a2lp.engines.contract import Points, Result, Settings, fused_cpu
from a2lp.graph import tie_slack
from a2lp.losses import NUMERICS, QUERY_TERMS
from a2lp.optimizers import Adam


def run(points: Points, settings: Settings) -> Result:
    """Solve a batch of tasks in the precision of its vectors."""
    from a2lp.engines.fused_cpu import kernel

    support, rest, codes, c = points.support, points.rest, points.codes, points.n_classes
    (b, s, d), m, dtype = support.shape, rest.shape[1], support.dtype
    k = min(settings.n_neighbors, s + m - 1)
    floats, integers, rates = _parameters(settings, s, k, c, dtype)
    z, anchors = np.empty((b, s + m, c), dtype), np.empty((b, s, d), dtype)
    losses = np.empty((b, settings.steps), dtype)
    steps, converged = np.empty(b, np.int64), np.empty(b, bool)
    tolerant = settings.grad_tol is not None
    usual = settings.numerics == "exact" and not (settings.loss.on_queries or settings.renormalize or tolerant)

    def make_workspace() -> tuple[Any, Any]:
        rare = None if usual else (np.empty(m, dtype), np.empty(c, np.float32))
        return kernel.make_workspace(s, m, d, c, k, dtype), rare

    def solve(i: int, memory: tuple[Any, Any]) -> None:
        work, rare = memory
        by_class = np.argsort(codes[i], kind="stable")
        # the caller's order, support first, as indices into the kernel's order, rest first
        order = np.concatenate([m + np.argsort(by_class, kind="stable"), np.arange(m)])
        work["points"][:m, :d] = rest[i]
        work["points"][m : m + s, :d] = support[i][by_class]
        work["across"][:, :m] = rest[i].T
        for rows in (work["mean"], work["square"], work["U"][m + s :]):
            rows[:] = 0
        np.fill_diagonal(work["U"][m + s :, m + s :], 1)
        steps[i], converged[i] = kernel.solve_task(
            floats, integers, codes[i][by_class], order, rates, losses[i], tuple(work.values()), rare
        )
        z[i] = work["X"][order, :c]
        anchors[i, by_class] = work["points"][m : m + s, :d]
        end = min(steps[i], settings.updates)
        losses[i, end + 1 :] = losses[i, end : end + 1]

    map_tasks(solve, b, make_workspace)
    return Result(z, anchors, losses, steps, converged)


FUSED_CPU = fused_cpu(run)


def _parameters(settings: Settings, s: int, k: int, c: int, dtype: Any) -> tuple[Any, Any, Any]:
    """The kernel's vectors of parameters, in its order, and the optimiser's rates (steps, 2)."""
    from a2lp.kernels import losses

    terms = settings.loss
    floats = [
        settings.gamma, settings.alpha, settings.tau, terms.weight * settings.scale(s), *settings.betas, settings.eps,
        *settings.tolerances, tie_slack(dtype), terms.entropy, terms.marginal,
    ]  # fmt: skip
    integers = [
        k, settings.steps, settings.updates,
        losses.OTHERS if terms.anchors == "others" else NUMERICS.index(settings.numerics),
        settings.optimizer == "adam", settings.renormalize, c,
        QUERY_TERMS.index(terms.queries) if terms.on_queries else losses.NO_QUERIES,
    ]  # fmt: skip
    lr, beta1, beta2 = np.array([settings.lr, *settings.betas], dtype).tolist()  # as in the kernel
    adam = settings.optimizer == "adam"
    rates = Adam(lr, (beta1, beta2)).rates(settings.steps) if adam else np.full((settings.steps, 2), lr)
    return np.array(floats, dtype), np.array(integers, np.int64), rates.astype(dtype)
