"""What the engines are timed against computes the same thing."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import a2lp
from a2lp import features
from a2lp.preprocess import l2
from a2lp.tasks.samplers import draw

torch = pytest.importorskip("torch")

NAIVE = Path(__file__).parents[2] / "benchmarks" / "naive.py"


@pytest.mark.parametrize("n_shot", [1, 5])
def test_naive_is_what_the_engines_compute(n_shot: int) -> None:
    cub = features.load("cub")
    batch = draw("balanced", cub.labels, seed=0, n_way=5, n_shot=n_shot, n_query=15, n_tasks=6).batch(cub.features)
    naive = runpy.run_path(str(NAIVE))
    run = naive["Naive"](torch.asarray(l2(batch.points)), torch.asarray(batch.codes), 5)
    for _ in range(5):
        z = run.step()
    found = a2lp.create("a2lp", steps=5, numerics="official_cpu").predict(batch)
    assert found.scores.dtype == np.float32
    np.testing.assert_allclose(z[:, batch.n_support :] / naive["TAU"], found.scores, rtol=0, atol=1e-4)
    start = a2lp.create("lp").predict(batch)
    assert abs(found.scores - start.scores).max() > 2e-3  # far more than the tolerance
