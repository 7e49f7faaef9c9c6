"""Damaged files of every kind that a2lp reads: tests/test_fuzz_readers.py, with other seeds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "tests" / "test_fuzz_readers.py"
AT_ONCE = 300


def run(case: int, folder: Path) -> str:
    """Some hundred damaged files; a number of cases stands for each of them."""
    command = [sys.executable, str(PROGRAM), str(folder), str(AT_ONCE), str(case)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = folder / "case.txt"
    what = last.read_text(encoding="utf-8") if last.exists() else "?"
    assert done.returncode == 0, f"{what}: exit code {done.returncode}: {done.stderr[-3000:]}"
    return f"{AT_ONCE} damaged files"
