"""Small real cells that several tests of the bench use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from a2lp.bench.protocol import Cell, draw_episodes, plan
from a2lp.features import FeatureSet, load


@pytest.fixture(scope="session")
def digits() -> FeatureSet:
    return load("digits")


@pytest.fixture(scope="session")
def make_cells(digits: FeatureSet) -> Callable[..., list[Cell]]:
    def make(
        methods: list[str],
        preprocess: tuple[str, ...] = ("l2",),
        shots: tuple[int, ...] = (1,),
        n_tasks: int = 12,
        **kw: Any,
    ) -> list[Cell]:
        features, params = kw.pop("features", digits), kw.pop("params", {})
        sizes = {"n_way": 3, "n_query": 10, "n_tasks": n_tasks, "seed": kw.pop("seed", 0)}
        episodes = draw_episodes(features, shots=shots, **sizes)
        return plan(episodes, [(name, params.get(name, {})) for name in methods], preprocess, **kw)

    return make
