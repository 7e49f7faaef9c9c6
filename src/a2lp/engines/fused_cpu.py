"""The loop as compiled code, a task to a core: the engine for NumPy arrays."""

from __future__ import annotations

import threading

import numpy as np

from a2lp.cores import map_on_cores
from a2lp.engines.contract import Callback, Problem, Result, Settings
from a2lp.errors import InputError
from a2lp.graph import tie_slack
from a2lp.losses import NUMERICS, QUERY_TERMS
from a2lp.optimizers import Adam


class FusedCPU:
    """All steps of a task in one compiled call; tasks are spread over all cores, without the GIL."""

    name = "fused_cpu"

    def run(self, problem: Problem, settings: Settings, callback: Callback | None = None) -> Result:
        """Solve a batch of tasks in the precision that came in."""
        from a2lp.engines import _cpu_kernel as kernel
        from a2lp.engines import _cpu_losses

        if callback is not None:
            raise InputError(
                "engine='fused_cpu' runs all steps of a task in one call, so it cannot call back at each. "
                "Use engine='auto' or 'batched'."
            )
        support, rest, codes, n_classes = problem
        b, s, d = support.shape
        m, dtype = rest.shape[1], support.dtype
        off = -np.inf  # no loss and no gradient is this small
        terms = settings.terms
        floats = np.array(
            [
                settings.gamma, settings.alpha, settings.tau, terms.weight * settings.scale(s),
                *settings.betas, settings.eps,
                off if settings.loss_tol is None else settings.loss_tol,
                off if settings.grad_tol is None else settings.grad_tol,
                tie_slack(dtype), terms.entropy, terms.marginal,
            ],
            dtype,
        )  # fmt: skip
        integers = np.array(
            [
                settings.n_neighbors, settings.steps, settings.updates,
                _cpu_losses.OTHERS if terms.anchors == "others" else NUMERICS.index(settings.numerics),
                settings.optimizer == "adam", settings.renormalize, n_classes,
                QUERY_TERMS.index(terms.queries) if terms.on_queries else _cpu_losses.NO_QUERIES,
            ],
            np.int64,
        )  # fmt: skip
        lr, *betas = np.array([settings.lr, *settings.betas], dtype).tolist()  # as the kernel has them
        rates = Adam(lr, (betas[0], betas[1])).rates(settings.steps).astype(dtype)
        if settings.optimizer != "adam":
            rates[:] = lr
        z, anchors = np.empty((b, s + m, n_classes), dtype), np.empty((b, s, d), dtype)
        losses = np.empty((b, settings.steps), dtype)
        steps, converged = np.empty(b, np.int64), np.empty(b, bool)

        tolerant = settings.grad_tol is not None
        usual = settings.numerics == "exact" and not (terms.on_queries or settings.renormalize or tolerant)
        own = threading.local()  # each core's memory, used for task after task

        def solve(i: int) -> None:
            if not hasattr(own, "space"):
                own.space = kernel.make_workspace(s, m, d, n_classes, settings.n_neighbors, dtype)
                own.rare = None if usual else (np.empty(m, dtype), np.empty(n_classes, np.float32))
            by_class = np.argsort(codes[i], kind="stable")
            # the caller's order, support first, in places of the kernel's order, rest first
            order = np.concatenate([m + np.argsort(by_class, kind="stable"), np.arange(m)])
            kernel.fill(own.space, support[i][by_class], rest[i])
            steps[i], converged[i] = kernel.solve_task(
                floats, integers, codes[i][by_class], order, rates, losses[i], own.space, own.rare
            )
            z[i] = own.space.X[order, :n_classes]
            anchors[i, by_class] = own.space.points[m : m + s, :d]
            end = min(steps[i], settings.updates)
            losses[i, end + 1 :] = losses[i, end : end + 1]

        map_on_cores(solve, range(b))
        return Result(z, anchors, losses, steps, converged)
