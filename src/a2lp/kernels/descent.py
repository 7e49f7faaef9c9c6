"""Launching CUDA kernels that adapt the class weights of a task by Adam, one thread block per task: ``descent.cuh``."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from a2lp.arrays import Array, is_torch, namespace
from a2lp.kernels import cuda
from a2lp.optimizers import Adam

PARTS = 16  # threads that sum a class, as in the kernel
ADAM = "b1 rest1 b2 rest2 eps"  # the first parameters of every kernel: ``Adam.constants``
OBJECTIVE = "support marginal conditional order"
_RESERVED = 1024  # bytes of shared memory that the driver takes of each block
LEAST_THREADS, MOST_THREADS = 128, 640  # the most that have 96 registers each


class Own(NamedTuple):
    """How many numbers of its own a loop has in shared memory; ``reused`` of them are free for inner products."""

    numbers: int
    reused: int = 0


class Sizes(NamedTuple):
    """What a kernel is compiled for: n points, c classes, d dimensions, and how a block divides the work."""

    n: int
    c: int
    d: int
    itemsize: int
    threads: int
    blocks: int  # of a multiprocessor
    slices: int
    resident: int  # columns of four dimensions in shared memory

    @property
    def columns(self) -> int:
        """Columns of four dimensions."""
        return -(-self.d // 4)

    @property
    def row(self) -> int:
        """Points of a column, with padding to an odd number."""
        return self.n | 1

    def shared_bytes(self, own: Own) -> int:
        """What the kernel's pointers add up to."""
        c, nodes = self.c, self.n + self.c
        numbers = 4 * self.resident * self.row + c * (4 * self.columns + 4) + c * (nodes + -nodes % 4) + c * PARTS
        numbers += c * nodes + -(c * nodes) % 4 + own.numbers + (0 if own.reused else self.slices * c * nodes)
        return self.itemsize * numbers

    def defines(self) -> dict[str, int]:
        """Macros of the source."""
        return {
            "DOUBLE": int(self.itemsize == 8), "N": self.n, "C": self.c, "D": self.d, "THREADS": self.threads,
            "BLOCKS": self.blocks, "SLICES": self.slices, "RESIDENT": self.resident,
        }  # fmt: skip


def sizes(n: int, c: int, d: int, itemsize: int, own: Own, limit: int) -> Sizes:
    """Sizes for ``limit`` bytes of shared memory, with as many columns in it as fit; none if even the rest does not.

    A loop that leaves its memory to inner products waits more than it computes: two blocks, where they fit.
    """
    for blocks in (2, 1) if own.reused else (1,):
        room = (limit + _RESERVED) // blocks - _RESERVED
        slots = -(-d * blocks // MOST_THREADS)
        threads = max(LEAST_THREADS, -(-d // (32 * slots)) * 32)
        slices = min(threads // 32, own.reused // (c * (n + c))) if own.reused else threads // 32
        least = Sizes(n, c, d, itemsize, threads, blocks, max(slices, 1), 0)
        room -= least.shared_bytes(own)
        if room >= 0:
            break
    return least._replace(resident=min(max(room, 0) // (4 * itemsize * least.row), least.columns))


def source(loop: str) -> str:
    """The text of a loop's kernel, with what it shares."""
    shared, own = files("a2lp.kernels"), files(f"a2lp.loops.{loop}")
    parts = [*map(shared.joinpath, _SHARED), *map(own.joinpath, _PARTS.get(loop, ())), own.joinpath("kernel.cu")]
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


_SHARED = "descent.cuh", "information.cuh"
_PARTS = {"am": ("graph.cuh", "system.cuh")}  # that come before a loop's kernel.cu


def refusal(vectors: Array, n_classes: int, own: Own) -> str | None:
    """Why a kernel cannot run tasks with these points (b, n, d), or None if it can."""
    xp, (_, n, d) = namespace(vectors), vectors.shape
    if not (is_torch(xp) and vectors.is_cuda):
        return "it takes torch tensors on a CUDA device"
    if vectors.dtype not in (xp.float32, xp.float64):
        return f"it computes in float32 or float64, and these are {vectors.dtype}"
    has = cuda.shared_limit(vectors.device)
    needs = sizes(n, n_classes, d, vectors.dtype.itemsize, own, limit=0).shared_bytes(own)
    if needs > has:
        return (
            f"a task of {n} points of {d} dimensions in {n_classes} classes needs {needs} bytes of shared memory, and "
            f"this device has {has} for a block"
        )
    return cuda.available()


def params(itemsize: int, reals: str, integers: str) -> Any:
    """The class of a kernel's parameters."""
    return cuda.structure(ctypes.c_double if itemsize == 8 else ctypes.c_float, reals, integers)


def in_pieces(vectors: Any) -> Any:
    """Points (b, n, d) as the kernel reads them: (b, columns of four dimensions, points and padding, 4)."""
    b, n, d = vectors.shape
    padded = vectors.new_zeros((b, n | 1, -(-d // 4) * 4))
    padded[:, :n, :d] = vectors
    return padded.reshape(b, n | 1, -1, 4).swapaxes(1, 2).contiguous()


def launch(loop: str, vectors: Any, codes: Any, adam: Adam, steps: int, changed: tuple[Any, ...], **given: Any) -> None:
    """Run a loop's kernel on points (b, n, d) and classes (b, s); ``changed`` starts with the class weights (b, c, d).

    ``given``: the kernel's ``parameters``, and its ``own`` numbers.
    """
    import torch

    (b, n, d), c, itemsize = vectors.shape, changed[0].shape[1], vectors.dtype.itemsize
    device = vectors.device
    rates = torch.as_tensor(adam.rates(steps), dtype=vectors.dtype, device=device)
    arrays = (in_pieces(vectors), vectors.contiguous(), codes.to(device, torch.int64).contiguous(), rates, *changed)
    with torch.cuda.device(device):
        _kernel(loop, device, n, c, d, itemsize, given["own"]).launch(b, arrays, given["parameters"])


@cache
def _kernel(loop: str, device: Any, n: int, c: int, d: int, itemsize: int, own: Own) -> cuda.Kernel:
    """The kernel for tasks of these sizes."""
    of = sizes(n, c, d, itemsize, own, cuda.shared_limit(device))
    code = cuda.compile_source(source(loop), device, **of.defines())
    return cuda.Kernel(code, f"a2lp_{loop}", of.shared_bytes(own), of.threads)
