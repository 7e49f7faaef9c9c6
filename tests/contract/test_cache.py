"""The same task gives the same numbers, bit for bit: from compiled and from cached code, alone and among others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import a2lp

SCRIPT = """
import hashlib, numpy as np, a2lp
from a2lp.engines.fused_cpu import kernel as _cpu_kernel
rng = np.random.default_rng(0)
points = np.abs(rng.normal(size=(3, 40, 70))).astype(np.float32)
batch = a2lp.TaskBatch(points[:, :10], np.tile(np.arange(5), (3, 2)), points[:, 10:])
found = a2lp.create("a2lp", steps=30, n_neighbors=7, engine="fused_cpu").predict(batch)
stats = _cpu_kernel.solve_task.stats
print(hashlib.sha256(found.scores.tobytes()).hexdigest(), bool(stats.cache_hits), bool(stats.cache_misses))
"""


def test_the_process_that_compiles_rounds_like_those_that_load(tmp_path: Path) -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    (compiled, *how), (loaded, *how_later) = runs
    assert (how, how_later) == (["False", "True"], ["True", "False"])
    assert compiled == loaded


def test_a_task_is_the_same_in_any_batch() -> None:
    rng = np.random.default_rng(1)
    points = np.abs(rng.normal(size=(4, 30, 20))).astype(np.float32)
    codes = np.tile(np.arange(5), (4, 1))
    method = a2lp.create("a2lp", steps=30, n_neighbors=5, engine="fused_cpu")
    together = method.predict(a2lp.TaskBatch(points[:, :5], codes, points[:, 5:])).scores
    for i in reversed(range(4)):
        alone = method.predict(a2lp.TaskBatch(points[i : i + 1, :5], codes[:1], points[i : i + 1, 5:])).scores
        assert (alone[0] == together[i]).all()
