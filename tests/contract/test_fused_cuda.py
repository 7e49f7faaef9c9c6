"""The CUDA kernel of A2LP without a GPU: its source as C++, threads of a block in turns, blocks one after the other."""

from __future__ import annotations

import ctypes
import dataclasses
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from a2lp.engines import fused_cuda, reference
from a2lp.engines.contract import Points, Result, Settings
from a2lp.engines.fused_cuda import Sizes
from a2lp.losses import Terms
from a2lp.methods.propagation import PLUS

COMPILER = next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler (g++, clang++ or c++)")

# Shared memory is NaN at first, so that nothing is read that was not written; behind its end it must stay so.
CALL = """
static const void* const* arrays;
static Params params;
static void thread() {
    void* const* at = (void* const*)arrays;
    a2lp((float*)at[0], (float*)at[1], (int*)at[2], (float2*)at[3], (float*)at[4], (float*)at[5], (float*)at[6],
         (float*)at[7], (float*)at[8], (int*)at[9], (int*)at[10], (int*)at[11], (int*)at[12], params);
    threads[threadIdx.x].done = true;
    for (int next = 0; next < THREADS; next++)
        if (!threads[next].done) go_to(next);
    setcontext(&outside);
}
extern "C" int run(int bytes, const void* const* given, const Params* p) {
    static char stacks[THREADS][1 << 16];
    arrays = given, params = *p;
    memset(shared4, 0xff, sizeof shared4);
    for (int i = 0; i < THREADS; i++) {
        Thread& t = threads[i];
        getcontext(&t.start);
        t.start.uc_stack.ss_sp = stacks[i], t.start.uc_stack.ss_size = sizeof stacks[i];
        t.begun = t.done = false, t.rounds = 0;
        makecontext(&t.start, thread, 0);
    }
    volatile bool back = false;
    getcontext(&outside);
    if (!back) {
        back = true, threadIdx.x = 0, threads[0].begun = true;
        setcontext(&threads[0].start);
    }
    bool within = under_way.empty();
    for (size_t at = bytes; at < sizeof shared4; at++) within &= ((unsigned char*)shared4)[at] == 0xff;
    return within;
}
"""

Solve = Callable[[Points, Settings, bool], Result]
LIMIT = 232448  # bytes of shared memory that an H200's block may have


@pytest.fixture(scope="module")
def solve(tmp_path_factory: pytest.TempPathFactory) -> Solve:
    folder = tmp_path_factory.mktemp("kernel")
    shim = Path(__file__).with_name("cuda_on_cpu.h").read_text(encoding="utf-8")
    kernel = fused_cuda.source(shim).replace("extern __shared__", "extern")

    class Emulated:
        def __init__(self, sizes: Sizes) -> None:
            name = folder / "_".join(map(str, map(int, sizes)))
            name.with_suffix(".cpp").write_text(kernel + CALL)
            defines = [f"-D{key}={value}" for key, value in sizes.defines(1).items()]
            options = [
                "-std=c++17",
                "-O1",
                "-w",
                "-U_FORTIFY_SOURCE",
                "-ffp-contract=off",
                "-shared",
                "-fPIC",
                *defines,
            ]
            assert COMPILER is not None
            subprocess.run([COMPILER, *options, "-o", f"{name}.so", f"{name}.cpp"], check=True)
            self._run, self._bytes = ctypes.CDLL(f"{name}.so").run, sizes.shared_bytes

        def launch(self, blocks: int, arrays: Sequence[Any], parameters: Any) -> None:
            pointers = (ctypes.c_void_p * len(arrays))(*(array.data_ptr() for array in arrays))
            assert self._run(self._bytes, pointers, ctypes.byref(parameters)), "written behind shared memory"

    @cache
    def emulated(device: Any, sizes: Sizes) -> tuple[Emulated, int]:
        return Emulated(sizes), 2

    def run(points: Points, settings: Settings, corrected: bool) -> Result:
        sizes = Sizes.of(points, settings, LIMIT)._replace(corrected=corrected)
        assert sizes.correctable or not corrected
        return fused_cuda.solve(points, settings, sizes, emulated)

    return run


