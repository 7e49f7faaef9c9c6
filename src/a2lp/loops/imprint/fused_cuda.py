"""All steps of fine-tuning in one CUDA launch, one thread block per task; for torch tensors on a GPU."""

from __future__ import annotations

from typing import Any

from a2lp.arrays import namespace
from a2lp.engines.contract import Points
from a2lp.kernels import descent
from a2lp.losses import NUMERICS


def refusal(points: Points, settings: Any) -> str | None:
    """Why the kernel cannot run these tasks, or None if it can."""
    return descent.refusal(points.support, points.n_classes, own_memory(points))


def run(points: Points, settings: Any) -> tuple[Any, Any]:
    """Class weights (b, c, d), and the loss before each step (b, steps)."""
    support, weights = points.support, points.class_means.contiguous()
    losses = namespace(support).empty((len(support), settings.steps), dtype=support.dtype, device=support.device)
    descent.launch(
        "imprint", support, points.codes, settings.adam, settings.steps, (weights, losses),
        parameters=make_parameters(points, settings), own=own_memory(points),
    )  # fmt: skip
    return weights, losses


def own_memory(points: Points) -> descent.Own:
    """Shared memory beside that of the descent."""
    return descent.Own(2 * int(points.support.shape[1]))


def make_parameters(points: Points, settings: Any) -> Any:
    """The kernel's parameters."""
    made = descent.params(points.support.dtype.itemsize, f"{descent.ADAM} tau scale", "numerics steps")
    scale, numerics = 1.0 / points.support.shape[1], NUMERICS.index(settings.numerics)
    return made(*settings.adam.constants, settings.tau, scale, numerics, settings.steps)
