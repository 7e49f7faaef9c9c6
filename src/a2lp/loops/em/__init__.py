"""Expectation-maximisation on the graph: class means under soft labels, and soft labels propagated, in turn.

All of it is a matter of inner products: a class mean is a weighted sum of the task's points, so that its distances
follow from the (n, n) matrix of inner products and from the weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from array_api_compat import device

from a2lp.arrays import Array, chunks, collect, namespace, one_hot
from a2lp.cores import map_on_cores
from a2lp.engines.contract import Engine, Loop, Points, batched, fused_cpu
from a2lp.graph import neighbours, normalise, share, tie_slack
from a2lp.kernels.special import digamma
from a2lp.loops.em import fused_cuda
from a2lp.loops.em.products import inner_products

LEAST = 1e-30  # of a share or a mass that is divided by
SINKHORN_ROUNDS = 10
UNEQUAL = 0.16  # squared deviation of the classes' masses, relative to their mean, from which on they are unequal
_TASKS = 16  # at a time on a processor: their matrices stay in its cache


class Settings(NamedTuple):
    """The constants of a run.

    Attributes
    ----------
    rooted : bool
        Whether vectors are rooted and centred first, or taken as they are.
    local_whitening : bool
        Whether the spread of points about their nearest neighbours is made rounder first.
    n_neighbors, gamma, alpha : int, float, float
        The graph's; see ``engines.contract.GraphSettings``.
    temperature : float
        Soft labels are softmax(-temperature * squared distance).
    rounds : int
    prior : float
        Queries that each class counts beside its own.
    share_weights : (float, float)
        Of the logarithms of shares: where masses are equal, and where unequal.
    uniform : bool
        Whether every class has equally many queries.
    """

    rooted: bool
    local_whitening: bool
    n_neighbors: int
    gamma: float
    alpha: float
    temperature: float
    rounds: int
    prior: float
    share_weights: tuple[float, float]
    uniform: bool


class Result(NamedTuple):
    """Soft labels of all points (b, c, n), those of the support as given, and class means (b, c, d)."""

    shares: Array
    means: Array


def _solve(points: Points, settings: Settings, rounds: Array) -> Result:
    """Everything around the rounds, which ``rounds(gram, codes, n_classes, settings)`` runs."""
    xp = namespace(points.vectors)
    n, s = points.vectors.shape[1], points.codes.shape[1]
    gram = inner_products(points, settings.rooted, settings.uniform, settings.local_whitening)
    # a uniform marginal of fewer points than classes says nothing
    uniform = settings.uniform and n - s >= points.n_classes
    settings = settings._replace(n_neighbors=min(settings.n_neighbors, n - 1), uniform=uniform)
    shares = rounds(gram, points.codes, points.n_classes, settings)
    return Result(shares, (shares @ points.vectors) / xp.sum(shares, axis=2, keepdims=True))


def _compiled(points: Points, settings: Settings) -> Result:
    tasks = points.vectors.shape[0]
    parts = [points.part(part) for part in chunks(tasks, _TASKS)]
    joined: Result = collect(tasks, map_on_cores(lambda part: _solve(part, settings, compiled_rounds), parts))
    return joined


def compiled_rounds(gram: Array, codes: Array, n_classes: int, settings: Settings) -> Array:
    """The rounds on NumPy arrays as compiled code."""
    from a2lp.loops.em import kernel

    (b, n, _), dtype, k = gram.shape, gram.dtype, settings.n_neighbors
    floats = [settings.gamma, settings.alpha, settings.temperature, settings.prior, *settings.share_weights]
    floats += [UNEQUAL, LEAST, tie_slack(dtype)]
    shares = np.empty((b, n_classes, n), dtype)
    work = kernel.make_workspace(n, n_classes, k, dtype)
    sinkhorn_rounds = SINKHORN_ROUNDS * settings.uniform
    kernel.solve_tasks(
        np.ascontiguousarray(gram), np.asarray(codes, np.int64), np.array(floats, dtype), k, settings.rounds,
        sinkhorn_rounds, shares, work,
    )  # fmt: skip
    return shares


def _cuda(points: Points, settings: Settings) -> Result:
    return _solve(points, settings, cuda_rounds)


def cuda_rounds(gram: Array, codes: Array, n_classes: int, settings: Settings) -> Array:
    """The rounds on torch tensors as one CUDA launch."""
    params = cuda_params(gram.shape[-1], codes.shape[1], n_classes, settings)
    return fused_cuda.run(gram, smoothing(gram, settings), codes, params)


def cuda_params(n: int, s: int, n_classes: int, settings: Settings) -> fused_cuda.Params:
    """The CUDA kernel's parameters for tasks of n points, s of them labelled."""
    floats = settings.temperature, settings.prior, *settings.share_weights, UNEQUAL, LEAST
    return fused_cuda.Params(*floats, n, s, n_classes, settings.rounds, SINKHORN_ROUNDS * settings.uniform)


