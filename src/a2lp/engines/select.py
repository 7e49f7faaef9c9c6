"""Which engine runs a loop, and why."""

from __future__ import annotations

from typing import Any, NamedTuple

from a2lp.engines.batched import BATCHED
from a2lp.engines.contract import Callback, Engine, Loop, Points
from a2lp.engines.fused_cpu import FUSED_CPU
from a2lp.engines.fused_cuda import FUSED_CUDA
from a2lp.engines.reference import REFERENCE
from a2lp.errors import InputError

PROPAGATION = Loop("propagation", (FUSED_CPU, FUSED_CUDA, BATCHED, REFERENCE))


class LoopRun(NamedTuple):
    """The result of a loop, which engine ran it, and why."""

    result: Any
    engine: str
    reason: str


def run(loop: Loop, engine: str, points: Points, settings: Any, callback: Callback | None = None) -> LoopRun:
    """Run a loop on a block of tasks; ``engine`` is ``"auto"`` or a name."""
    chosen, reason = choose(loop, engine, points, settings, calls_back=callback is not None)
    arguments = (points, settings) if callback is None else (points, settings, callback)
    return LoopRun(chosen.run(*arguments), chosen.name, reason)


def choose(loop: Loop, name: str, points: Points, settings: Any, *, calls_back: bool = False) -> tuple[Engine, str]:
    """The engine for a block of tasks, and the reason."""
    by_name = {engine.name: engine for engine in loop.engines}
    if name == "auto" and "batched" in by_name and getattr(settings, "steps", None) == 0:
        return by_name["batched"], "there is one pass and no step, so nothing is worth compiling"
    refused: dict[str, str] = {}
    for engine in loop.engines if name == "auto" else [by_name[name]]:
        refusal = engine.refusal(points, settings)
        if calls_back and not engine.shows_steps:
            refusal = "a callback wants to see every step, and it runs all steps in one call"
        if refusal is None:
            others = "".join(f"; {other} does not run here: {why}" for other, why in refused.items())
            return engine, engine.reason + others if name == "auto" else "asked for by name"
        refused[engine.name] = refusal
    if name != "auto":
        raise InputError(f"engine={name!r} cannot run this: {refused[name]}. Use engine='auto'.")
    raise InputError(f"no engine can run this: {'; '.join(f'{k}: {v}' for k, v in refused.items())}.")
