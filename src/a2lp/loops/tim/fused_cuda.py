"""All steps of TIM's descent in one CUDA launch, one thread block per task; for torch tensors on a GPU."""

from __future__ import annotations

from typing import Any

from a2lp.engines.contract import Points
from a2lp.kernels import descent

_REALS = f"{descent.ADAM} {descent.OBJECTIVE} tau"


def refusal(points: Points, settings: Any) -> str | None:
    """Why the kernel cannot run these tasks, or None if it can."""
    return descent.refusal(points.vectors, points.n_classes, own_memory(points))


def run(points: Points, settings: Any) -> Any:
    """Class weights (b, c, d)."""
    weights = points.class_means.contiguous()
    parameters = make_parameters(points, settings)
    descent.launch(
        "tim", points.vectors, points.codes, settings.adam, settings.steps, (weights,),
        parameters=parameters, own=own_memory(points),
    )  # fmt: skip
    return weights


def own_memory(points: Points) -> descent.Own:
    """Shared memory beside that of the descent."""
    return descent.Own(points.n_classes * (int(points.vectors.shape[1]) + 1))


def make_parameters(points: Points, settings: Any) -> Any:
    """The kernel's parameters."""
    reals = *settings.adam.constants, *settings.objective, settings.tau
    made = descent.params(points.vectors.dtype.itemsize, _REALS, "s steps")
    return made(*reals, points.codes.shape[1], settings.steps)
