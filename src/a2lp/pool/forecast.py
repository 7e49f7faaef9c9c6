"""About how much memory and time a pool will take, before anything is computed.

Memory is counted from the arrays that are held at the peak; time from the products of matrices and of the graph, at the
speed of a short product on this machine. docs/performance.md compares both with what was measured.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from a2lp import cores
from a2lp.arrays import chunks
from a2lp.cores import map_on_cores
from a2lp.errors import InputError
from a2lp.pool.cells import expected_products
from a2lp.pool.neighbours import SPARE, pick_method
from a2lp.pool.part import part_size
from a2lp.pool.whiten import LARGE, SAMPLE

_PROCESS = 400 << 20  # Python, the libraries, and tiles that are compared
_EDGES = 1.45  # entries of a row of the graph, for each neighbour that a point chooses
_COLUMNS = 32  # of a block of classes that is solved at a time


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
    points = n * d * (2 if mapped else itemsize)  # a map counts while it is read
    lists = n * (k + SPARE) * 8
    graph = n * k * _EDGES * 8
    search = float(points + lists)
    if pick_method("auto", n) == "cells":
        links = 2 * n * 48 * 5
        search += max(links, 40 * 4 * math.sqrt(n) * d * 4)  # neighbours of neighbours; the sample of k-means
    classes = 4 * n * c
    block = 4 * n * min(_COLUMNS, c)
    sample = part_size(n) * (4 * d + 8 * (k + SPARE)) if n > part_size(n) else 0
    # propagated, em, distributions and what is solved; starts of the next answer in half precision
    answer = (0 if mapped else points) + lists + 2 * graph + sample + 5 * classes + 4 * classes // 2 + 5 * block
    # three sets of probabilities, one of them in float64
    judged = (0 if mapped else points) + lists + 2 * graph + sample + 4 * classes + 4 * classes // 2 + 2 * classes
    return int(_PROCESS + max(search, answer, judged))


def _seconds(n: int, d: int, c: int) -> float:
    speed = _speed()

    def search(m: int) -> float:
        exact = 2.0 * m * m * d / 2
        return exact if pick_method("auto", m) == "exact" else expected_products(m, d)

    products = search(n) + search(min(n, SAMPLE)) + (search(part_size(n)) if n > part_size(n) else 0)
    # an answer passes over the points nine times and makes a dozen products with the graph; folds are eight answers
    folds = 3 * min(n, 100_000) + 5 * min(n, part_size(n))
    answers = (n + folds) * c * (9 * 2 * d + 12 * 20 * _EDGES * 2 * 6)
    return 2.0 + (products + answers) / speed


def _speed() -> float:
    """Operations a second of products of matrices, on all cores together."""
    rng = np.random.default_rng(0)
    a = rng.random((512, 512), dtype=np.float32)
    map_on_cores(lambda _: a @ a, range(cores.count()))
    start, rounds = time.perf_counter(), 16 * cores.count()
    map_on_cores(lambda part: [a @ a for _ in range(part.start, part.stop)], chunks(rounds, 8))
    return rounds * 2 * 512**3 / (time.perf_counter() - start)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
