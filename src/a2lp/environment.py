"""What a record says about where and when it was made: versions, hardware, commit, date."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from a2lp._version import __version__


def stamp(device: str = "cpu") -> dict[str, Any]:
    """All of it, of here and now."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"versions": versions(), "hardware": hardware(device), "commit": commit(), "date": now}


def versions() -> dict[str, str]:
    """Versions of what computed the numbers; numba and torch only where they were loaded."""
    found = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "a2lp": __version__,
    }
    for name in ("numba", "torch"):
        if name in sys.modules:
            found[name] = str(sys.modules[name].__version__)
    return found


def hardware(device: str) -> dict[str, Any]:
    """The processor, how many cores of it this process may use, and the device the arrays lived on."""
    return {"cpu": _cpu_model(), "cores": _cores(), "device": _device_name(device)}


@cache
def commit() -> str | None:
    """The commit of the checkout that a2lp was imported from, ``-dirty`` where it was edited; None if it is none."""
    package = Path(__file__).resolve().parent
    root = package.parents[1]
    if package.parent.name != "src" or not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _device_name(device: str) -> str:
    torch = sys.modules.get("torch")
    if device.startswith("cuda") and torch is not None:
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return device
