"""Which engine runs, and why."""

from __future__ import annotations

from a2lp.arrays import is_numpy, namespace
from a2lp.engines import fused_cuda
from a2lp.engines.batched import Batched
from a2lp.engines.contract import Engine, Problem, Settings
from a2lp.engines.fused_cpu import FusedCPU
from a2lp.engines.fused_cuda import FusedCUDA
from a2lp.engines.reference import Reference
from a2lp.errors import InputError, UnknownNameError

_ENGINES: dict[str, type[Engine]] = {
    "reference": Reference,
    "batched": Batched,
    "fused_cpu": FusedCPU,
    "fused_cuda": FusedCUDA,
}

NAMES = ("auto", *_ENGINES)


def choose(name: str, problem: Problem, settings: Settings, *, calls_back: bool = False) -> tuple[Engine, str]:
    """The engine for a problem, and the reason in words.

    Parameters
    ----------
    name : str
        ``"auto"``, or the name of an engine.
    problem, settings
        What is to be run.
    calls_back : bool
        Whether the caller wants to see every step.
    """
    if name not in NAMES:
        raise UnknownNameError("engine", name, NAMES)
    on_numpy = is_numpy(namespace(problem.support))
    if name == "fused_cpu" and not on_numpy:
        raise InputError(
            f"engine='fused_cpu' takes NumPy arrays, and these are {type(problem.support).__module__} arrays. Convert "
            "them, or use engine='auto'."
        )
    if name != "auto":
        return _ENGINES[name](), "asked for by name"
    if settings.steps == 0:
        return Batched(), "there is one pass and no step, so nothing is worth compiling"
    if calls_back:
        return Batched(), "a callback wants to see every step, and compiled engines run all steps in one call"
    if on_numpy:
        return FusedCPU(), "NumPy arrays: all steps of a task in one compiled call, a task to a core"
    refusal = fused_cuda.refusal(problem, settings)
    if refusal is None:
        return FusedCUDA(), "float32 tensors on a GPU: all steps of all tasks in one launch, a thread block to a task"
    return Batched(), f"it runs on any array library; fused_cuda does not run here: {refusal}"
