"""Fixtures that every test may use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# New random examples in every run; a failure prints the example, and a line that runs it again.
slow = [HealthCheck.too_slow]
settings.register_profile("suite", max_examples=20, deadline=None, print_blob=True, suppress_health_check=slow)
settings.register_profile("long", max_examples=200, deadline=None, print_blob=True, suppress_health_check=slow)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of large reference files beside the repository; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("needs the reference files in ../shared/data, which are not part of the repository")
    return SHARED


@pytest.fixture(scope="session")
def _resnet12(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    from a2lp.images.backbones import network, save_weights

    path = tmp_path_factory.mktemp("resnet12") / "weights.safetensors"
    save_weights(network("resnet12"), path, about={}, max_bytes=1 << 30)
    return path


@pytest.fixture
def weights(tmp_path: Path, _resnet12: Path) -> Path:
    """``weights.safetensors`` in the test's folder: of a ResNet-12, random."""
    link = tmp_path / "weights.safetensors"
    link.symlink_to(_resnet12)
    return link


@pytest.fixture
def as_nobody(tmp_path: Path) -> Callable[..., str]:
    """Run a program with less than root's permissions; what it prints.

    Its arguments are the imports, which may need permissions, the rest of the program, and what this gets.
    """
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o005)

    def run(imports: str, code: str, *arguments: Path) -> str:
        program = f"import os, sys\n{imports}\nif os.geteuid() == 0: os.setgid(65534), os.setuid(65534)\n{code}"
        command = [sys.executable, "-c", program, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    return run
