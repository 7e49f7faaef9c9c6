"""The loop for many tasks at once, on any array library: NumPy, torch on any device, and others.

The gradient is the closed form of ``reference``, for the rows of the anchors only; similarities of points that do not
move are computed once. One Cholesky factor per step serves both solves.
"""

from __future__ import annotations

from typing import NamedTuple

from a2lp.arrays import Array, cholesky_solve, chunks, collect, device, is_numpy, kth_largest, namespace, on_host
from a2lp.cores import map_on_cores
from a2lp.engines.contract import Callback, Points, Result, Settings, Step, batched
from a2lp.graph import degrees, neighbours, share, similarities
from a2lp.optimizers import Moments
from a2lp.preprocess import l2

_HOST_CHUNK_BYTES = 8 << 20  # small enough for a core's second-level cache, large enough to hide Python's overhead
_DEVICE_CHUNK_BYTES = 2 << 30  # only bounds memory


def run(points: Points, settings: Settings, callback: Callback | None = None) -> Result:
    """Solve a batch of tasks in the precision of its vectors; NumPy's in chunks on all cores."""
    xp = namespace(points.vectors)
    (b, n, d), s = points.vectors.shape, points.codes.shape[1]
    per_task = (4 if points.vectors.dtype == xp.float32 else 8) * (12 * n * n + n * d + 8 * s * d)
    chunk_bytes = _HOST_CHUNK_BYTES if on_host(points.vectors) else _DEVICE_CHUNK_BYTES
    parts = list(chunks(b, max(1, chunk_bytes // per_task)))

    def solve(part: slice) -> Result:
        return _solve(points.part(part), settings, callback, part)

    # with a callback, one after another: it need not be thread-safe
    on_cores = is_numpy(xp) and callback is None and len(parts) > 1
    joined: Result = collect(b, map_on_cores(solve, parts) if on_cores else map(solve, parts))
    return joined


BATCHED = batched(run, shows_steps=True)


class _Fixed(NamedTuple):
    """Constants of a run."""

    rest: Array  # (b, m, d)
    rest_sim: Array  # (b, m, m)  diagonal -1
    rest_best: Array  # (b, m, min(k, m))  largest similarities of each row
    labels: Array  # (b, n, c)  eq. 4
    eye: Array  # (n, n)
    k: int  # neighbours


class _Forward(NamedTuple):
    """One evaluation of eq. 1-5, with what the gradient needs."""

    sim: Array  # (b, s, n)  rows of the anchors
    share: Array  # (b, s, n)
    degrees: Array  # (b, n)
    factor: Array  # (b, n, n)
    z: Array  # (b, n, c)


def _forward(anchors: Array, fixed: _Fixed, settings: Settings) -> _Forward:
    xp = namespace(anchors)
    s, k = anchors.shape[1], fixed.k
    across = xp.clip(anchors @ xp.matrix_transpose(fixed.rest), min=0.0)  # (b, s, m)
    back = xp.matrix_transpose(across)  # (b, m, s)
    top = xp.concat([similarities(anchors), across], axis=2)  # (b, s, n)
    sim = xp.concat([top, xp.concat([back, fixed.rest_sim], axis=2)], axis=1)  # (b, n, n)
    threshold = xp.concat([kth_largest(top, k), kth_largest(xp.concat([back, fixed.rest_best], axis=2), k)], axis=1)
    shared = share(neighbours(sim, k, threshold), sim.dtype)
    sim = xp.clip(sim, min=0.0)
    weights = shared * (sim * sim * sim if settings.gamma == 3 else sim**settings.gamma)  # (b, n, n)  eq. 1
    degree = degrees(weights)  # (b, n)  eq. 3
    scale = 1.0 / xp.sqrt(degree)
    system = fixed.eye - settings.alpha * (scale[:, :, None] * weights * scale[:, None, :])  # eq. 2
    factor = xp.linalg.cholesky(system)
    z = cholesky_solve(factor, fixed.labels)  # (b, n, c)  eq. 5
    return _Forward(xp.clip(top, min=0.0), shared[:, :s, :], degree, factor, z)


def _gradient(anchors: Array, fixed: _Fixed, forward: _Forward, dz: Array, settings: Settings) -> Array:
    """dL/dV of the anchors (b, s, d) from dL/dZ (b, n, c)."""
    xp, s = namespace(anchors), anchors.shape[1]
    z, degree = forward.z, forward.degrees
    adjoint = cholesky_solve(forward.factor, dz)  # (b, n, c)
    d_degree = -(xp.sum(adjoint * (z - fixed.labels), axis=-1) + xp.sum(z * (adjoint - dz), axis=-1)) / (2 * degree)
    scale = 1.0 / xp.sqrt(degree)
    # both orders of the outer product at once: the graph is symmetric
    pairs = xp.concat([adjoint[:, :s, :], z[:, :s, :]], axis=2) @ xp.matrix_transpose(xp.concat([z, adjoint], axis=2))
    d_weight = settings.alpha * scale[:, :s, None] * scale[:, None, :] * pairs
    d_weight = d_weight + d_degree[:, :s, None] + d_degree[:, None, :]  # (b, s, n)
    sim, gamma = forward.sim, settings.gamma
    if gamma == 3:
        slope = 3 * sim * sim
    else:  # zero at zero
        positive = sim > 0
        slope = xp.where(
            positive, gamma * xp.where(positive, sim, xp.ones_like(sim)) ** (gamma - 1), xp.zeros_like(sim)
        )
    coefficient = forward.share * slope * d_weight
    return coefficient[:, :, :s] @ anchors + coefficient[:, :, s:] @ fixed.rest


def _solve(points: Points, settings: Settings, callback: Callback | None, tasks: slice) -> Result:
    """Algorithm 1 for a chunk of tasks."""
    anchors, rest = points.support, points.rest
    xp, where = namespace(anchors), device(anchors)
    (b, s, _), m = anchors.shape, rest.shape[1]
    k, sim = min(settings.n_neighbors, s + m - 1), similarities(rest)
    best = sim if k >= m else xp.sort(sim, axis=-1)[..., m - k :]
    fixed = _Fixed(rest, sim, best, points.all_labels, xp.eye(s + m, dtype=rest.dtype, device=where), k)
    optimizer = settings.make_optimizer()
    state: Moments | None = optimizer.init(anchors)
    active = xp.ones((b,), dtype=xp.bool, device=where)
    taken = xp.full((b,), settings.steps, device=where)
    losses: list[Array] = []
    stops = settings.loss_tol is not None or settings.grad_tol is not None
    forward = _forward(anchors, fixed, settings)
    for step in range(settings.steps):
        value, d_anchors, d_rest = settings.loss_at(forward.z[:, :s, :], forward.z[:, s:, :], fixed.labels[:, :s, :])
        losses.append(value if not losses else xp.where(active, value, losses[-1]))
        if callback is not None:
            callback(Step(step, tasks, anchors, value, forward.z))
        if step >= settings.updates and not stops:
            break
        if d_rest is None:
            d_rest = xp.zeros_like(forward.z[:, s:, :])
        gradient = _gradient(anchors, fixed, forward, xp.concat([d_anchors, d_rest], axis=1), settings)
        if settings.renormalize:
            gradient = gradient - xp.sum(gradient * anchors, axis=-1, keepdims=True) * anchors
        if stops:
            loss_tol, grad_tol = settings.tolerances
            done = active & ((value <= loss_tol) | (xp.max(xp.abs(gradient), axis=(1, 2)) <= grad_tol))
            taken = xp.where(done, xp.full_like(taken, step), taken)
            active = active & ~done
            if not bool(xp.any(active)):
                break
        if step >= settings.updates:
            break
        state, move = optimizer.update(state, gradient)
        moved = anchors + move
        if settings.renormalize:
            moved = l2(moved)
        anchors = xp.where(active[:, None, None], moved, anchors) if stops else moved
        forward = _forward(anchors, fixed, settings)
    losses += losses[-1:] * (settings.steps - len(losses))
    curve = xp.stack(losses, axis=1) if losses else xp.zeros((b, 0), dtype=anchors.dtype, device=where)
    return Result(forward.z, anchors, curve, taken, ~active)
