"""What ``speed.py`` measures beside the engines' times: the machine's peak, first use, memory, and how cost grows."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import a2lp
from a2lp.cores import map_on_cores

WAYS = 5
CORES = os.cpu_count() or 1


def multiply_adds(s: int, q: int, d: int, c: int) -> float:
    """Of one step of one task: s rows of similarities and of gradient, one Cholesky factor, 2 c solves with it."""
    n = s + q
    return 2 * s * n * d + n**3 / 3 + 2 * c * n**2


def peak_flops(device: str) -> float:
    """Of plain float32 matrix products: one on each core at a time, or one that fills the device."""
    if device == "cuda":
        import torch

        repeats, size = 10, 8192
        x = torch.rand(size, size, device=device)
        seconds = []
        for _ in range(repeats):
            torch.cuda.synchronize()
            start = time.perf_counter()
            x @ x
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        return 2.0 * size**3 / min(seconds)
    repeats, size = 5, 1024
    x = np.random.default_rng(0).random((size, size), np.float32)
    out = [np.empty_like(x) for _ in range(CORES)]

    def multiply(core: int) -> float:
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            np.matmul(x, x, out=out[core])
            seconds.append(time.perf_counter() - start)
        return 2.0 * size**3 / statistics.median(seconds)

    return float(sum(map_on_cores(multiply, range(CORES))))


def busy_seconds() -> float:
    """CPU time that all processes have taken since the machine started; 0 where the system does not say."""
    try:
        fields = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


# A new process: until its first result, and what the same call takes again. The first line of output counts from
# before Python started.
FIRST_USE = """
import sys, time
import a2lp

cub = a2lp.load("cub")
batch = a2lp.draw("balanced", cub.labels, seed=0, n_way=5, n_shot=1, n_query=15, n_tasks=1).batch(cub.features)
if sys.argv[1] == "cuda":
    import torch
    batch = a2lp.TaskBatch(torch.asarray(batch.support).cuda(), batch.codes, torch.asarray(batch.query).cuda())
method = a2lp.create("a2lp")
for _ in range(2):
    start = time.time()
    labels = method.predict(batch).labels.tolist()
    print(start, time.time())
"""


def first_use(device: str) -> dict[str, dict[str, float]] | None:
    """Seconds to the first result of one task, with no compiled code on disk and with it; None if it fails."""
    with tempfile.TemporaryDirectory() as empty:
        found = {}
        for state in ("new", "cached"):
            before = time.time()
            done = subprocess.run(
                [sys.executable, "-c", FIRST_USE, device],
                env=os.environ | {"NUMBA_CACHE_DIR": empty},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                print(f"first use could not be measured: {done.stderr.strip().splitlines()[-1]}")
                return None
            (start, first), (second, end) = (map(float, line.split()) for line in done.stdout.splitlines())
            found[state] = {"to_first_result": first - before, "first_call": first - start, "again": end - second}
    return found


MEMORY = """
import json, sys
import numpy as np
import a2lp

def status(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return 1024 * int(line.split()[1])

rng = np.random.default_rng(0)
support, query = rng.random((1, 5, 640), np.float32), rng.random((1, 75, 640), np.float32)
method = a2lp.create("a2lp", steps=3)
found = []
for tasks in (10, 1000, 10_000):
    # one task many times over: the input takes no memory, so that the rest can be seen
    wide = [np.broadcast_to(x, (tasks, *x.shape[1:])) for x in (support, np.arange(5)[None], query)]
    batch = a2lp.TaskBatch(*wide)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # sets the peak back to what is used now
    before = status("VmRSS")
    answer = method.predict(batch)
    result = sum(x.nbytes for x in vars(answer).values() if isinstance(x, np.ndarray))
    found.append({"n_tasks": tasks, "peak": status("VmHWM") - before, "result": result})
    del answer, batch
print(json.dumps(found[1:]))
"""


def memory(device: str) -> list[dict[str, int]] | None:
    """Peak bytes that solving takes beyond its input, and the bytes of the result; None if it cannot be seen."""
    if device == "cuda":
        return _memory_on_gpu()
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=False)
    if done.returncode:  # not Linux
        print(f"memory could not be measured: {done.stderr.strip().splitlines()[-1]}")
        return None
    return list(json.loads(done.stdout))


def _memory_on_gpu() -> list[dict[str, int]]:
    import torch

    found = []
    for tasks in (1000, 10_000):
        support, query = torch.rand(1, 5, 640, device="cuda"), torch.rand(1, 75, 640, device="cuda")
        batch = a2lp.TaskBatch(
            support.expand(tasks, 5, 640), np.tile(np.arange(5), (tasks, 1)), query.expand(tasks, 75, 640)
        )
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        answer = a2lp.create("a2lp", steps=3).predict(batch)
        torch.cuda.synchronize()
        result = sum(x.nbytes for x in vars(answer).values() if isinstance(x, torch.Tensor))
        found.append({"n_tasks": tasks, "peak": torch.cuda.max_memory_allocated() - before, "result": result})
    return found


BASE = {"n": 80, "s": 5, "d": 640, "T": 500, "b": 4 * CORES}
VARIED: dict[str, dict[str, Any]] = {
    "n": {"values": [40, 80, 160, 320, 640]},
    "d": {"values": [160, 320, 640, 1280, 2560]},
    "s": {"values": [5, 10, 20, 40, 80], "n": 160},
    "T": {"values": [250, 500, 1000, 2000, 4000]},
    "b": {"values": [CORES * tasks for tasks in (4, 8, 16, 32, 64)]},
}


def scaling(rounds: int = 3) -> list[dict[str, Any]]:
    """Seconds of ``fused_cpu`` while one size varies and the others stay; operations counted for the same sizes."""
    found = []
    a2lp.create("a2lp", engine="fused_cpu", steps=2).predict(_random_batch(**BASE))  # loads the compiled code
    for name, plan in VARIED.items():
        sizes = [BASE | {k: v for k, v in plan.items() if k != "values"} | {name: value} for value in plan["values"]]
        batches = [_random_batch(**size) for size in sizes]
        seconds: list[list[float]] = [[] for _ in sizes]
        for _ in range(rounds):
            for size, batch, times in zip(sizes, batches, seconds, strict=True):
                start = time.perf_counter()
                a2lp.create("a2lp", engine="fused_cpu", steps=size["T"]).predict(batch)
                times.append(round(time.perf_counter() - start, 6))
        operations = [
            multiply_adds(size["s"], size["n"] - size["s"], size["d"], WAYS) * size["T"] * size["b"] for size in sizes
        ]
        fixed = {k: v for k, v in sizes[0].items() if k != name}
        found.append(
            {"varied": name, "values": plan["values"], "fixed": fixed, "seconds": seconds, "operations": operations}
        )
        print(f"scaling with {name}: {[statistics.median(times) for times in seconds]}", flush=True)
    return found


def _random_batch(n: int, s: int, d: int, T: int, b: int) -> a2lp.TaskBatch:
    """Clustered tasks of non-negative vectors, as a ReLU gives them."""
    rng = np.random.default_rng(0)
    centres = rng.random((b, WAYS, d), np.float32)
    codes = np.arange(n) % WAYS
    points = centres[:, codes] + 0.6 * rng.random((b, n, d), np.float32)
    return a2lp.TaskBatch(points[:, :s], np.tile(codes[:s], (b, 1)), points[:, s:])
