"""Long runs in one process: memory, threads and descriptors do not grow, and answers are those from scratch."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

import a2lp

RELABELS, BENCHES = 2000, 200
POINTS = 500
MEGABYTES = (
    40  # by which memory may differ between the first fifth and the end: caches of compiled code and of the C library
)


class Use(NamedTuple):
    """What this process uses."""

    megabytes: float
    threads: int
    descriptors: int

    @classmethod
    def now(cls) -> Use:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        megabytes, descriptors = pages * os.sysconf("SC_PAGE_SIZE") / 1e6, len([*Path("/proc/self/fd").iterdir()])
        return cls(megabytes, threading.active_count(), descriptors)

    def check(self, before: Use, what: str) -> None:
        """Refuse growth."""
        words = f"{what}: {before} at first, {self} at the end"
        assert self.megabytes - before.megabytes < MEGABYTES, words
        assert self.threads <= before.threads and self.descriptors <= before.descriptors, words


def run(case: int, folder: Path, relabels: int = RELABELS, benches: int = BENCHES) -> str:
    """Label, relabel and undo at random, then compare methods over and over."""
    rng = np.random.default_rng(case)
    x, y = load_digits(return_X_y=True)
    rows = rng.permutation(len(x))[:POINTS]
    x, y = x[rows].astype(np.float32), y[rows]
    relabel(rng, x, y, relabels)
    compare(case, benches)
    return f"{relabels} relabels, {benches} benches"


def relabel(rng: np.random.Generator, x: np.ndarray, y: np.ndarray, steps: int) -> None:
    pool = a2lp.Pool(x)
    pool.label(range(20), y[:20])
    before = None
    for step in range(steps):
        row = int(rng.integers(20, len(x)))
        if rng.random() < 0.2 and step:
            pool.undo()
        else:
            pool.label([row], [y[row] if rng.random() < 0.95 else (y[row] + 1) % 10])
        assert np.isfinite(pool.answer.probabilities).all()
        if step == steps // 5:
            before = Use.now()
        if step % max(1, steps // 5) == 0:
            check_from_scratch(pool, x)
    check_from_scratch(pool, x)
    if before is not None:
        Use.now().check(before, f"{steps} relabels")


def check_from_scratch(pool: a2lp.Pool, x: np.ndarray) -> None:
    """The labels of a new pool with the same labels given; close calls may differ."""
    fresh = a2lp.Pool(x)
    given = np.flatnonzero(pool.given)
    fresh.label(given, np.asarray(pool.labels)[given])
    pool.refit()
    same = (fresh.answer.labels == pool.answer.labels).mean()
    assert same > 0.995, f"{same:.2%} of the labels are those from scratch"


def compare(case: int, times: int) -> None:
    before, first = None, None
    for i in range(times):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = a2lp.bench.compare(
                "digits", ["prototypical", "lp", "a2lp_em"], n_shot=1, n_tasks=8, seed=case % 1000
            )
        accuracies = [record.accuracies for record in found.records]
        first = first or accuracies
        assert accuracies == first, "the same comparison gave another result"
        if i == times // 5:
            before = Use.now()
    if before is not None:
        Use.now().check(before, f"{times} benches")
