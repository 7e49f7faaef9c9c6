"""Work on all cores of this process: threads, since the work releases the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def map_on_cores(function: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """``[function(item) for item in items]``, an item to a core.

    BLAS keeps to one thread meanwhile: at the size of a task its threads cost more than they bring. An exception,
    Ctrl-C too, drops what has not begun.
    """
    items = list(items)
    pool = ThreadPoolExecutor(max(1, min(len(items), os.cpu_count() or 1)))
    with threadpool_limits(1):
        try:
            futures = [pool.submit(function, item) for item in items]
            return [future.result() for future in futures]
        finally:
            pool.shutdown(cancel_futures=True)