SHAPES = {
    # ways, support, rest, dimensions, neighbours
    "small": (3, 3, 12, 20, 5),
    "unequal shots": (3, 7, 28, 12, 8),
    "more neighbours than rest": (6, 30, 10, 17, 35),
    "one query": (5, 10, 1, 20, 4),
    "two ways": (2, 2, 33, 70, 3),
    "twenty ways": (20, 20, 60, 12, 12),
    "paper, 1-shot": (5, 5, 75, 640, 17),
    "paper, 5-shot": (5, 25, 75, 640, 20),
}
PLAIN = Settings(steps=3, lr=1e-2, tau=5.0, final_forward=True)
VARIANTS = {
    "paper": PLAIN,
    "plus": dataclasses.replace(PLAIN, loss=PLUS, gamma=1.5, reduction="sum"),
    "softmax of queries": dataclasses.replace(PLAIN, loss=Terms(queries="soft", entropy=0.3, marginal=0.2)),
    "anchors without their labels": dataclasses.replace(PLAIN, loss=Terms(anchors="others", weight=3.0)),
    "official": dataclasses.replace(PLAIN, loss=Terms(entropy=1.0, marginal=0.5), numerics="official"),
    "far": dataclasses.replace(PLAIN, alpha=0.95),
    "far moves": dataclasses.replace(PLAIN, optimizer="gd", lr=30.0),
    "descent": dataclasses.replace(PLAIN, loss=PLUS, optimizer="gd", lr=0.1, gamma=2.5),
}


def random_points(shape: str, seed: int = 0, b: int = 2) -> Points:
    c, s, m, d, _ = SHAPES[shape]
    rng = np.random.default_rng(seed)
    codes = np.stack([np.r_[rng.permutation(c), rng.integers(0, c, s - c)] for _ in range(b)])
    every = np.concatenate([codes, rng.integers(0, c, (b, m))], axis=1)
    x = rng.normal(size=(b, c, d))[np.arange(b)[:, None], every] + 0.8 * rng.normal(size=(b, s + m, d))
    return Points(x / np.linalg.norm(x, axis=-1, keepdims=True), codes, c, m)


def compare(solve: Solve, points: Points, settings: Settings, corrected: bool) -> None:
    given = Points(torch.tensor(points.vectors, dtype=torch.float32), torch.tensor(points.codes), *points[2:4])
    found, expected = solve(given, settings, corrected), reference.run(points, settings)
    np.testing.assert_allclose(found.z, expected.z, rtol=0, atol=2e-5)
    np.testing.assert_allclose(found.anchors, expected.anchors, rtol=0, atol=2e-4)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(found.steps, expected.steps)


@pytest.mark.parametrize("variant", ["paper", "plus"])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "paper, 5-shot"])
def test_any_shape_is_the_reference(solve: Solve, shape: str, variant: str) -> None:
    settings = dataclasses.replace(VARIANTS[variant], n_neighbors=SHAPES[shape][-1])
    compare(solve, random_points(shape), settings, corrected=False)


@pytest.mark.parametrize("shape", ["unequal shots", "two ways", "twenty ways", "paper, 1-shot", "paper, 5-shot"])
def test_corrected_solutions_of_any_shape_are_the_reference(solve: Solve, shape: str) -> None:
    settings = dataclasses.replace(PLAIN, n_neighbors=SHAPES[shape][-1])
    compare(solve, random_points(shape), settings, corrected=True)


def test_corrections_go_on_where_they_begin_anew(solve: Solve) -> None:
    settings = dataclasses.replace(PLAIN, steps=fused_cuda.PART + 5, lr=1e-3, n_neighbors=8)
    compare(solve, random_points("unequal shots", seed=1), settings, corrected=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_any_variant_is_the_reference(solve: Solve, variant: str) -> None:
    points, settings = random_points("unequal shots", seed=3), dataclasses.replace(VARIANTS[variant], n_neighbors=8)
    for corrected in (False, True)[: 1 if settings.loss.on_queries else 2]:
        compare(solve, points, settings, corrected)


def test_solutions_are_corrected_where_a_block_is_alone() -> None:
    def corrected(s: int, m: int = 75, **changed: Any) -> bool:
        points = Points(np.zeros((1, s + m, 640)), np.zeros((1, s), int), 5, m)
        return Sizes.of(points, Settings(**changed), LIMIT).corrected

    assert (corrected(5), corrected(25)) == (False, True)
    assert not corrected(25, loss=PLUS)
    assert not corrected(25, alpha=0.99)
    assert not corrected(25, m=110)  # a warp would have more than 16 rows
