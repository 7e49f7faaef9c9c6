"""The provenance of a record: software, machine, commit and date."""

from __future__ import annotations

import platform
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from a2lp import cores
from a2lp._version import __version__


def stamp(device: str = "cpu") -> dict[str, Any]:
    """Versions, hardware, commit, and the current date."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"versions": versions(), "hardware": hardware(device), "commit": commit(), "date": now}


def versions() -> dict[str, str]:
    """Versions of the packages that compute; numba and torch only if they are loaded."""
    found = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    loaded = [name for name in ("numba", "torch") if name in sys.modules]
    return found | {"a2lp": __version__} | {name: str(sys.modules[name].__version__) for name in loaded}


def hardware(device: str) -> dict[str, Any]:
    """The processor, the number of its cores that this process may use, and the device of the arrays."""
    torch = sys.modules.get("torch")
    if device.startswith("cuda") and torch is not None:
        device = f"{device} ({torch.cuda.get_device_name(device)})"
    return {"cpu": _cpu_model(), "cores": cores.count(), "device": device}


@cache
def commit() -> str | None:
    """The commit of the checkout that a2lp was imported from; None for an installed package.

    It ends in ``-dirty`` if files that decide results were edited or are new: the package, the scripts of the
    benchmarks, trained networks. Records and pages that a run writes do not count.
    """
    package = Path(__file__).resolve().parent
    return checkout(package.parents[1]) if package.parent.name == "src" else None


def checkout(root: Path) -> str | None:
    """As ``commit``, for a folder that may be the root of a checkout."""
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        edited = git("status", "--porcelain", "--", "src", "benchmarks/*.py", "trained")
        return git("rev-parse", "HEAD") + ("-dirty" if edited else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
