"""The hardware, the engine that is chosen here and why, and whether each engine computes correct results."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np

from a2lp._version import __version__
from a2lp.arrays import NDArray, to_numpy
from a2lp.checks import require_whole
from a2lp.engines import select
from a2lp.engines.contract import Points, Settings
from a2lp.environment import hardware
from a2lp.errors import InputError
from a2lp.features.statistics import BaseStatistics
from a2lp.kernels import compiler, simd
from a2lp.methods.base import LoopMethod
from a2lp.methods.registry import loop_methods
from a2lp.tasks.batch import TaskBatch

PACKAGES = ("numpy", "scipy", "numba", "torch")
# of probabilities, after STEPS steps; where gradients are almost zero, rounding decides the direction of a step
TOLERANCES = {"float64": 1e-6, "float32": 1e-2}
STEPS = 20
ARRAYS = {"batched": ("NumPy", "torch CPU", "torch CUDA"), "fused_cpu": ("NumPy",), "fused_cuda": ("torch CUDA",)}


class Choice(NamedTuple):
    """The engine that ``engine="auto"`` chooses for one kind of arrays; None if these cannot be made here."""

    arrays: str
    engine: str | None
    reason: str


class Check(NamedTuple):
    """A comparison of an engine of a method with the method's slowest and plainest one, in float64."""

    method: str
    engine: str
    arrays: str
    precision: str
    difference: float | None  # the largest of the probabilities after STEPS steps; None if the engine raised an error
    seconds: float  # of the first call, which compiles
    passed: bool
    note: str = ""  # the error


class Report(NamedTuple):
    """The result of ``examine``."""

    machine: dict[str, Any]
    versions: dict[str, str | None]
    task: dict[str, int]
    choices: list[Choice]
    checks: list[Check]
    kernels: dict[str, str]

    @property
    def passed(self) -> bool:
        """Whether no engine failed."""
        return all(check.passed for check in self.checks)


def examine(
    ways: int = 5,
    shots: int = 1,
    queries: int = 15,
    dims: int = 640,
    progress: Callable[[str], object] = lambda _: None,
) -> Report:
    """Examine the machine, choose engines of A2LP for tasks of a shape, and test each engine of each method.

    Shots and queries are per class. ``progress`` is called with the name of each test before it runs; the first one of
    an engine may compile for some seconds.
    """
    task = {"ways": ways, "shots": shots, "queries": queries, "dims": dims}
    for name, value in task.items():
        require_whole(name, value, 1, "The paper has 5 ways, 1 or 5 shots, 15 queries a class and 640 dimensions.")
    checks = list(_self_test(progress))
    torch = _torch()
    gpu = str(torch.cuda.get_device_name()) if torch is not None and torch.cuda.is_available() else None
    machine = {**hardware("cpu"), "vectors": vector_instructions(), "gpu": gpu}
    del machine["device"]
    folder = compiler.folder()
    kernels = "none that can be written: kernels are compiled in every process" if folder is None else str(folder)
    return Report(machine, _versions(), task, _choices(**task), checks, {"folder": kernels})


def _versions() -> dict[str, str | None]:
    """Versions of a2lp and of the packages that it computes with; None for what is not installed."""
    found: dict[str, str | None] = {"a2lp": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def vector_instructions() -> str:
    """The vector instructions that ``fused_cpu`` is compiled to."""
    features = simd.cpu_features().split(",")
    known = {"+avx512f": "AVX-512", "+avx2": "AVX2", "+avx": "AVX", "+neon": "NEON (untested)"}
    found = [name for feature, name in known.items() if feature in features]
    name = found[0] if found else "the compiler's own choice"
    return f"{name}, blocks of {simd.VECTOR_BYTES // 4} float32"


def _torch() -> Any:
    """The torch package if it is installed and can be loaded, else None."""
    try:
        import torch
    except (ImportError, OSError):  # OSError: a library that it needs is broken
        return None
    return torch


def _kinds() -> dict[str, Callable[[Any], Any] | str]:
    """Kinds of arrays, each with a function that converts NumPy's to it, or with the reason why there is none here."""
    torch = _torch()
    if torch is None:
        missing = "torch is not installed" if _versions()["torch"] is None else "torch is installed but does not load"
        return {"NumPy": np.asarray, "torch CPU": missing, "torch CUDA": missing}
    to_gpu = (lambda x: torch.asarray(x).cuda()) if torch.cuda.is_available() else "torch sees no CUDA device"
    return {"NumPy": np.asarray, "torch CPU": torch.asarray, "torch CUDA": to_gpu}


def _choices(ways: int, shots: int, queries: int, dims: int) -> list[Choice]:
    codes = np.arange(ways * shots)[None] % ways
    vectors = np.zeros((1, ways * (shots + queries), dims), np.float32)
    found = []
    for name, convert in _kinds().items():
        if isinstance(convert, str):
            found.append(Choice(name, None, convert))
            continue
        points = Points(convert(vectors), convert(codes), ways, ways * queries)
        engine, reason = select.choose(select.PROPAGATION, "auto", points, Settings())
        found.append(Choice(name, engine.name, reason))
    return found


def _self_test(progress: Callable[[str], object]) -> Iterator[Check]:
    """Each engine of each loop on each kind of arrays that it takes, in both precisions, on a few random tasks."""
    rng = np.random.default_rng(0)
    b, c, d, q = 4, 5, 64, 40
    centres = rng.normal(size=(b, c, d))
    hidden = rng.integers(0, c, (b, q))
    support = centres + 0.8 * rng.normal(size=centres.shape)
    query = centres[np.arange(b)[:, None], hidden] + 0.8 * rng.normal(size=(b, q, d))
    labels = np.tile(np.arange(c), (b, 1))
    base = BaseStatistics.of(rng.normal(size=(20 * d, d)), np.arange(20 * d) % 20)
    kinds = {name: convert for name, convert in _kinds().items() if not isinstance(convert, str)}
    for name, method in loop_methods().items():
        quick = {"steps": STEPS, "n_neighbors": 10, "base": base}
        known = {field.name for field in dataclasses.fields(method)}
        params: dict[str, Any] = {key: value for key, value in quick.items() if key in known}
        oracle = method.loop.engines[-1].name
        progress(f"{name}: {oracle}")
        expected = _probabilities(method(engine=oracle, **params), support, labels, query)
        tried = [(engine.name, arrays) for engine in method.loop.engines for arrays in ARRAYS.get(engine.name, ())]
        for engine, arrays in tried:
            for precision in ("float64", "float32"):
                if arrays not in kinds or (engine, arrays, precision) == (oracle, "NumPy", "float64"):
                    continue
                progress(f"{name}: {engine}, {arrays}, {precision}")
                tasks = kinds[arrays](support.astype(precision)), labels, kinds[arrays](query.astype(precision))
                start, difference, note = time.perf_counter(), None, ""
                try:
                    found = _probabilities(method(engine=engine, **params), *tasks)
                    difference = float(np.abs(found - expected).max())
                except InputError:  # fused_cuda has one precision only
                    continue
                except Exception as error:  # any error is a result of the test
                    note = f"{type(error).__name__}: {error}"
                seconds = time.perf_counter() - start
                passed = difference is not None and difference <= TOLERANCES[precision]  # False for NaN
                yield Check(name, engine, arrays, precision, difference, seconds, passed, note)


def _probabilities(method: LoopMethod, support: Any, labels: Any, query: Any) -> NDArray:
    return to_numpy(method.predict(TaskBatch(support, labels, query)).probabilities)
