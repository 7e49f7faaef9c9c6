"""The example scripts run, and their answers are worth something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import a2lp

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("script", "least"),
    [("label_text.py", 80), ("label_images.py", 70), ("scikit_learn.py", 55), ("compare_methods.py", 75)],
)
def test_examples(tmp_path: Path, script: str, least: int) -> None:
    if script == "label_images.py":
        pytest.importorskip("onnxruntime")
    environment = os.environ | {"PYTHONPATH": str(Path(a2lp.__file__).parents[1]), "A2LP_CACHE": str(tmp_path)}
    command = [sys.executable, "-W", "error::DeprecationWarning:a2lp", str(EXAMPLES / script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    found = re.search(r"in truth: (\d+)%", done.stdout)
    assert found, done.stdout
    assert int(found[1]) >= least
