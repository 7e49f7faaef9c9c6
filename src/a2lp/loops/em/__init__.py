"""Expectation-maximisation on the graph: class means under soft labels, and propagated soft labels, in turn.

Everything is computed from the (n, n) inner products of a task's points: a class mean is a weighted sum of points, so
its distances follow from inner products and weights.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from a2lp.arrays import Array, chunks, collect, device, digamma, namespace, one_hot, softmax
from a2lp.cores import map_on_cores
from a2lp.engines.contract import Engine, Loop, Points, batched, fused_cpu
from a2lp.graph import gram_affinity, normalise, tie_slack
from a2lp.loops.em import fused_cuda
from a2lp.loops.em.products import inner_products

LEAST = 1e-30  # smallest divisor
SINKHORN_ROUNDS = 10
UNEQUAL = 0.16  # variance of the classes' masses, relative to their squared mean, from which on they count as unequal
_TASKS = 16  # per block, so that their matrices stay in a core's cache


class Settings(NamedTuple):
    """The constants of a run.

    ``A2LPEM`` documents them. ``rooted`` is whether vectors are rooted and centred first; ``share_weights`` are the
    weights of the logarithms of the classes' shares where the shares are equal, and where they are unequal.
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


def _solve(rounds: Any, points: Points, settings: Settings) -> Result:
    """Everything around the rounds, which ``rounds(gram, codes, n_classes, settings)`` runs."""
    xp = namespace(points.vectors)
    n, s = points.vectors.shape[1], points.codes.shape[1]
    gram = inner_products(points, settings.rooted, settings.uniform, settings.local_whitening)
    # with fewer points than classes, no uniform marginal exists
    uniform = settings.uniform and n - s >= points.n_classes
    settings = settings._replace(n_neighbors=min(settings.n_neighbors, n - 1), uniform=uniform)
    shares = rounds(gram, points.codes, points.n_classes, settings)
    return Result(shares, (shares @ points.vectors) / xp.sum(shares, axis=2, keepdims=True))


def _compiled(points: Points, settings: Settings) -> Result:
    tasks = points.vectors.shape[0]
    parts = [points.part(part) for part in chunks(tasks, _TASKS)]
    joined: Result = collect(tasks, map_on_cores(lambda part: _solve(compiled_rounds, part, settings), parts))
    return joined


def compiled_rounds(gram: Array, codes: Array, n_classes: int, settings: Settings) -> Array:
    """The rounds on NumPy arrays as compiled code."""
    from a2lp.loops.em import kernel

    (b, n, _), dtype, k = gram.shape, gram.dtype, settings.n_neighbors
    floats = [settings.gamma, settings.alpha, settings.temperature, settings.prior, *settings.share_weights]
    floats += [UNEQUAL, LEAST, tie_slack(dtype)]
    shares = np.empty((b, n_classes, n), dtype)
    kernel.solve_tasks(
        np.ascontiguousarray(gram), np.asarray(codes, np.int64), np.array(floats, dtype), k, settings.rounds,
        SINKHORN_ROUNDS * settings.uniform, shares, kernel.make_workspace(n, n_classes, k, dtype),
    )  # fmt: skip
    return shares


def cuda_rounds(gram: Array, codes: Array, n_classes: int, settings: Settings) -> Array:
    """The rounds on torch tensors in one CUDA launch."""
    params = cuda_params(gram.shape[-1], codes.shape[1], n_classes, settings)
    return fused_cuda.run(gram, smoothing(gram, settings), codes, params)


def cuda_params(n: int, s: int, n_classes: int, settings: Settings) -> Any:
    """The CUDA kernel's parameters for tasks of n points, s of them labelled."""
    floats = settings.temperature, settings.prior, *settings.share_weights, UNEQUAL, LEAST
    return fused_cuda.Params(*floats, n, s, n_classes, settings.rounds, SINKHORN_ROUNDS * settings.uniform)


def smoothing(gram: Array, settings: Settings) -> Array:
    """(I - alpha S)^-1, S the normalised graph of the inner products (b, n, n)."""
    xp = namespace(gram)
    eye = xp.eye(gram.shape[-1], dtype=gram.dtype, device=device(gram))
    graph = normalise(gram_affinity(gram, settings.n_neighbors, settings.gamma))
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
        found = xp.clip(found, min=0.0) + LEAST  # a point that no label reaches has equal shares
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
        unknown = smoothed(xp.concat([given, softmax(logits, axis=1)], axis=2))
    return xp.concat([given, unknown], axis=2)


def _share_weight(mass: Array, settings: Settings) -> Array:
    """A weight (b, 1, 1) between the two ``share_weights``, by how unequal the classes' masses (b, c, 1) are."""
    xp = namespace(mass)
    mean = xp.clip(xp.mean(mass, axis=1, keepdims=True), min=LEAST)
    unequal = xp.mean((mass / mean - 1) ** 2, axis=1, keepdims=True)
    equal_weight, unequal_weight = settings.share_weights
    return equal_weight + (unequal_weight - equal_weight) * xp.clip(unequal / UNEQUAL, max=1.0)


_CUDA_REASON = "tensors on a GPU: all rounds of all tasks in one launch"
_CUDA = Engine("fused_cuda", partial(_solve, cuda_rounds), _CUDA_REASON, fused_cuda.refusal)
LOOP = Loop("em", (fused_cpu(_compiled, "rounds"), _CUDA, batched(partial(_solve, batched_rounds))))
