"""Small pools: real images on disk, and vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

COLOURS = {"auk": (40, 60, 200), "tern": (230, 230, 90), "wren": (150, 40, 30)}


def write_images(folder: Path, n: int, seed: int = 0) -> list[str]:
    """n images, of the three colours in turn with some noise: 000.png, 001.png, ...; what each shows."""
    image: Any = pytest.importorskip("PIL.Image")
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    names = [list(COLOURS)[i % 3] for i in range(n)]
    for i, name in enumerate(names):
        pixels = np.clip(np.array(COLOURS[name]) + rng.normal(0, 25, (40, 44, 3)), 0, 255)
        image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:03d}.png")
    return names


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the cache in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A2LP_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def photos(here: Path) -> list[str]:
    """Twelve images in ``photos``; what each shows."""
    return write_images(here / "photos", 12)
