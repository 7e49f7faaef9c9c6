"""How many cores this process may use, and work spread over them: threads, since the work releases the GIL."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from a2lp.errors import InputError

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Space = TypeVar("Space")

CGROUP = Path("/sys/fs/cgroup")


def count() -> int:
    """Cores that this process may use: ``A2LP_CORES`` where it is set, else its affinity and its container's quota."""
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


class _Blas:
    """BLAS at one thread while anybody needs that, and back at what it was after the last one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limiter: Any = None
        self._controller: Any = None
        self._seen = 0

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                _in_a_thread(self._limit)

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                _in_a_thread(self._limiter.restore_original_limits)

    def _limit(self) -> None:
        # looking for the libraries takes longer than a small task, and new ones come with new modules only
        if self._seen != len(sys.modules):
            self._controller, self._seen = ThreadpoolController(), len(sys.modules)
        self._limiter = self._controller.limit(limits=1)


def _in_a_thread(function: Callable[[], object]) -> None:
    """Call it in a thread that then ends.

    threadpoolctl lets no thread but the one that set a limit change it while that one lives; the last to leave is often
    not the first to enter.
    """
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


_BLAS = _Blas()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS and OpenMP to one thread; several threads may ask for that at the same time."""
    _BLAS.enter()
    try:
        yield
    finally:
        _BLAS.leave()


def map_on_cores(function: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """``[function(item) for item in items]``, an item to a core.

    BLAS keeps to one thread meanwhile: at the size of a task its threads cost more than they bring. An exception,
    Ctrl-C too, drops what has not begun.
    """
    items = list(items)
    pool = ThreadPoolExecutor(max(1, min(len(items), count())))
    with one_blas_thread():
        try:
            futures = [pool.submit(function, item) for item in items]
            return [future.result() for future in futures]
        finally:
            pool.shutdown(cancel_futures=True)


def map_tasks(solve: Callable[[int, Space], None], n_tasks: int, make_workspace: Callable[[], Space]) -> None:
    """Call ``solve(task, workspace)`` for every task, a task to a core; each core makes its workspace once."""
    own = threading.local()

    def one(task: int) -> None:
        if not hasattr(own, "space"):
            own.space = make_workspace()
        solve(task, own.space)

    map_on_cores(one, range(n_tasks))
