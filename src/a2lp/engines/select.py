"""Which engine runs, and why."""

from __future__ import annotations

from a2lp.engines.batched import Batched
from a2lp.engines.contract import Engine, Problem, Settings
from a2lp.engines.fused_cpu import FusedCPU
from a2lp.engines.reference import Reference
from a2lp.errors import UnknownNameError

_ENGINES: dict[str, type[Engine]] = {"reference": Reference, "batched": Batched, "fused_cpu": FusedCPU}

NAMES = ("auto", *_ENGINES)


def choose(name: str, problem: Problem, settings: Settings) -> tuple[Engine, str]:
    """The engine for a problem, and the reason in words.

    Parameters
    ----------
    name : str
        ``"auto"``, or the name of an engine.
    """
    if name == "auto":
        return Batched(), "it runs on any array library"
    if name not in _ENGINES:
        raise UnknownNameError("engine", name, NAMES)
    return _ENGINES[name](), "asked for by name"
