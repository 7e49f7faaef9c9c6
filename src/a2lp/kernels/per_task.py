"""CUDA kernels with one thread block per task, for torch tensors: Sinkhorn's scaling, eigenvectors, descent of logits.

A task may stop by itself inside a kernel, where array operations on all tasks would have to ask the device.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.resources import files
from typing import Any

from a2lp.arrays import Array, is_torch, namespace
from a2lp.kernels import cuda

PARTS = 8  # threads that sum a class, as in sinkhorn.cu and fill.cu
_GROUP = 8  # most classes that a thread of classifier.cu multiplies at once
_SWEEPS = 30  # of Jacobi's rotations, at most; matrices of a hundred rows take eight
_TOLERANCE = 1 / 16  # of their entries outside the diagonal, in roundings of the matrix' length
# threads of a block, at most, as in the kernels' launch bounds
_THREADS = {"sinkhorn": 256, "fill": 256, "jacobi": 256, "solve": 512, "classifier": 512}

SinkhornParams: Any = cuda.structure(ctypes.c_double, "tolerance", "n c has_fixed rounds")
FillParams: Any = cuda.structure(ctypes.c_double, "tiny", "n c rounds")
JacobiParams: Any = cuda.structure(ctypes.c_double, "tolerance", "n sweeps")
SolveParams: Any = cuda.structure(ctypes.c_double, "", "n k")
DescentParams: Any = cuda.structure(ctypes.c_double, "rate momentum decay", "n c steps")


def can_scale(kernel: Array) -> bool:
    """Whether ``scale`` takes a kernel (b, c, n)."""
    _, c, n = kernel.shape
    return _fits(kernel, lambda itemsize: sinkhorn_bytes(n, c, itemsize, resident=False))


def scale(kernel: Array, columns: Array, rows: Array, fixed: Array | None, tolerance: float, rounds: int) -> Array:
    """Sinkhorn's plan (b, c, n): kernel (b, c, n), columns and fixed (b, c), rows (b, n); see ``methods._maths``."""
    (_, c, n), itemsize = kernel.shape, kernel.dtype.itemsize
    plan = namespace(kernel).empty(kernel.shape, dtype=kernel.dtype, device=kernel.device)
    params = SinkhornParams(tolerance, n, c, fixed is not None, rounds)
    arrays = kernel, columns, rows, columns if fixed is None else fixed
    resident = sinkhorn_bytes(n, c, itemsize, resident=True) <= cuda.shared_limit(kernel.device)
    threads = _warps(max(n, c * PARTS))
    shared = sinkhorn_bytes(n, c, itemsize, resident=resident)
    _launch("sinkhorn", arrays, (plan,), params, shared, threads, RESIDENT=int(resident))
    return plan


def can_fill(shares: Array) -> bool:
    """Whether ``fill`` takes soft labels (b, c, n)."""
    _, c, n = shares.shape
    return _fits(shares, lambda itemsize: fill_bytes(n, c, itemsize))


def fill(shares: Array, least: Array, tiny: float, rounds: int) -> Array:
    """Soft labels (b, c, n) in which no class is smaller than ``least`` (b, 1, 1); see ``methods._maths.filled``."""
    _, c, n = shares.shape
    found = namespace(shares).empty(shares.shape, dtype=shares.dtype, device=shares.device)
    shared, threads = fill_bytes(n, c, shares.dtype.itemsize), _warps(max(n, c * PARTS))
    _launch("fill", (shares, least), (found,), FillParams(tiny, n, c, rounds), shared, threads)
    return found


def can_diagonalise(matrices: Array) -> bool:
    """Whether ``eigh`` takes matrices (b, n, n)."""
    return _fits(matrices, lambda itemsize: jacobi_bytes(matrices.shape[-1], itemsize))


def eigh(matrices: Array) -> tuple[Array, Array]:
    """Ascending eigenvalues (b, n) of symmetric matrices (b, n, n), and eigenvectors as columns (b, n, n)."""
    xp, n = namespace(matrices), matrices.shape[-1]
    vectors = xp.empty(matrices.shape, dtype=matrices.dtype, device=matrices.device)
    values = xp.empty(matrices.shape[:-1], dtype=matrices.dtype, device=matrices.device)
    params = JacobiParams(_TOLERANCE * float(xp.finfo(matrices.dtype).eps), n, _SWEEPS)
    shared = jacobi_bytes(n, matrices.dtype.itemsize)
    _launch("jacobi", (matrices,), (values, vectors), params, shared, _THREADS["jacobi"])
    return values, xp.matrix_transpose(vectors)


