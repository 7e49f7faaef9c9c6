"""The loop in one CUDA launch: one thread block per task, all steps inside; for float32 torch tensors on a GPU.

It is CUDA C++, compiled by NVRTC, which comes with every CUDA build of torch. Triton comes with torch too but cannot
express a Cholesky factor, a merge of sorted lists or substitutions with shuffles; CuPy would be another 137 MB.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from a2lp.arrays import chunks, collect, is_torch, namespace
from a2lp.engines.contract import Engine, Points, Result, Settings
from a2lp.kernels import cuda
from a2lp.losses import NUMERICS, QUERY_TERMS
from a2lp.optimizers import Adam

WARPS, PIECE = 8, 8  # warps of a task, and dimensions of a warp's piece, as in the kernel
_CHUNK_BYTES = 2 << 30
# Steps of a task that a block runs before it takes another task, where there are more tasks than blocks. With whole
# tasks the last blocks would run alone; resuming a task costs less than one step.
PART = 50
_ROUGH = 0.01  # what an inverse may be wrong by at first


_Params = cuda.structure(
    ctypes.c_float,
    "alpha gamma tau scale entropy marginal lr beta1 beta2 eps loss_tol",
    "steps updates loss adam tasks parts part doublings",
)


class Sizes(NamedTuple):
    """What the kernel is compiled for: anchors, other points, classes, neighbours, dimensions (padded), and which code.

    ``queries`` is 0 if the loss has no terms on points other than anchors, else 1 and which distribution they have.
    ``corrected`` is whether the system's solutions are corrected from step to step by a rough inverse, or its factor is
    made anew in each step.
    """

    s: int
    m: int
    c: int
    k: int
    d: int
    queries: int
    gamma3: bool
    corrected: bool

    @classmethod
    def of(cls, points: Points, settings: Settings, limit: int) -> Sizes:
        """The sizes of tasks where a block has shared memory up to a limit.

        Corrections are a shorter chain, of more instructions. They are faster where a multiprocessor has one block;
        several fill each other's waits.
        """
        (_, n, d), s, loss = points.vectors.shape, points.codes.shape[1], settings.loss
        queries = 1 + QUERY_TERMS.index(loss.queries) if loss.on_queries else 0
        k = min(settings.n_neighbors, n - 1)
        sizes = cls(s, n - s, points.n_classes, k, _padded(d), queries, settings.gamma == 3, corrected=False)
        corrected = sizes._replace(corrected=True)
        fits = corrected.correctable and corrected.shared_bytes <= limit
        # near 1 the system is too far from the identity for an inverse of halves
        return corrected if fits and not queries and settings.alpha <= 0.95 and sizes.blocks(limit) == 1 else sizes

    def blocks(self, limit: int) -> int:
        """How many blocks share a multiprocessor: several hide latency."""
        # The driver reserves 1 KB of shared memory for each. A lane has four sums for every tile of 16 points by 8
        # anchors, and about 100 more registers.
        sums = 4 * -(-self.s // 8) * (_sixteens(self.m) + _sixteens(self.s)) // 16
        fit = (limit + 1024) // (self.shared_bytes + 1024), 65536 // (32 * WARPS * min(sums + 100, 255))
        return max(1, min(*fit))

    @property
    def correctable(self) -> bool:
        """Whether a warp can have 16 rows of the system, and its room is enough for the wide half."""
        n, sums = self.s + self.m, self.s * (_sixteens(self.m) + _sixteens(self.s) + 8)
        return n <= 16 * WARPS and n * _sixteens(n) >= sums + self._factors

    @property
    def _factors(self) -> int:
        anchors, points = _sixteens(self.s), _sixteens(self.m)
        return (16 if self.s <= 8 else 2 * anchors) * (points + anchors + 8) // 2

    @property
    def shared_bytes(self) -> int:
        """The shared memory that the kernel divides up."""
        s, m, c = self.s, self.m, self.c
        n, anchors, points = s + m, _sixteens(s), _sixteens(m)
        if self.corrected:  # the system, a rough inverse, right-hand sides
            system = (3 * n + 3 * (-(-c // 8) * 8)) * _sixteens(n) // 2 + 2 * c
        else:
            sums = s * (points + anchors + 8)
            system = -(-max(n * (n | 1), sums) // 4) * 4 + self._factors
        floats = WARPS * 2 * PIECE * (points + 2 * s) + s * self.d + system
        floats += s * n + n * ((2 * c) | 1) + s * c + (min(self.k, s + 1) + 1) * m + 6 * n + 3 * s + m
        floats += (WARPS + 2 * c) * (self.queries > 0)
        return 4 * floats + 256  # 256 for variables that it declares

    def defines(self, blocks: int) -> dict[str, int]:
        """For the compiler; ``blocks`` share a multiprocessor."""
        s, m, c, k, d, queries, gamma3, corrected = self
        return {
            "S": s, "M": m, "N": s + m, "C": c, "K": k, "DP": d, "QUERIES": queries, "GAMMA3": int(gamma3),
            "CORRECTED": int(corrected),
            "WARPS": WARPS, "BLOCKS": blocks,
        }  # fmt: skip


def run(points: Points, settings: Settings) -> Result:
    """Solve a batch of tasks in float32."""
    (b, n, d), s = points.vectors.shape, points.codes.shape[1]
    m = n - s
    per_task = 4 * (2 * m * _padded(d) + 2 * m * m + 5 * s * _padded(d) + settings.steps)
    parts = chunks(b, max(1, _CHUNK_BYTES // per_task))
    sizes = Sizes.of(points, settings, cuda.shared_limit(points.vectors.device))
    joined: Result = collect(b, (solve(points.part(part), settings, sizes) for part in parts))
    return joined


def refusal(points: Points, settings: Settings) -> str | None:
    """Why the kernel cannot run these tasks, or None if it can."""
    vectors = points.vectors
    xp = namespace(vectors)
    if not (is_torch(xp) and vectors.is_cuda):
        return "it takes torch tensors on a CUDA device"
    if vectors.dtype != xp.float32:
        return f"it computes in float32, and these are {vectors.dtype}"
    if settings.renormalize or settings.grad_tol is not None:
        return "renormalize and grad_tol need the whole gradient before any of the step, and it makes both tile by tile"
    has = cuda.shared_limit(vectors.device)
    sizes = Sizes.of(points, settings, has)
    needs = sizes.shared_bytes
    if needs > has:
        task = f"a task of {sizes.s} + {sizes.m} points"
        return f"{task} needs {needs} bytes of shared memory; a block of this device has {has}"
    return cuda.available()


FUSED_CUDA = Engine(
    "fused_cuda", run, "float32 tensors on a GPU: all steps of all tasks in one launch, one block per task", refusal
)


def _padded(d: int) -> int:
    """The next dimension with equally many whole pieces for every warp."""
    return -(-d // (PIECE * WARPS)) * PIECE * WARPS


def _sixteens(n: int) -> int:
    """The next multiple of the tensor cores' tile."""
    return -(-n // 16) * 16


def source(hardware: str | None = None) -> str:
    """The kernel's text, in one piece; ``hardware`` are another machine's instructions, in tests."""
    folder = files("a2lp.engines.fused_cuda")
    kernel, ours = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("kernel.cu", "hardware.cu"))
    return kernel.replace('#include "hardware.cu"\n', hardware or ours)


