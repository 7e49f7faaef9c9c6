"""Small sets to train on, and heads whose every number has moved from where it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from a2lp.features import FeatureSet, load
from a2lp.meta.checkpoint import write_weights
from a2lp.meta.training import trainable


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def some_classes(keep: range, name: str) -> FeatureSet:
    digits = load("digits")
    rows = np.isin(digits.labels, keep)
    return FeatureSet(digits.features[rows], digits.labels[rows], name=name)


@pytest.fixture(scope="session")
def base() -> FeatureSet:
    return some_classes(range(6), "base digits")


@pytest.fixture(scope="session")
def novel() -> FeatureSet:
    return some_classes(range(6, 10), "novel digits")


@pytest.fixture
def moved_weights(tmp_path: Path) -> Callable[[str, int, int], Path]:
    """A file of weights of a method, all of them away from their start."""

    def make(name: str, n_dims: int, n_way: int) -> Path:
        head = trainable(name)().new_head(n_dims, n_way)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in head.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
        path = tmp_path / f"{name}_{n_dims}_{n_way}.safetensors"
        write_weights(path, head, n_dims, n_way, {"method": name})
        return path

    return make