def can_solve(matrix: Array, right: Array) -> bool:
    """Whether ``solve`` takes these."""
    _, n, k = right.shape
    return _fits(matrix, lambda itemsize: solve_bytes(n, k, itemsize))


def solve(matrix: Array, right: Array) -> Array:
    """X of ``matrix X = right``: matrix (b, n, n), right (b, n, k)."""
    _, n, k = right.shape
    found = namespace(right).empty(right.shape, dtype=right.dtype, device=right.device)
    shared = solve_bytes(n, k, right.dtype.itemsize)
    _launch("solve", (matrix, right), (found,), SolveParams(n, k), shared, _warps(n * (n + k) // 8))
    return found


def can_descend(logits: Array) -> bool:
    """Whether ``descent_losses`` takes logits (b, c, n)."""
    _, c, n = logits.shape
    return _fits(logits, lambda itemsize: descent_bytes(n, c, itemsize, resident=False))


def descent_losses(
    products: Array, target: Array, logits: Array, rates: tuple[float, float, float], steps: int
) -> Array:
    """``descent_losses`` of ``methods._maths``."""
    (b, c, n), itemsize = logits.shape, logits.dtype.itemsize
    losses = namespace(logits).empty((b, n), dtype=logits.dtype, device=logits.device)
    resident = descent_bytes(n, c, itemsize, resident=True) <= cuda.shared_limit(logits.device)
    groups = -(-c // _GROUP)
    sizes = {"GROUP": -(-c // groups), "RESIDENT": int(resident)}
    shared, threads = descent_bytes(n, c, itemsize, resident=resident), _warps(n * groups)
    params = DescentParams(*rates, n, c, steps)
    _launch("classifier", (products, target, logits), (losses,), params, shared, threads, **sizes)
    return losses


def source(name: str) -> str:
    """A kernel's text."""
    return files("a2lp.kernels").joinpath(f"{name}.cu").read_text(encoding="utf-8")


def sinkhorn_bytes(n: int, c: int, itemsize: int, *, resident: bool) -> int:
    """What the pointers in sinkhorn.cu add up to."""
    return itemsize * (3 * n + c + c * PARTS + c * n * resident)


def fill_bytes(n: int, c: int, itemsize: int) -> int:
    """What the pointers in fill.cu add up to."""
    return itemsize * (c * n + c + c * PARTS)


def jacobi_bytes(n: int, itemsize: int) -> int:
    """What the pointers in jacobi.cu add up to."""
    pairs = (n + 1) // 2
    return itemsize * (2 * n * n + 2 * pairs + n) + 2 * 4 * pairs


def solve_bytes(n: int, k: int, itemsize: int) -> int:
    """What the pointers in solve.cu add up to."""
    return itemsize * (n * (n + k) + 1) + 4


def descent_bytes(n: int, c: int, itemsize: int, *, resident: bool) -> int:
    """What the pointers in classifier.cu add up to."""
    return itemsize * (4 * c * n + n + n * n * resident)


def _fits(array: Array, shared_bytes: Any) -> bool:
    """Whether an array is a torch tensor on a CUDA device that has that much shared memory for a block."""
    xp = namespace(array)
    if not (is_torch(xp) and array.is_cuda) or array.dtype not in (xp.float32, xp.float64):
        return False
    return shared_bytes(array.dtype.itemsize) <= cuda.shared_limit(array.device) and cuda.available() is None


def _warps(threads: int) -> int:
    """The next number of threads in whole warps."""
    return max(1, -(-threads // 32)) * 32


def _launch(name: str, given: Any, found: Any, params: Any, shared: int, threads: int, **defines: int) -> None:
    import torch

    defines["DOUBLE"] = int(given[0].dtype.itemsize == 8)
    device = given[0].device
    with torch.cuda.device(device):
        kernel = _kernel(name, device, shared, min(threads, _THREADS[name]), tuple(defines.items()))
        kernel.launch(given[0].shape[0], [*(x.contiguous() for x in given), *found], params)


@cache
def _kernel(name: str, device: Any, shared: int, threads: int, defines: tuple[tuple[str, int], ...]) -> cuda.Kernel:
    return cuda.Kernel(cuda.compile_source(source(name), device, **dict(defines)), f"a2lp_{name}", shared, threads)
