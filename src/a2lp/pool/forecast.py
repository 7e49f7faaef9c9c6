"""About how much memory and time a pool will take, before anything is computed.

Memory is counted from the arrays that are held at the peak. Time is that of products of matrices, at the speed of a
short one on this machine, and of work that was timed for a point. docs/performance.md compares both with what was
measured.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from a2lp import cores
from a2lp.cores import map_on_cores
from a2lp.errors import InputError
from a2lp.pool.cells import LINKS, expected_products
from a2lp.pool.methods import FIT_WHOLE
from a2lp.pool.neighbours import SPARE, pick_method
from a2lp.pool.part import part_size
from a2lp.pool.stages import LARGE
from a2lp.pool.whiten import SAMPLE

_PROCESS = 420 << 20  # Python, the libraries, and tiles that are compared
_WHITENING = 11  # bytes for each number of the sample
_VECTORS = 150  # bytes of a point in vectors and tables
_EDGES = 1.45  # entries of a row of the graph, for each neighbour that a point chooses
_EXACT_SHARE, _CELLS_SHARE = 0.7, 0.35  # of the speed of products, with the lists that are kept up
_POINT = 4e-5  # seconds for the cells and the neighbours of neighbours of a point, on two cores
_ANSWER = 2.5e-7  # seconds for a point and a class in an answer, on two cores
_COLUMNS = 24  # of a block of classes that is solved at a time


class Forecast(NamedTuple):
    """What a first answer with its estimate will take."""

    n_bytes: int
    seconds: float

    def __str__(self) -> str:
        return f"about {self.n_bytes / 2**30:.2g} GiB of memory and {_duration(self.seconds)}"


def forecast(n: int, d: int, n_classes: int = 50, k: int = 20, itemsize: int = 4) -> Forecast:
    """What the method ``auto`` will take for n points of d dimensions.

    Parameters
    ----------
    itemsize : int
        Bytes of a number of the whitened points in memory: 8 for points in float64.
    """
    return Forecast(_bytes(n, min(n, d), n_classes, k, itemsize), _seconds(n, d, n_classes))


def check_memory(n: int, d: int, limit: int | None, itemsize: int = 4) -> None:
    """Refuse a pool that needs more bytes than the limit."""
    if limit is not None and (needed := _bytes(n, min(n, d), 50, 20, itemsize)) > limit:
        raise InputError(
            f"a pool of {n:,} points of {d} dimensions takes about {needed / 2**30:.2g} GiB, and memory_limit allows "
            f"{limit / 2**30:.2g} GiB. Use fewer points or dimensions, or a higher limit."
        )


def _bytes(n: int, d: int, c: int, k: int, itemsize: int) -> int:
    mapped = n * d * itemsize > LARGE
    points = 0 if mapped else n * d * itemsize
    lists = n * (k + SPARE) * 8
    edges = n * k * _EDGES * 8
    whitening = _WHITENING * d * min(n, SAMPLE)
    search = float(points + lists)
    if mapped:
        search += 2 * n * d  # a map counts while it is read in any order
    if pick_method("auto", n) == "cells":
        links = n * LINKS * (2 * 4 + 1)
        search += max(links, 40 * 4 * math.sqrt(n) * d * 4) + 44 * n  # the sample of k-means; cells
    graph = edges + 12 * n + (0 if mapped else edges + lists)  # in the order of cells, and in that of the points
    sample = part_size(n) * (4 * d + 8 * (k + SPARE)) if n > part_size(n) else 0
    classes = 4 * n * c
    starts = 0 if classes > LARGE else classes // 2  # in half precision, or in files
    block = 4 * n * min(_COLUMNS, c)
    held = points + graph + sample + _VECTORS * n
    # propagated, em, and what is solved; then the answer and calibrated probabilities in float64
    answer = held + 3 * classes + 3 * starts + 4 * block
    judged = held + 2 * classes + 4 * starts + 2 * classes
    return int(_PROCESS + max(whitening, search, answer, judged))


def _seconds(n: int, d: int, c: int) -> float:
    speed, two_cores = _speed(), 2 / cores.count()

    def search(m: int) -> float:
        if pick_method("auto", m) == "exact":
            return m * m * d / (_EXACT_SHARE * speed)
        return expected_products(m, d) / (_CELLS_SHARE * speed) + two_cores * _POINT * m

    total = 1 + search(n) + search(min(n, SAMPLE))
    part = part_size(n)
    if part < n:
        total += search(part)
    answers = n + 3 * (n if n <= FIT_WHOLE else part) + 5 * part  # the weights and the estimate take eight folds
    return total + two_cores * _ANSWER * answers * c


def _speed() -> float:
    """Operations a second of products of matrices, on all cores together: the best of a few, whatever else runs."""
    a = np.random.default_rng(0).random((512, 512), dtype=np.float32)

    def once() -> float:
        start = time.perf_counter()
        map_on_cores(lambda _: [a @ a for _ in range(4)], range(cores.count()))
        return 4 * cores.count() * 2 * 512**3 / (time.perf_counter() - start)

    return max(once() for _ in range(8))


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
