"""Checks that something fits into memory, before it is tried."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from a2lp.errors import InputError


def check_memory(what: str, needed: int) -> None:
    """Refuse what needs more bytes than are free, with both numbers in the message."""
    free = available_memory()
    if free is not None and needed > free:
        raise InputError(
            f"{what} need {needed / 2**30:.1f} GiB of memory and {free / 2**30:.1f} GiB are free. "
            "Use a smaller view or fewer images, or a machine with more memory."
        )


def available_memory() -> int | None:
    """Bytes that this process may still allocate, as far as the system reports them."""
    limits = []
    with contextlib.suppress(OSError):
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        limits += [int(found[1]) * 1024] if found else []
    with contextlib.suppress(OSError, ValueError):  # a container's limit; "max" where there is none
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    if not limits:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)
