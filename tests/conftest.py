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