def _batched(points: Points, settings: Settings) -> Result:
    return _solve(points, settings, batched_rounds)


def smoothing(gram: Array, settings: Settings) -> Array:
    """(I - alpha S)^-1, S the normalised graph of the inner products (b, n, n)."""
    xp = namespace(gram)
    eye = xp.eye(gram.shape[-1], dtype=gram.dtype, device=device(gram))
    sim = xp.where(eye > 0, -1.0, xp.clip(gram, min=0.0))
    chosen = share(neighbours(sim, settings.n_neighbors), gram.dtype)
    graph = normalise(chosen * xp.clip(sim, min=0.0) ** settings.gamma)
    return xp.linalg.inv(eye - settings.alpha * graph)


def batched_rounds(gram: Array, codes: Array, n_classes: int, settings: Settings) -> Array:
    """The rounds on arrays of any library."""
    xp = namespace(gram)
    b, n, _ = gram.shape
    s = codes.shape[1]
    spread = smoothing(gram, settings)
    given = xp.matrix_transpose(one_hot(codes, n_classes, gram.dtype))  # (b, c, s)
    squares = xp.linalg.diagonal(gram)[:, None, :]

    def smoothed(shares: Array) -> Array:
        """Shares of the points without a label (b, c, n - s), propagated."""
        found = (shares @ spread)[:, :, s:]
        found = xp.clip(found, min=0.0) + LEAST  # a point that nothing reaches has equal shares
        found = found / xp.sum(found, axis=1, keepdims=True)
        for _ in range(SINKHORN_ROUNDS * settings.uniform):
            found = found * ((n - s) / n_classes / xp.clip(xp.sum(found, axis=2, keepdims=True), min=LEAST))
            found = found / xp.clip(xp.sum(found, axis=1, keepdims=True), min=LEAST)
        return found

    nothing = xp.zeros((b, n_classes, n - s), dtype=gram.dtype, device=device(gram))
    unknown = smoothed(xp.concat([given, nothing], axis=2))
    for _ in range(settings.rounds):
        shares = xp.concat([given, unknown], axis=2)
        weights = shares / xp.sum(shares, axis=2, keepdims=True)
        cross = weights @ gram
        distances = squares - 2 * cross + xp.sum(weights * cross, axis=2, keepdims=True)
        logits = -settings.temperature * distances[:, :, s:]
        if not settings.uniform:
            mass = xp.sum(unknown, axis=2, keepdims=True)
            logits = logits + _share_weight(mass, settings) * digamma(settings.prior + mass)
        e = xp.exp(logits - xp.max(logits, axis=1, keepdims=True))
        unknown = smoothed(xp.concat([given, e / xp.sum(e, axis=1, keepdims=True)], axis=2))
    return xp.concat([given, unknown], axis=2)


def _share_weight(mass: Array, settings: Settings) -> Array:
    """Between the two, by how unequal the classes' masses (b, c, 1) are: (b, 1, 1)."""
    xp = namespace(mass)
    mean = xp.clip(xp.mean(mass, axis=1, keepdims=True), min=LEAST)
    unequal = xp.mean((mass / mean - 1) ** 2, axis=1, keepdims=True)
    equal_weight, unequal_weight = settings.share_weights
    return equal_weight + (unequal_weight - equal_weight) * xp.clip(unequal / UNEQUAL, max=1.0)


LOOP = Loop(
    "em",
    (
        fused_cpu(_compiled, "rounds"),
        Engine(
            "fused_cuda",
            _cuda,
            "tensors on a GPU: all rounds of all tasks in one launch",
            lambda points, settings: fused_cuda.refusal(points),
        ),
        batched(_batched),
    ),
)
