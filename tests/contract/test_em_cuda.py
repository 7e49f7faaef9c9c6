"""The CUDA kernel of ``a2lp_em`` without a GPU: its source as C++, blocks one after the other, threads as threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from a2lp.engines import select
from a2lp.engines.contract import Points
from a2lp.loops import em
from a2lp.loops.em import fused_cuda

Array = np.ndarray[Any, Any]
Solve = Callable[..., Array]

# tasks, classes, points, shots: each class's
SHAPES = {
    "1-shot": (3, 5, 80, [1] * 5),
    "5-shot": (2, 5, 100, [5] * 5),
    "two classes": (3, 2, 20, [3, 3]),
    "twenty classes": (2, 20, 60, [1] * 20),
    "unequal shots": (3, 5, 40, [1, 4, 2, 1, 3]),
    "one query": (2, 5, 11, [2] * 5),
    "fewer queries than classes": (3, 5, 9, [1] * 5),
}
ESTIMATED = em.Settings(
    powered=False, centred=True, local_whitening=False, n_neighbors=20, gamma=12.0, alpha=0.6, temperature=14.0,
    rounds=10, prior=None, share_weight=1.0, mean_prior=2.0, pull=2.0, start_weight=0.3, support_weight=4.0,
    uniform=False,
)  # fmt: skip
VARIANTS = {
    "estimated": ESTIMATED,
    "uniform": ESTIMATED._replace(alpha=0.4, temperature=20.0, uniform=True),
    "one prior": ESTIMATED._replace(prior=0.3, share_weight=2.0, alpha=0.8),
    "nothing added": ESTIMATED._replace(pull=0.0, start_weight=0.0, support_weight=0.0, mean_prior=0.0, gamma=3.0),
    "no rounds": ESTIMATED._replace(rounds=0),
}


@pytest.fixture(scope="module")
def solve(kernel: Callable[[str, str], Any]) -> Solve:
    compiled = kernel("a2lp_em", fused_cuda.source())

    def run(
        x: Array, codes: Array, c: int, given: em.Settings, group: int, *, threads: int = 1, resident: bool = True
    ) -> Array:
        def rounds(spread: Array, start: em.Rounds, codes: Array, given: em.Settings) -> Array:
            _, c, n = start.start.shape
            arrays = [start.gram, spread, codes, start.bias, start.concentrations, start.weights, start.start]
            needs = fused_cuda._shared_bytes(n, c, x.itemsize, resident=resident)
            defines = {"DOUBLE": int(x.itemsize == 8), "GROUP": group, "RESIDENT": int(resident)}
            params = em.cuda_params(start, codes.shape[1], given)
            return compiled.launch(arrays, params, blocks=len(x), threads=threads, shared=needs, defines=defines)[-1]

        points = Points(x, codes, c, x.shape[1] - codes.shape[1])
        return np.asarray(em.solve(em.CUDA._replace(rounds=rounds), points, given).shares)

    return run


def random_tasks(b: int, c: int, n: int, shots: list[int], seed: int = 0) -> tuple[Array, Array]:
    """Unit vectors (b, n, 16) about class centres, and classes of the support."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.permutation(np.repeat(np.arange(c), shots)) for _ in range(b)])
    every = np.concatenate([codes, rng.integers(0, c, (b, n - codes.shape[1]))], axis=1)
    x = rng.normal(size=(b, c, 16))[np.arange(b)[:, None], every] + 0.9 * rng.normal(size=(b, n, 16)) + 1
    return x / np.linalg.norm(x, axis=-1, keepdims=True), codes


def array_form(x: Array, codes: Array, c: int, given: em.Settings) -> Array:
    return np.asarray(em.solve(em.BATCHED, Points(x, codes, c, x.shape[1] - codes.shape[1]), given).shares)


def test_other_arrays_are_batched_and_say_why() -> None:
    points = Points(torch.zeros(1, 8, 2), torch.zeros(1, 3, dtype=torch.int64), 3, 5)
    engine, reason = select.choose(em.LOOP, "auto", points, ESTIMATED)
    assert engine.name == "batched" and "CUDA" in reason


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape_and_variant_is_the_array_form(solve: Solve, shape: str, variant: str) -> None:
    b, c, n, shots = SHAPES[shape]
    x, codes = random_tasks(b, c, n, shots)
    found = solve(x, codes, c, VARIANTS[variant], {2: 2, 5: 5, 20: 7}[c])
    expected = array_form(x, codes, c, VARIANTS[variant])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("variant", ["estimated", "uniform"])
@pytest.mark.parametrize("resident", [False, True])
def test_threads_wait_for_each_other(solve: Solve, resident: bool, variant: str) -> None:
    """Equal to the bit for any number of threads, and wherever the matrices are."""
    x, codes = random_tasks(2, 5, 40, [1, 4, 2, 1, 3])
    alone = solve(x, codes, 5, VARIANTS[variant], 5)
    for threads in (3, 7):
        together = solve(x, codes, 5, VARIANTS[variant], 5, threads=threads, resident=resident)
        np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("variant", ["estimated", "uniform"])
def test_float32_is_close_to_float64(solve: Solve, variant: str) -> None:
    x, codes = random_tasks(5, 5, 80, [1] * 5, seed=2)
    expected = array_form(x, codes, 5, VARIANTS[variant])
    found = solve(x.astype(np.float32), codes, 5, VARIANTS[variant], 5)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3)


@given(
    c=st.sampled_from([2, 4, 5, 9, 10]),  # the last two in two groups, of which one has a place too many
    extra=st.lists(st.integers(0, 3), min_size=10, max_size=10),
    queries=st.integers(1, 40),
    variant=st.sampled_from(sorted(VARIANTS)),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_random_shapes(solve: Solve, c: int, extra: list[int], queries: int, variant: str, seed: int) -> None:
    shots = [1 + more for more in extra[:c]]
    n = sum(shots) + queries
    x, codes = random_tasks(2, c, n, shots, seed)
    expected = array_form(x, codes, c, VARIANTS[variant])
    np.testing.assert_allclose(solve(x, codes, c, VARIANTS[variant], 5), expected, rtol=0, atol=1e-8)
