"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest

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