@cache
def _kernel(device: Any, sizes: Sizes) -> tuple[cuda.Kernel, int]:
    """The kernel, and how many of its blocks the device holds."""
    import torch

    blocks = sizes.blocks(cuda.shared_limit(device))
    code = cuda.compile_source(source(), device, **sizes.defines(blocks))
    places = blocks * torch.cuda.get_device_properties(device).multi_processor_count
    return cuda.Kernel(code, "a2lp", sizes.shared_bytes, threads=32 * WARPS), places


def solve(
    points: Points, settings: Settings, sizes: Sizes, kernel_of: Callable[[Any, Sizes], tuple[Any, int]] = _kernel
) -> Result:
    """Algorithm 1 for a chunk of tasks; ``kernel_of`` is another machine's in tests."""
    import torch

    b, _, d = points.vectors.shape
    s, m, c, k, dp, *_ = sizes
    device = points.vectors.device
    pad = torch.nn.functional.pad
    rest = pad(points.rest, (0, dp - d)) if dp > d else points.rest
    anchors = torch.zeros(b, s, dp, device=device)  # at first the support
    anchors[:, :, :d] = points.support
    codes = points.codes.to(torch.int32).contiguous()
    # constants of the run: similarities of points that do not move, and the end of each one's list of the best
    sim = _full_precision_gram(rest).clamp_(min=0)
    sim.diagonal(dim1=1, dim2=2).fill_(-1)
    best = pad(sim.topk(min(k + 1, m), dim=2).values, (0, max(k + 1 - m, 0)), value=-1.0)
    near = best[:, :, k - min(k, s + 1) :].transpose(1, 2).contiguous()  # NEAR + 1 in the kernel
    sim = pad(sim, (0, -m % 4))  # rows of whole 16 bytes
    magnify = _power_of_two(rest, anchors)
    pieces = _in_pieces(rest * magnify[:, None, None], 2 * s * PIECE)

    def empty(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.empty(shape, dtype=dtype, device=device)

    z, losses, taken = empty(b, m + s, c), empty(b, settings.steps), empty(b, dtype=torch.int32)
    converged, queue, finished = (torch.zeros(n, dtype=torch.int32, device=device) for n in (b, 1, b))
    with torch.cuda.device_of(anchors):
        kernel, places = kernel_of(device, sizes)
    parts = max(1, settings.updates // PART) if b > places else 1
    terms = settings.loss
    kind = len(NUMERICS) if terms.anchors == "others" else NUMERICS.index(settings.numerics)
    parameters = _Params(
        settings.alpha, settings.gamma, settings.tau, terms.weight * settings.scale(s), terms.entropy, terms.marginal,
        settings.lr, *settings.betas, settings.eps, settings.tolerances[0], settings.steps, settings.updates, kind,
        settings.optimizer == "adam", b, parts, PART, _doublings(settings.alpha),
    )  # fmt: skip
    rates = _rates(device, settings.lr, *settings.betas, settings.updates)
    arrays = (pieces, magnify, codes, rates, sim, near, z, anchors, losses, taken, converged, queue, finished)
    with torch.cuda.device_of(anchors):
        kernel.launch(min(b, places), arrays, parameters)
    z = torch.cat([z[:, m:], z[:, :m]], dim=1)  # support first again
    return Result(z, anchors[:, :, :d].contiguous(), losses, taken.to(torch.int64), converged.to(torch.bool))


def _doublings(alpha: float) -> int:
    """How often an inverse of the system is improved from the identity on, which is wrong by alpha."""
    return math.ceil(math.log2(math.log(_ROUGH) / math.log(alpha))) if alpha > _ROUGH else 0


@cache
def _rates(device: Any, lr: float, beta1: float, beta2: float, updates: int) -> Any:
    """``Adam.rates`` on the device (updates, 2)."""
    import torch

    beta1, beta2 = torch.tensor([beta1, beta2], dtype=torch.float32).tolist()  # as in the kernel
    rates = Adam(lr, (beta1, beta2)).rates(max(updates, 1))
    return torch.from_numpy(rates).to(device, torch.float32)


def _power_of_two(rest: Any, support: Any) -> Any:
    """The factor (b,) that makes the largest entry of each task about 16.

    Half precision then covers numbers 4000 times larger, which anchors may reach, and 28 bits below: all of float32.
    """
    import torch

    top = torch.maximum(*(torch.stack(x.flatten(1).aminmax(dim=1)).abs().amax(0) for x in (rest, support)))
    exponent = torch.frexp(top).exponent.clamp(-60, 60)
    return torch.ldexp(torch.ones_like(top), 4 - exponent)


def _in_pieces(points: Any, moments: int) -> Any:
    """The points (b, m, d) as the kernel streams them: (b, d / 8, floats), with room for moments, which are zero.

    A piece has the high halves of its 8 dimensions, of all points and padding, and then the low ones.
    """
    import torch

    (b, m, d), padded = points.shape, _sixteens(points.shape[1])
    pieces = torch.zeros(b, d // PIECE, padded * PIECE + moments, device=points.device)
    halves = pieces.view(torch.float16)[:, :, : 2 * padded * PIECE].unflatten(2, (2, padded, PIECE))
    points = points.reshape(b, m, d // PIECE, PIECE).transpose(1, 2)
    halves[:, :, 0, :m] = points
    halves[:, :, 1, :m] = points - halves[:, :, 0, :m]
    return pieces


def _full_precision_gram(x: Any) -> Any:
    """X X' without TF32, even if the caller has turned it on."""
    import torch

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        return x @ x.transpose(1, 2)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
