"""Expectation-maximisation on the graph: compiled for NumPy arrays and for CUDA, batched products elsewhere.

All of it is a matter of inner products: a class mean is a weighted sum of the task's points, so that its distances
follow from the (n, n) matrix of inner products and from the weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from array_api_compat import device

from a2lp.arrays import Array, is_numpy, namespace, one_hot
from a2lp.engines import _em_cuda
from a2lp.engines._special import digamma
from a2lp.graph import neighbours, normalise, share, tie_slack

LEAST = 1e-30  # of a share or a mass that is divided by
SINKHORN_ROUNDS = 10
UNEQUAL = 0.16  # squared deviation of the classes' masses, relative to their mean, from which on they are unequal


class Settings(NamedTuple):
    """What the loop is told."""

    n_neighbors: int
    gamma: float
    alpha: float  # of the propagation
    temperature: float
    rounds: int
    prior: float  # queries that each class counts beside its own
    share_weights: tuple[float, float]  # of the logarithms of shares: where masses are equal, and where unequal
    uniform: bool  # whether every class has equally many queries


def choose(points: Array, n: int, n_classes: int) -> tuple[str, str]:
    """Which engine ``run`` takes for tasks of n points in arrays like ``points``, and the reason in words."""
    if is_numpy(namespace(points)):
        return "fused_cpu", "NumPy arrays: all rounds of a task in one compiled call"
    refusal = _em_cuda.refusal(points, n, n_classes)
    if refusal is None:
        return "fused_cuda", "torch tensors on a GPU: all rounds of all tasks in one launch"
    return "batched", f"all tasks a round at a time, on any array library; fused_cuda does not run here: {refusal}"


def run(gram: Array, codes: Array, n_classes: int, settings: Settings) -> Array:
    """Shares of the points in the classes (b, c, n), those of the support as given.

    Parameters
    ----------
    gram : array (b, n, n)
        Inner products of unit vectors, support first, float32 or float64.
    codes : array (b, s)
        Classes of the support.
    n_classes : int
    settings : Settings
    """
    n = gram.shape[-1]
    # a uniform marginal of fewer points than classes says nothing
    uniform = settings.uniform and n - codes.shape[1] >= n_classes
    settings = settings._replace(n_neighbors=min(settings.n_neighbors, n - 1), uniform=uniform)
    engine, _ = choose(gram, n, n_classes)
    if engine == "fused_cpu":
        return _compiled(np.ascontiguousarray(gram), np.asarray(codes, np.int64), n_classes, settings)
    if engine == "fused_cuda":
        params = _cuda_params(n, codes.shape[1], n_classes, settings)
        return _em_cuda.run(gram, _smoothing(gram, settings), codes, params)
    return _batched(gram, codes, n_classes, settings)


def _compiled(gram: Array, codes: Array, n_classes: int, settings: Settings) -> Array:
    from a2lp.engines import _em_kernel as kernel

    (b, n, _), dtype = gram.shape, gram.dtype
    floats = np.array(
        [
            settings.gamma,
            settings.alpha,
            settings.temperature,
            settings.prior,
            *settings.share_weights,
            UNEQUAL,
            LEAST,
            tie_slack(dtype),
        ],
        dtype,
    )
    shares = np.empty((b, n_classes, n), dtype)
    work = kernel.make_workspace(n, n_classes, settings.n_neighbors, dtype)
    kernel.solve_tasks(
        gram, codes, floats, settings.n_neighbors, settings.rounds, SINKHORN_ROUNDS * settings.uniform, shares, work
    )
    return shares


def _cuda_params(n: int, s: int, n_classes: int, settings: Settings) -> _em_cuda.Params:
    floats = settings.temperature, settings.prior, *settings.share_weights, UNEQUAL, LEAST
    return _em_cuda.Params(*floats, n, s, n_classes, settings.rounds, SINKHORN_ROUNDS * settings.uniform)


def _smoothing(gram: Array, settings: Settings) -> Array:
    """(I - alpha S)^-1, S the normalised graph of the inner products (b, n, n)."""
    xp = namespace(gram)
    eye = xp.eye(gram.shape[-1], dtype=gram.dtype, device=device(gram))
    sim = xp.where(eye > 0, -1.0, xp.clip(gram, min=0.0))
    chosen = share(neighbours(sim, settings.n_neighbors), gram.dtype)
    graph = normalise(chosen * xp.clip(sim, min=0.0) ** settings.gamma)
    return xp.linalg.inv(eye - settings.alpha * graph)


def _batched(gram: Array, codes: Array, n_classes: int, settings: Settings) -> Array:
    xp = namespace(gram)
    b, n, _ = gram.shape
    s = codes.shape[1]
    where = device(gram)
    smoothing = _smoothing(gram, settings)
    given = xp.matrix_transpose(one_hot(codes, n_classes, gram.dtype))  # (b, c, s)
    squares = xp.linalg.diagonal(gram)[:, None, :]

    def smoothed(shares: Array) -> Array:
        """Shares of the points that are not labelled (b, c, n - s), propagated."""
        found = (shares @ smoothing)[:, :, s:]
        found = xp.clip(found, min=0.0) + LEAST  # a point that nothing reaches has equal shares
        found = found / xp.sum(found, axis=1, keepdims=True)
        for _ in range(SINKHORN_ROUNDS * settings.uniform):
            found = found * ((n - s) / n_classes / xp.clip(xp.sum(found, axis=2, keepdims=True), min=LEAST))
            found = found / xp.clip(xp.sum(found, axis=1, keepdims=True), min=LEAST)
        return found

    unknown = smoothed(xp.concat([given, xp.zeros((b, n_classes, n - s), dtype=gram.dtype, device=where)], axis=2))
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
