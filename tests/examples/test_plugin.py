"""The example package is installed as a third party's would be, and its own tests and the bench run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import a2lp

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"


def run(*args: str, folder: Path) -> str:
    """What a new interpreter prints that sees the installed package and this a2lp."""
    paths = [str(folder), str(Path(a2lp.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, *args], env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built from a copy without a network: what builds it must be there."""
    for package in ("pip", "setuptools"):
        if find_spec(package) is None:
            pytest.skip(f"needs {package} to build the example package")
    folder = tmp_path_factory.mktemp("site")
    source = shutil.copytree(PLUGIN, tmp_path_factory.mktemp("source") / "plugin")
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
    run("-m", "pip", "install", *quiet, "--target", str(folder), str(source), folder=folder)
    return folder


def test_its_own_tests_pass(installed: Path) -> None:
    tests = str(PLUGIN / "tests")
    out = run(
        "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir", tests, tests, folder=installed
    )
    assert " passed" in out


def test_the_bench_runs_it_beside_ours(installed: Path) -> None:
    args = ["bench", "--features", "digits", "--methods", "prototypical,nearest_shot", "--shots", "1", "--tasks", "10"]
    rows = json.loads(run("-m", "a2lp", *args, "--format", "json", folder=installed))
    means = {row["method"]: row["mean_accuracy"] for row in rows}
    assert means["nearest_shot"] == pytest.approx(means["prototypical"])  # with one shot they are the same
    assert "nearest_shot" in run("-m", "a2lp", "methods", folder=installed)
