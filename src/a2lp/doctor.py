"""What this machine has, which engine would run here and why, and whether each engine computes what it should."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np

from a2lp._version import __version__
from a2lp.arrays import to_numpy
from a2lp.engines import select
from a2lp.engines.contract import Problem, Settings
from a2lp.environment import hardware
from a2lp.methods.base import require_whole
from a2lp.methods.registry import create
from a2lp.tasks.batch import TaskBatch

PACKAGES = ("numpy", "scipy", "numba", "torch")
TOLERANCES = {"float64": 1e-9, "float32": 1e-4}  # of Z, after STEPS steps
STEPS = 20


class Choice(NamedTuple):
    """What ``engine="auto"`` does with one kind of arrays."""

    arrays: str
    engine: str | None
    reason: str


class Check(NamedTuple):
    """An engine against the reference; what could not be tried has a ``note`` and no difference.

    Attributes
    ----------
    engine, arrays, precision : str
    difference : float or None
        Largest difference of Z after ``STEPS`` steps.
    seconds : float or None
        Of the first call, which is the one that compiles.
    passed : bool or None
        None if it cannot run here.
    note : str
        Why not, or what went wrong.
    """

    engine: str
    arrays: str
    precision: str
    difference: float | None
    seconds: float | None
    passed: bool | None
    note: str = ""


class Report(NamedTuple):
    """Everything that the doctor found."""

    machine: dict[str, Any]
    versions: dict[str, str | None]
    task: dict[str, int]
    choices: list[Choice]
    checks: list[Check]
    kernel: dict[str, str]

    @property
    def passed(self) -> bool:
        """Whether no engine failed."""
        return all(check.passed is not False for check in self.checks)


def examine(ways: int = 5, shots: int = 1, queries: int = 15, dims: int = 640) -> Report:
    """Look at the machine, choose engines for tasks of a shape, and try each engine.

    Parameters
    ----------
    ways, shots, queries, dims : int
        Classes of a task, labelled vectors and queries of a class, and the length of a vector.
    """
    task = {"ways": ways, "shots": shots, "queries": queries, "dims": dims}
    for name, value in task.items():
        require_whole(name, value, 1, "The paper has 5 ways, 1 or 5 shots, 15 queries a class and 640 dimensions.")
    checks = list(_self_test())  # before the state of the kernel: this loads or compiles it
    machine = {**hardware("cpu"), "vectors": vector_instructions(), "gpu": _gpu()}
    del machine["device"]
    return Report(machine, versions(), task, _choices(**task), checks, _kernel_state())


def versions() -> dict[str, str | None]:
    """Versions of a2lp and of what it computes with; None for what is not installed."""
    found: dict[str, str | None] = {"a2lp": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def vector_instructions() -> str:
    """The vector instructions that ``fused_cpu`` is compiled to."""
    from a2lp.engines import _simd

    features = _simd._cpu_features()
    known = {"+avx512f": "AVX-512", "+avx2": "AVX2", "+avx": "AVX", "+neon": "NEON (untested)"}
    name = next(
        (name for feature, name in known.items() if feature in features.split(",")), "the compiler's own choice"
    )
    return f"{name}, blocks of {_simd.VECTOR_BYTES // 4} float32"


def _torch() -> Any:
    """The torch package if it is installed and can be loaded, else None."""
    try:
        import torch
    except (ImportError, OSError):  # OSError: a library that it needs is broken
        return None
    return torch


def _gpu() -> str | None:
    torch = _torch()
    return str(torch.cuda.get_device_name()) if torch is not None and torch.cuda.is_available() else None


def _kinds() -> dict[str, tuple[Callable[[Any], Any] | None, str]]:
    """Kinds of arrays: how NumPy's become those, or None and why that cannot be done here."""
    torch = _torch()
    if torch is None:
        missing = "torch is not installed" if versions()["torch"] is None else "torch is installed but does not load"
        return {"NumPy": (np.asarray, ""), "torch CPU": (None, missing), "torch CUDA": (None, missing)}
    on_gpu = (lambda x: torch.asarray(x).cuda()) if torch.cuda.is_available() else None
    return {
        "NumPy": (np.asarray, ""),
        "torch CPU": (torch.asarray, ""),
        "torch CUDA": (on_gpu, "" if on_gpu else "torch sees no CUDA device"),
    }


def _choices(ways: int, shots: int, queries: int, dims: int) -> list[Choice]:
    s, m = ways * shots, ways * queries
    settings = Settings(n_neighbors=min(20, s + m - 1), gamma=3.0, alpha=0.8, steps=1000)
    codes = np.arange(s)[None] % ways
    found = []
    for name, (convert, missing) in _kinds().items():
        if convert is None:
            found.append(Choice(name, None, missing))
            continue
        support, rest = (convert(np.zeros((1, size, dims), np.float32)) for size in (s, m))
        engine, reason = select.choose("auto", Problem(support, rest, convert(codes), ways), settings)
        found.append(Choice(name, engine.name, reason))
    return found


def _self_test() -> Iterator[Check]:
    """Each engine on each kind of arrays that it takes, in both precisions, on a few small random tasks."""
    rng = np.random.default_rng(0)
    b, c, d, q = 4, 5, 64, 40
    centres = rng.normal(size=(b, c, d))
    hidden = rng.integers(0, c, (b, q))
    support = centres + 0.8 * rng.normal(size=centres.shape)
    query = centres[np.arange(b)[:, None], hidden] + 0.8 * rng.normal(size=(b, q, d))
    labels = np.tile(np.arange(c), (b, 1))
    expected = _solve("reference", support, labels, query)
    kinds = _kinds()
    for engine, arrays, precisions in (
        ("batched", "NumPy", ("float64", "float32")),
        ("fused_cpu", "NumPy", ("float64", "float32")),
        ("batched", "torch CPU", ("float64", "float32")),
        ("batched", "torch CUDA", ("float64", "float32")),
        ("fused_cuda", "torch CUDA", ("float32",)),
    ):
        convert, missing = kinds[arrays]
        for precision in precisions:
            if convert is None:
                yield Check(engine, arrays, precision, None, None, None, missing)
                continue
            start = time.perf_counter()
            try:
                found = _solve(engine, convert(support.astype(precision)), labels, convert(query.astype(precision)))
            except Exception as error:  # whatever is wrong with an engine is what the doctor is there to say
                note = f"{type(error).__name__}: {error}"
                yield Check(engine, arrays, precision, None, time.perf_counter() - start, False, note)
                continue
            seconds = time.perf_counter() - start
            difference = float(np.abs(found - expected).max())
            passed = difference <= TOLERANCES[precision]  # False for NaN
            yield Check(engine, arrays, precision, difference, seconds, passed)


def _solve(engine: str, support: Any, labels: Any, query: Any) -> np.ndarray[Any, Any]:
    batch = TaskBatch(support, labels, query)
    return to_numpy(create("a2lp", engine=engine, steps=STEPS, n_neighbors=10).predict(batch).scores)


def _kernel_state() -> dict[str, str]:
    """For each precision, whether the compiled code of ``fused_cpu`` was on disk; and the folder it is kept in."""
    from a2lp.engines import _cpu_kernel

    stats = _cpu_kernel.solve_task.stats
    state = {str(signature[0].dtype): "compiled just now" for signature in stats.cache_misses}
    state |= {str(signature[0].dtype): "compiled before" for signature in stats.cache_hits}
    return state | {"folder": str(stats.cache_path)}
