"""All rounds of expectation-maximisation in one CUDA launch, one thread block per task; for torch tensors on a GPU."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.resources import files
from typing import Any

from a2lp.arrays import is_torch, namespace
from a2lp.engines.contract import Points
from a2lp.kernels import cuda

PARTS = 16  # threads that sum a class, as in the kernel
_GROUP = 8  # most classes that a thread multiplies at once
_THREADS = 512  # at most, as in the kernel's launch bounds
_POINTS = 1024  # larger matrices are multiplied faster by all multiprocessors together than by one


Params: Any = cuda.structure(
    ctypes.c_double, "temperature share_weight mean_prior pull least", "n s c priors rounds sinkhorn_rounds"
)


def refusal(points: Points, settings: Any) -> str | None:
    """Why the kernel cannot run these tasks, or None if it can."""
    vectors = points.vectors
    xp, n = namespace(vectors), vectors.shape[1]
    if not (is_torch(xp) and vectors.is_cuda):
        return "it takes torch tensors on a CUDA device"
    if vectors.dtype not in (xp.float32, xp.float64):
        return f"it computes in float32 or float64, and these are {vectors.dtype}"
    if n > _POINTS:
        return f"it takes tasks of up to {_POINTS} points, and these have {n}"
    needs = _shared_bytes(n, points.n_classes, vectors.dtype.itemsize, resident=False)
    has = cuda.shared_limit(vectors.device)
    if needs > has:
        return f"a task of {n} points needs {needs} bytes of shared memory, and this device has {has} for a block"
    return cuda.available()


def run(smoothing: Any, given: Any, codes: Any, params: Any) -> Any:
    """Shares of the points in the classes (b, c, n), those of the support as given.

    smoothing (b, n, n) propagates shares; given are the loop's ``Rounds``; codes (b, s) are the support's.
    """
    import torch

    gram, start, bias, concentrations, weights = (array.contiguous() for array in given)
    smoothing, codes = smoothing.contiguous(), codes.to(torch.int64).contiguous()
    shares = start.clone()
    arrays = (gram, smoothing, codes, bias, concentrations, weights, shares)
    with torch.cuda.device(gram.device):
        kernel = _kernel(gram.device, params.n, params.c, gram.dtype.itemsize)
        kernel.launch(gram.shape[0], arrays, params)
    return shares


def source() -> str:
    """The kernel's text."""
    return files("a2lp.loops.em").joinpath("kernel.cu").read_text(encoding="utf-8")


def _shared_bytes(n: int, c: int, itemsize: int, *, resident: bool) -> int:
    """What the kernel's pointers add up to."""
    return itemsize * (2 * c * n + c * PARTS + 5 * c + 2 * n * n * resident)


@cache
def _kernel(device: Any, n: int, c: int, itemsize: int) -> cuda.Kernel:
    """The kernel with memory for tasks of n points and c classes."""
    resident = _shared_bytes(n, c, itemsize, resident=True) <= cuda.shared_limit(device)
    groups = -(-c // _GROUP)
    sizes = {"DOUBLE": int(itemsize == 8), "GROUP": -(-c // groups), "RESIDENT": int(resident)}
    code = cuda.compile_source(source(), device, **sizes)
    threads = min(_THREADS, -(-n * groups // 32) * 32)
    return cuda.Kernel(code, "a2lp_em", _shared_bytes(n, c, itemsize, resident=resident), threads)
