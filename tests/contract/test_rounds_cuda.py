"""The CUDA kernels with a thread block to a task; without a GPU, their sources as C++, threads as threads.

On a GPU, methods that work in rounds give the labels of the processor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import a2lp
from a2lp.features import load_base
from a2lp.kernels import per_task
from a2lp.methods import _maths, ilpc

Array = np.ndarray[Any, Any]

Run = Callable[..., list[Array]]  # (name, given, found, parameters, bytes of shared memory, threads, macros)


@pytest.fixture(scope="module")
def run(kernel: Callable[[str, str], Any]) -> Run:
    def launch(
        name: str, given: list[Array], found: list[Array], params: Any, shared: int, threads: int = 1, **defines: int
    ) -> list[Array]:
        compiled = kernel(f"a2lp_{name}", per_task.source(name))
        arrays, blocks = [*given, *found], len(found[0])
        after = compiled.launch(arrays, params, blocks=blocks, threads=threads, shared=shared, defines=defines)
        return list(after[len(given) :])

    return launch


def sinkhorn(run: Run, arrays: dict[str, Array | None], tolerance: float, **how: int) -> Array:
    kernel, columns, rows, fixed = (arrays[name] for name in ("kernel", "columns", "rows", "fixed"))
    assert kernel is not None and columns is not None
    b, c, n = kernel.shape
    resident = how.get("resident", 1)
    given = [kernel, columns, np.ones((b, n), kernel.dtype) if rows is None else rows]
    given.append(columns if fixed is None else fixed)
    params = per_task.SinkhornParams(tolerance, n, c, fixed is not None, 1000)
    shared = per_task.sinkhorn_bytes(n, c, kernel.itemsize, resident=bool(resident))
    defines = {"DOUBLE": int(kernel.itemsize == 8), "RESIDENT": resident}
    (plan,) = run("sinkhorn", given, [np.full_like(kernel, np.nan)], params, shared, how.get("threads", 1), **defines)
    return plan


def plan_arrays(c: int, n: int, *, with_fixed: bool, with_rows: bool, seed: int = 0) -> dict[str, Array | None]:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 2, (3, n)).astype(float) if with_rows else None
    fixed = 1.0 + rng.integers(0, 3, (3, c)) if with_fixed else None
    total = np.full((3, 1), n, float) if rows is None else rows.sum(axis=1, keepdims=True)
    columns = np.repeat(total / c, c, axis=1) + (0.0 if fixed is None else fixed)
    return {"kernel": np.exp(3 * rng.normal(size=(3, c, n))), "columns": columns, "rows": rows, "fixed": fixed}


@pytest.mark.parametrize(("with_fixed", "with_rows"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(("c", "n"), [(5, 75), (2, 3), (20, 31), (5, 1)])
def test_sinkhorn_is_that_of_the_processor(run: Run, c: int, n: int, with_fixed: bool, with_rows: bool) -> None:
    arrays = plan_arrays(c, n, with_fixed=with_fixed, with_rows=with_rows)
    found = sinkhorn(run, arrays, 1e-6)
    expected = _maths.sinkhorn(arrays["kernel"], arrays["columns"], 1e-6, rows=arrays["rows"], fixed=arrays["fixed"])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_threads_of_sinkhorn_wait_for_each_other(run: Run) -> None:
    arrays = plan_arrays(5, 40, with_fixed=True, with_rows=False)
    alone = sinkhorn(run, arrays, 1e-3)
    for threads, resident in ((3, 1), (7, 0)):
        np.testing.assert_array_equal(sinkhorn(run, arrays, 1e-3, threads=threads, resident=resident), alone)


@pytest.mark.parametrize(("c", "n"), [(5, 75), (20, 31), (2, 1)])
def test_filling_is_that_of_the_processor(run: Run, c: int, n: int) -> None:
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.linspace(0.1, 2, c), (3, n)).transpose(0, 2, 1)
    least = rng.uniform(0.3, 1, (3, 1, 1)) * n / c
    expected = _maths.filled(shares, least)
    assert np.abs(expected - shares).max() > 0.1
    for threads in (1, 5):
        shared = per_task.fill_bytes(n, c, 8)
        params = per_task.FillParams(_maths._LEAST_MASS, n, c, _maths._FILLING_ROUNDS)
        (found,) = run("fill", [shares, least], [np.full((3, c, n), np.nan)], params, shared, threads, DOUBLE=1)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def eigh(run: Run, matrices: Array, threads: int = 1) -> tuple[Array, Array]:
    b, n, _ = matrices.shape
    unknown = [np.full((b, n), np.nan, matrices.dtype), np.full_like(matrices, np.nan)]
    params = per_task.JacobiParams(per_task._TOLERANCE * np.finfo(matrices.dtype).eps, n, per_task._SWEEPS)
    shared, double = per_task.jacobi_bytes(n, matrices.itemsize), int(matrices.itemsize == 8)
    values, vectors = run("jacobi", [matrices], unknown, params, shared, threads, DOUBLE=double)
    return values, np.swapaxes(vectors, 1, 2)


def grams(n: int, d: int) -> Array:
    """Inner products of unit points (3, n, n) with non-negative entries."""
    x = np.random.default_rng(n).random((3, n, d)) ** 4
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    return x @ np.swapaxes(x, 1, 2)


@pytest.mark.parametrize(("n", "d"), [(80, 640), (33, 8), (1, 3), (2, 3), (17, 64)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_eigenvectors_diagonalise(run: Run, n: int, d: int, dtype: Any) -> None:
    matrices = grams(n, d).astype(dtype)
    values, vectors = eigh(run, matrices)
    eps = np.finfo(dtype).eps * values.max()
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrices), rtol=0, atol=8 * eps)
    exact = vectors.astype(np.float64)
    np.testing.assert_allclose(np.swapaxes(exact, 1, 2) @ exact, np.tile(np.eye(n), (3, 1, 1)), rtol=0, atol=64 * eps)
    np.testing.assert_allclose((exact * values[:, None]) @ np.swapaxes(exact, 1, 2), matrices, rtol=0, atol=32 * eps)


def test_threads_of_jacobi_wait_for_each_other(run: Run) -> None:
    matrices = grams(21, 30)
    values, vectors = eigh(run, matrices)
    for threads in (3, 16):
        for found, alone in zip(eigh(run, matrices, threads), (values, vectors), strict=True):
            np.testing.assert_array_equal(found, alone)


def test_a_matrix_that_is_not_finite_has_no_eigenvalues(run: Run) -> None:
    matrices = grams(6, 3)
    matrices[1, 2, 3] = np.nan
    values, _ = eigh(run, matrices)
    assert np.isnan(values[1]).all() and np.isfinite(values[[0, 2]]).all()


@pytest.mark.parametrize(("n", "k"), [(5, 5), (1, 1), (30, 6), (7, 2)])
def test_systems_are_solved(run: Run, n: int, k: int) -> None:
    rng = np.random.default_rng(n)
    matrix, right = rng.normal(size=(3, n, n)), rng.normal(size=(3, n, k))
    matrix[0] -= np.diag(np.diag(matrix[0])) if n > 1 else 0.0  # pivots of zero, unless rows are exchanged
    for threads in (1, 5):
        params, shared = per_task.SolveParams(n, k), per_task.solve_bytes(n, k, 8)
        (found,) = run("solve", [matrix, right], [np.full((3, n, k), np.nan)], params, shared, threads, DOUBLE=1)
        np.testing.assert_allclose(found, np.linalg.solve(matrix, right), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("c", "n", "group"), [(5, 40, 5), (9, 30, 5), (2, 7, 2)])
def test_descent_is_that_of_the_processor(run: Run, c: int, n: int, group: int) -> None:
    rng, gram = np.random.default_rng(0), grams(n, 16)
    codes = np.concatenate([np.tile(np.arange(c), (3, 1)), rng.integers(0, c, (3, n - c))], axis=1)
    target = (codes[:, None, :] == np.arange(c)[:, None]).astype(float)
    labels = target * (np.arange(n) < c)
    products, logits = ilpc._first_logits(gram, labels)
    expected = _maths.descent_losses(products, target, logits, ilpc._RATES, 50)
    for threads, resident in ((1, 1), (5, 0)):
        defines = {"DOUBLE": 1, "GROUP": group, "RESIDENT": resident}
        params = per_task.DescentParams(*ilpc._RATES, n, c, 50)
        shared = per_task.descent_bytes(n, c, 8, resident=bool(resident))
        given, unknown = [products, target, logits], [np.full((3, n), np.nan)]
        (found,) = run("classifier", given, unknown, params, shared, threads, **defines)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


METHODS = ["pt_map", "ease", "proto_lp", "bavardage", "paddle", "bd_cspn", "laplacian_shot", "soft_kmeans", "ilpc",
           "bms", "oslo", "ep", "tpn", "top_k"]  # fmt: skip
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def unequal(name: str, dtype: Any, **sizes: int) -> float:
    """The share of queries whose label on a GPU is another one than on the processor."""
    cub, method = a2lp.load("cub"), a2lp.create(name)
    if method.reads_statistics:
        method = a2lp.create(name, base=load_base("cub"))
    batch = a2lp.draw("balanced", cub.labels, seed=3, n_way=5, **sizes).batch(cub.features.astype(dtype))
    support, query = (torch.from_numpy(x).cuda() for x in (batch.support, batch.query))
    found = method.predict(a2lp.TaskBatch(support, batch.support_labels, query))
    return float((found.labels != method.predict(batch).labels).mean())


@pytest.mark.cuda
@needs_gpu
@pytest.mark.parametrize("n_shot", [1, 5])
@pytest.mark.parametrize("name", METHODS)
def test_labels_on_a_gpu_are_those_of_the_processor(name: str, n_shot: int) -> None:
    assert unequal(name, np.float32, n_shot=n_shot, n_query=15, n_tasks=200) <= 0.001


@pytest.mark.cuda
@needs_gpu
@pytest.mark.parametrize("n_query", [15, 46])
@pytest.mark.parametrize("name", ["pt_map", "ease", "proto_lp", "ilpc", "bms", "tpn"])
def test_in_double_precision_and_where_shared_memory_is_too_small(name: str, n_query: int) -> None:
    assert unequal(name, np.float64, n_shot=1, n_query=n_query, n_tasks=4) == 0
