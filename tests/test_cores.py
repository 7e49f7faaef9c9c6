"""How many cores are used, and that BLAS is left as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import a2lp
from a2lp import cores
from a2lp.errors import InputError


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def in_a_thread_that_ends(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_predicts_at_the_same_time_leave_blas_as_it_was() -> None:
    rng = np.random.default_rng(0)
    batch = a2lp.TaskBatch(rng.random((40, 5, 64)), np.tile(np.arange(5), (40, 1)), rng.random((40, 30, 64)))
    in_a_thread_that_ends(lambda: threadpool_limits(3, user_api="blas"))  # while it lives, no other can change it
    before = blas_threads()
    assert before and set(before) == {3}
    try:
        # the first to begin ends first, which is when a limit of the second's would be restored by the first
        both, first_done = threading.Barrier(2), threading.Event()

        def work(first: bool) -> None:
            def item(_: int) -> None:
                if first:
                    both.wait()
                else:
                    first_done.wait(10)
                assert set(blas_threads()) == {1}

            if not first:
                both.wait()
            cores.map_on_cores(item, [0])
            if first:
                first_done.set()

        threads = [threading.Thread(target=work, args=(first,)) for first in (True, False)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        workers = [threading.Thread(target=a2lp.create("a2lp", steps=3).predict, args=(batch,)) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert blas_threads() == before
    finally:
        in_a_thread_that_ends(lambda: threadpool_limits(os.cpu_count(), user_api="blas"))


def test_the_environment_decides_and_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2LP_CORES", "3")
    assert cores.count() == 3
    for wrong in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv("A2LP_CORES", wrong)
        with pytest.raises(InputError, match=f"A2LP_CORES='{wrong}' must be a whole number"):
            cores.count()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs os.sched_setaffinity")
def test_affinity_is_respected() -> None:
    one_core = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    code = f"{one_core}; from a2lp import cores; print(cores.count())"
    environment = {name: value for name, value in os.environ.items() if name != "A2LP_CORES"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),  # a core and a half: two threads keep it busy
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_a_containers_quota(
    files: dict[str, str], expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cores, "CGROUP", tmp_path)
    assert cores._quota() == expected


def test_every_core_has_one_workspace() -> None:
    made: list[object] = []
    seen: dict[int, int] = {}

    def make() -> list[int]:
        made.append(object())
        return [threading.get_ident()]

    def solve(task: int, space: list[int]) -> None:
        assert space[0] == threading.get_ident(), "another thread's memory"
        seen[task] = space[0]

    cores.map_tasks(solve, 50, make)
    assert sorted(seen) == list(range(50))
    assert len(made) == len(set(seen.values())) <= cores.count()
