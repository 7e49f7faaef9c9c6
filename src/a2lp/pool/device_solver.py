"""Label propagation on a device: ``propagate`` for tensors.

Products with the sparse graph are sums over bags of rows, which torch adds up one after the other: two calls give the
same bits. All columns are solved together; one that is done does not change.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from a2lp.pool.device import Tensor


class System(NamedTuple):
    """S of eq. 2 on a device, as in a csr_array."""

    offsets: Tensor  # (n + 1,)
    indices: Tensor  # int32, as offsets
    data: Tensor


def make_system(starts: Tensor, columns: Tensor, weights: Tensor) -> System:
    """S = D^-1/2 W D^-1/2 of W; the row of an isolated point is zero."""
    import torch

    n = len(starts) - 1
    kind = torch.int32 if len(weights) < 2**31 else torch.int64
    starts, columns = starts.to(kind), columns.to(kind)
    ones = torch.ones((n, 1), dtype=torch.float64, device=weights.device)
    degree = _bags(starts, columns, weights.double(), ones)[:, 0]
    scale = torch.where(degree > 0, degree.rsqrt(), 0)
    rows = torch.repeat_interleave(torch.arange(n, device=weights.device), starts.diff())
    data = weights * scale[rows] * scale[columns.long()]
    return System(starts, columns, data.to(weights.dtype))


def _bags(offsets: Tensor, indices: Tensor, data: Tensor, p: Tensor) -> Tensor:
    """The product of a sparse matrix (n, n) and P (n, w)."""
    from torch.nn.functional import embedding_bag

    return embedding_bag(indices, p, offsets, mode="sum", per_sample_weights=data, include_last_offset=True)


def solve(
    system: System, y: Tensor, alpha: float, tolerance: float, start: Tensor | None = None, largest: float = math.inf
) -> tuple[Tensor, Tensor, int]:
    """Z, its relative residuals (c,) and the rounds; the parameters are those of ``propagate``."""
    import torch

    loose = y.dtype == system.data.dtype == torch.float32
    r = y.to(torch.float32 if loose else torch.float64, copy=True)
    data = system.data.to(r.dtype)

    def left(p: Tensor) -> Tensor:  # (I - alpha S) P
        return torch.add(p, _bags(system.offsets, system.indices, data, p), alpha=-alpha)

    def products(a: Tensor, b: Tensor) -> Tensor:  # of columns
        return (a * b).sum(dim=0, dtype=torch.float64)

    squares = products(r, r)
    enough = (0.9 * tolerance) ** 2 * squares
    missed, peaks = squares, None
    z = torch.zeros_like(r)
    if start is not None:
        z = start.to(r.dtype) * (squares > 0)
        r -= left(z)
        missed, peaks = products(r, r), torch.linalg.vector_norm(r, math.inf, dim=0)
    root = math.sqrt((1 + alpha) / (1 - alpha))
    limit = math.ceil(root * math.log(2 * root / tolerance)) + 1  # as in ``conjugate``
    p, rounds = r.clone(), 0
    while rounds < limit:
        active = missed > enough
        if peaks is not None:
            active |= (peaks > largest) & (missed > 0)
        if not bool(active.any()):
            break
        product = left(p)
        curvature = products(p, product)
        step = torch.where(active & (curvature > 0), missed / curvature, 0)
        z.addcmul_(p, step.to(z.dtype))
        r.addcmul_(product, step.to(z.dtype), value=-1)
        found = products(r, r)
        share = torch.where(step > 0, found / missed, 0)
        p = torch.addcmul(r, p, share.to(z.dtype))
        missed = torch.where(step > 0, found, missed)
        if peaks is not None:
            peaks = torch.linalg.vector_norm(r, math.inf, dim=0)
        rounds += 1
    residual = (missed / squares.where(squares > 0, 1)).sqrt()
    return z.to(y.dtype), residual, rounds
