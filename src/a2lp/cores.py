"""The number of cores that this process may use, and work in parallel: in threads, since the work releases the GIL."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from a2lp.errors import InputError

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Space = TypeVar("Space")
Map = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]

CGROUP = Path("/sys/fs/cgroup")


def count() -> int:
    """Cores that this process may use: ``A2LP_CORES`` if it is set, else by its affinity and its container's quota."""
    chosen = os.environ.get("A2LP_CORES")
    if chosen:
        if not (chosen.isascii() and chosen.isdigit() and int(chosen) > 0):
            raise InputError(f"A2LP_CORES={chosen!r} must be a whole number, 1 or more. Unset it to use all cores.")
        return int(chosen)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _quota() or cores))


def _quota() -> int | None:
    """Whole cores that a control group allows, rounded up; None without a limit."""
    try:
        if (CGROUP / "cpu.max").exists():  # version 2
            quota, period = (CGROUP / "cpu.max").read_text(encoding="ascii").split()
        else:
            names = ("quota", "period")
            quota, period = ((CGROUP / "cpu" / f"cpu.cfs_{n}_us").read_text(encoding="ascii") for n in names)
        return -(-int(quota) // int(period)) if int(quota) > 0 else None
    except (OSError, ValueError):  # no such file, or "max"
        return None


_blas = SimpleNamespace(lock=threading.Lock(), users=0, limiter=None, controller=None, n_modules=0)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS and OpenMP to one thread; the last of several concurrent users restores the original limits."""
    with _blas.lock:
        _blas.users += 1
        if _blas.users == 1:
            _in_a_thread(_limit_blas)
    try:
        yield
    finally:
        with _blas.lock:
            _blas.users -= 1
            if _blas.users == 0:
                _in_a_thread(_blas.limiter.restore_original_limits)


def _limit_blas() -> None:
    # finding the libraries takes longer than a small task, and only new modules load new ones
    if _blas.n_modules != len(sys.modules):
        _blas.controller, _blas.n_modules = ThreadpoolController(), len(sys.modules)
    _blas.limiter = _blas.controller.limit(limits=1)


def _in_a_thread(function: Callable[[], object]) -> None:
    """Call it in a thread that then ends: while a thread that set a limit lives, no other thread can change it."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


_mine = threading.local()  # the crew of this thread, if it has one


@contextmanager
def crew() -> Iterator[Map]:
    """A function ``run(function, items)`` that is ``map_on_cores``, for many short steps: its threads start once.

    Within it, a crew is the same one; within the work of its threads, a crew is the thread itself.
    """
    if (known := getattr(_mine, "run", None)) is not None:
        yield known
        return
    n_threads = count()
    with one_blas_thread(), ThreadPoolExecutor(n_threads, initializer=_work_alone) as pool:

        def run(function: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
            items = list(items)
            if n_threads == 1 or len(items) == 1:
                return alone(function, items)
            futures = [pool.submit(function, item) for item in items]
            try:
                return [future.result() for future in futures]
            finally:
                for future in futures:
                    future.cancel()

        _mine.run = run
        try:
            yield run
        finally:
            _mine.run = None


def alone(function: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """``[function(item) for item in items]``, one after the other."""
    return [function(item) for item in items]


def _work_alone() -> None:
    _mine.run = alone


def map_on_cores(function: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """``[function(item) for item in items]``, one item per core.

    BLAS is limited to one thread meanwhile: for small tasks its threads cost more than they gain. An exception,
    including Ctrl-C, cancels the items that have not begun.
    """
    with crew() as run:
        return run(function, items)


def map_tasks(solve: Callable[[int, Space], None], n_tasks: int, make_workspace: Callable[[], Space]) -> None:
    """Call ``solve(task, workspace)`` for every task, one task per core; each core makes its workspace once."""
    own = threading.local()

    def one(task: int) -> None:
        if not hasattr(own, "space"):
            own.space = make_workspace()
        solve(task, own.space)

    map_on_cores(one, range(n_tasks))
