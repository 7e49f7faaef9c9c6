"""The CUDA kernel of ``a2lp_em`` without a GPU: its source as C++, blocks one after the other, threads as threads."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
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

COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler (c++, g++ or clang++)")

SHIM = """
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>
#define __global__
#define __device__ static
#define __shared__
#define __launch_bounds__(threads)
#define __syncthreads() meet()
struct Place { int x; };
static thread_local Place threadIdx, blockIdx;
static Place blockDim;
static std::atomic<int> arrived, phase;
static void meet() {
    const int now = phase;
    if (++arrived == blockDim.x) arrived = 0, phase++;
    else while (phase == now) std::this_thread::yield();
}
double memory[1 << 17];
"""

# Shared memory is NaN before each task, so that nothing is read that was not written; behind its end it must stay so.
CALL = """
extern "C" int run(int blocks, int threads, int bytes, const real* gram, const real* smoothing, const long long* codes,
                   real* shares, const Params* p) {
    bool within = true;
    blockDim.x = threads;
    auto thread = [&](int place) {
        threadIdx.x = place;
        for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
            if (place == 0) memset(memory, 0xff, sizeof memory);
            meet();
            a2lp_em(gram, smoothing, codes, shares, *p);
            meet();
        }
    };
    std::vector<std::thread> team;
    for (int place = 0; place < threads; place++) team.emplace_back(thread, place);
    for (auto& member : team) member.join();
    for (size_t at = bytes; at < sizeof memory; at++) within &= ((unsigned char*)memory)[at] == 0xff;
    return within;
}
"""

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
ESTIMATED = em.Settings(False, False, 20, 3.0, 0.6, 50.0, 10, 2.0, (-4.0, 4.0), uniform=False)
VARIANTS = {
    "estimated": ESTIMATED,
    "uniform": ESTIMATED._replace(alpha=0.4, temperature=20.0, uniform=True),
    "weight of shares": ESTIMATED._replace(share_weights=(1.0, 1.0), alpha=0.8),
    "small prior": ESTIMATED._replace(prior=0.3, share_weights=(0.5, 2.0)),
    "no rounds": ESTIMATED._replace(rounds=0),
}


@pytest.fixture(scope="module")
def solve(tmp_path_factory: pytest.TempPathFactory) -> Solve:
    folder = tmp_path_factory.mktemp("em")

    @cache
    def library(double: bool, group: int, resident: bool) -> ctypes.CDLL:
        name = folder / f"em_{double:d}_{group}_{resident:d}"
        name.with_suffix(".cpp").write_text(SHIM + fused_cuda.source() + CALL)
        sizes = [f"-DDOUBLE={double:d}", f"-DGROUP={group}", f"-DRESIDENT={resident:d}"]
        options = ["-std=c++17", "-O1", "-pthread", "-shared", "-fPIC", *sizes]
        assert COMPILER is not None
        subprocess.run([COMPILER, *options, "-o", f"{name}.so", f"{name}.cpp"], check=True, capture_output=True)
        return ctypes.CDLL(f"{name}.so")

    def run(
        gram: Array, codes: Array, c: int, given: em.Settings, group: int, *, threads: int = 1, resident: bool = True
    ) -> Array:
        b, n, _ = gram.shape
        params = em.cuda_params(n, codes.shape[1], c, given)
        smoothing = np.ascontiguousarray(em.smoothing(gram, given))
        shares = np.full((b, c, n), np.nan, gram.dtype)
        pointers = (ctypes.c_void_p(x.ctypes.data) for x in (gram, smoothing, codes, shares))
        needs = fused_cuda._shared_bytes(n, c, gram.itemsize, resident=resident)
        within = library(gram.itemsize == 8, group, resident).run(b, threads, needs, *pointers, ctypes.byref(params))
        assert within, "the kernel writes behind its shared memory"
        return shares

    return run


def random_tasks(b: int, c: int, n: int, shots: list[int], seed: int = 0) -> tuple[Array, Array]:
    """Inner products of unit vectors (b, n, n) about class centres, and classes of the support."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.permutation(np.repeat(np.arange(c), shots)) for _ in range(b)])
    every = np.concatenate([codes, rng.integers(0, c, (b, n - codes.shape[1]))], axis=1)
    x = rng.normal(size=(b, c, 16))[np.arange(b)[:, None], every] + 0.9 * rng.normal(size=(b, n, 16))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    return x @ np.swapaxes(x, 1, 2), codes


def fitting(given: em.Settings, n: int) -> em.Settings:
    return given._replace(n_neighbors=min(given.n_neighbors, n - 1))


def test_other_arrays_are_batched_and_say_why() -> None:
    points = Points(torch.zeros(1, 8, 2), torch.zeros(1, 3, dtype=torch.int64), 3, 5)
    engine, reason = select.choose(em.LOOP, "auto", points, ESTIMATED)
    assert engine.name == "batched" and "CUDA" in reason


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape_and_variant_is_the_array_form(solve: Solve, shape: str, variant: str) -> None:
    b, c, n, shots = SHAPES[shape]
    gram, codes = random_tasks(b, c, n, shots)
    chosen = fitting(VARIANTS[variant], n)
    expected = em.batched_rounds(gram, codes, c, chosen)
    found = solve(gram, codes, c, chosen, {2: 2, 5: 5, 20: 7}[c])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("variant", ["estimated", "uniform"])
@pytest.mark.parametrize("resident", [False, True])
def test_threads_wait_for_each_other(solve: Solve, resident: bool, variant: str) -> None:
    """Equal to the bit for any number of threads, and wherever the matrices are."""
    gram, codes = random_tasks(2, 5, 40, [1, 4, 2, 1, 3])
    alone = solve(gram, codes, 5, VARIANTS[variant], 5)
    for threads in (3, 7):
        together = solve(gram, codes, 5, VARIANTS[variant], 5, threads=threads, resident=resident)
        np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("variant", ["estimated", "uniform"])
def test_float32(solve: Solve, variant: str) -> None:
    gram, codes = random_tasks(5, 5, 80, [1] * 5, seed=2)
    expected = em.batched_rounds(gram, codes, 5, VARIANTS[variant])
    found = solve(gram.astype(np.float32), codes, 5, VARIANTS[variant], 5)
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
    gram, codes = random_tasks(2, c, n, shots, seed)
    chosen = fitting(VARIANTS[variant], n)
    expected = em.batched_rounds(gram, codes, c, chosen)
    np.testing.assert_allclose(solve(gram, codes, c, chosen, 5), expected, rtol=0, atol=1e-9)
