"""Expectation-maximisation on the graph: class means under soft labels, and propagated soft labels, in turn.

Everything is computed from the (n, n) inner products of a task's points: a class mean is a weighted sum of points, so
its distances follow from inner products and weights.

By default, entries are taken to the power 5/8, and how unequal the classes are is inferred: there is a run for each of
some hypotheses about it, from very unequal classes to equal ones, and the soft labels are their mean, weighted by the
evidence for each. ``A2LPEM`` documents the parameters, docs/a2lp_em.md has the equations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from a2lp.arrays import Array, chunks, collect, device, digamma, namespace, one_hot, softmax
from a2lp.cores import map_on_cores
from a2lp.engines.contract import Engine, Loop, Points, batched, fused_cpu
from a2lp.graph import gram_affinity, normalise, tie_slack
from a2lp.loops.em import fused_cuda, shares
from a2lp.loops.em.products import centred, inner_products, ridge_scores, stretched

LEAST = 1e-30  # smallest divisor
SINKHORN_ROUNDS = 10
_TASKS = 16  # per block, so that their matrices stay in a core's cache
_PRIOR = 2.0  # where the classes' shares are not estimated, so that it does not matter


class Settings(NamedTuple):
    """The constants of a run.

    ``A2LPEM`` documents them. ``powered`` and ``centred`` are what is done to vectors first; ``prior`` is None where
    how unequal the classes are is inferred; ``mean_prior`` counts points at the centre that are added to each
    class; ``pull`` is how strongly classes are drawn to their expected masses; ``start_weight`` and
    ``support_weight`` are those of the logarithms of the first soft labels, and of the support's regression.
    """

    powered: bool
    centred: bool
    local_whitening: bool
    n_neighbors: int
    gamma: float
    alpha: float
    temperature: float
    rounds: int
    prior: float | None
    share_weight: float
    mean_prior: float
    pull: float
    start_weight: float
    support_weight: float
    uniform: bool


class Result(NamedTuple):
    """Soft labels of all points (b, c, n), those of the support as given, and class means (b, c, d)."""

    shares: Array
    means: Array


class Rounds(NamedTuple):
    """What the rounds start from.

    gram : array (b, n, n)
        Inner products of the points.
    start : array (b, c, n)
        Soft labels, those of the support as given.
    bias : array (b, c, n)
        Added to the logits.
    concentrations, weights : array (k,), array (b, k)
        Of the prior of the classes' shares, and what each counts.
    """

    gram: Array
    start: Array
    bias: Array
    concentrations: Array
    weights: Array


class Arithmetic(NamedTuple):
    """How an engine computes: a graph of inner products for some classes, and rounds on it."""

    graph: Callable[[Array, int, Settings], Any]
    rounds: Callable[[Any, Rounds, Array, Settings], Array]


def solve(engine: Arithmetic, points: Points, settings: Settings) -> Result:
    """Tasks from their vectors to soft labels; ``engine`` has the arithmetic that depends on where they are."""
    xp = namespace(points.vectors)
    n, s, c = points.vectors.shape[1], points.codes.shape[1], points.n_classes
    gram = inner_products(points.vectors, settings.powered, settings.local_whitening)
    # with fewer points than classes, no uniform marginal exists
    uniform = settings.uniform and n - s >= c
    settings = settings._replace(n_neighbors=min(settings.n_neighbors, n - 1), uniform=uniform)
    if settings.centred and uniform:
        gram = centred(gram, shares.centre(points, 0.0))
    graph = engine.graph(stretched(gram), c, settings)
    nothing, prior = points.memberships, shares.fixed_prior(_PRIOR, gram)
    start = engine.rounds(graph, Rounds(gram, nothing, nothing, *prior), points.codes, settings._replace(rounds=0))
    if settings.rounds == 0:
        return _result(start, points)

    def bias(gram: Array) -> Array:
        added = settings.start_weight * xp.log(start + LEAST)
        return added + settings.support_weight * ridge_scores(gram, points) if settings.support_weight else added

    def run(gram: Array, prior: float, settings: Settings) -> Array:
        given = Rounds(gram, start, bias(gram), *shares.fixed_prior(prior, gram))
        return engine.rounds(graph, given, points.codes, settings)

    if uniform or not settings.centred:
        return _result(run(gram, _PRIOR if settings.prior is None else settings.prior, settings), points)
    common = centred(gram, shares.centre(points, s / (s + c)))
    if settings.prior is not None:
        return _result(run(common, settings.prior, settings), points)
    added, runs, evidence = bias(common), [], []
    for concentration in shares.CONCENTRATIONS:
        equal = math.isinf(concentration)
        if equal and n - s < c:
            continue
        own = centred(gram, shares.centre(points, shares.trust_in_support(concentration, c, s / c)))
        runs.append(run(own, _PRIOR if equal else concentration, settings._replace(uniform=equal)))
        # what the points say is compared where all hypotheses have the same centre
        logits = (added - settings.temperature * _distances(common, runs[-1], settings.mean_prior))[:, :, s:]
        evidence.append(shares.evidence(logits, runs[-1][:, :, s:], concentration))
    weights = softmax(xp.stack(evidence, axis=1))
    found = sum(weights[:, k, None, None] * one for k, one in enumerate(runs))
    return _result(found, points)


def _distances(gram: Array, shares: Array, mean_prior: float) -> Array:
    """Squared distances (b, c, n) of the points from the class means under shares (b, c, n)."""
    xp = namespace(gram)
    weights = shares / (xp.sum(shares, axis=2, keepdims=True) + mean_prior)
    cross = weights @ gram
    squares = xp.linalg.diagonal(gram)[:, None, :]
    return squares - 2 * cross + xp.sum(weights * cross, axis=2, keepdims=True)


def _result(found: Array, points: Points) -> Result:
    return Result(found, (found @ points.vectors) / namespace(found).sum(found, axis=2, keepdims=True))


def _compiled(points: Points, settings: Settings) -> Result:
    tasks = points.vectors.shape[0]
    parts = [points.part(part) for part in chunks(tasks, _TASKS)]
    joined: Result = collect(tasks, map_on_cores(lambda part: solve(COMPILED, part, settings), parts))
    return joined


class Factors(NamedTuple):
    """The factored graphs of some tasks, and memory for their rounds."""

    factors: Any
    inverses: Any
    work: Any


def _compiled_graph(gram: Array, n_classes: int, settings: Settings) -> Factors:
    from a2lp.loops.em import kernel

    (b, n, _), dtype, k = gram.shape, gram.dtype, settings.n_neighbors
    work = kernel.make_workspace(n, n_classes, k, dtype)
    factors, inverses = kernel.make_factors(b, n, k, dtype)
    floats = np.array([settings.gamma, settings.alpha, tie_slack(dtype)], dtype)
    kernel.factor_tasks(np.ascontiguousarray(gram), floats, k, factors, inverses, work)
    return Factors(factors, inverses, work)


def _compiled_rounds(graph: Factors, run: Rounds, codes: Array, settings: Settings) -> Array:
    from a2lp.loops.em import kernel

    dtype = run.gram.dtype
    floats = [settings.temperature, settings.share_weight, settings.mean_prior, settings.pull, LEAST]
    found = np.array(run.start)
    kernel.solve_tasks(
        np.ascontiguousarray(run.gram), graph.factors, graph.inverses, np.asarray(codes, np.int64),
        np.ascontiguousarray(run.bias), run.concentrations, np.ascontiguousarray(run.weights),
        np.array(floats, dtype), settings.rounds, SINKHORN_ROUNDS * settings.uniform, found, graph.work,
    )  # fmt: skip
    return found


def _smoothing(gram: Array, n_classes: int, settings: Settings) -> Array:
    """(I - alpha S)^-1, S the normalised graph of the inner products (b, n, n)."""
    xp = namespace(gram)
    eye = xp.eye(gram.shape[-1], dtype=gram.dtype, device=device(gram))
    graph = normalise(gram_affinity(gram, settings.n_neighbors, settings.gamma))
    return xp.linalg.inv(eye - settings.alpha * graph)


def _cuda_rounds(spread: Array, run: Rounds, codes: Array, settings: Settings) -> Array:
    """The rounds on torch tensors in one CUDA launch."""
    return fused_cuda.run(spread, run, codes, cuda_params(run, codes.shape[1], settings))


def cuda_params(run: Rounds, s: int, settings: Settings) -> Any:
    """The CUDA kernel's parameters for tasks with s labelled points."""
    _, c, n = run.start.shape
    floats = settings.temperature, settings.share_weight, settings.mean_prior, settings.pull, LEAST
    sizes = n, s, c, run.weights.shape[1], settings.rounds, SINKHORN_ROUNDS * settings.uniform
    return fused_cuda.Params(*floats, *sizes)


def _batched_rounds(spread: Array, run: Rounds, codes: Array, settings: Settings) -> Array:
    """The rounds on arrays of any library."""
    gram, xp = run.gram, namespace(run.gram)
    (b, n, _), s, c = gram.shape, codes.shape[1], run.start.shape[1]
    given = xp.matrix_transpose(one_hot(codes, c, gram.dtype))  # (b, c, s)

    def smoothed(shares: Array) -> Array:
        """Shares of the points without a label (b, c, n - s), propagated."""
        found = (shares @ spread)[:, :, s:]
        found = xp.clip(found, min=0.0) + LEAST  # a point that no label reaches has equal shares
        found = found / xp.sum(found, axis=1, keepdims=True)
        for _ in range(SINKHORN_ROUNDS * settings.uniform):
            found = found * ((n - s) / c / xp.clip(xp.sum(found, axis=2, keepdims=True), min=LEAST))
            found = found / xp.clip(xp.sum(found, axis=1, keepdims=True), min=LEAST)
        return found

    if settings.rounds == 0:
        nothing = xp.zeros((b, c, n - s), dtype=gram.dtype, device=device(gram))
        return xp.concat([given, smoothed(xp.concat([given, nothing], axis=2))], axis=2)
    unknown = run.start[:, :, s:]
    for _ in range(settings.rounds):
        shares = xp.concat([given, unknown], axis=2)
        logits = (run.bias - settings.temperature * _distances(gram, shares, settings.mean_prior))[:, :, s:]
        if not settings.uniform:
            logits = logits + _log_shares(xp.sum(unknown, axis=2, keepdims=True), run, settings)
        unknown = smoothed(xp.concat([given, softmax(logits, axis=1)], axis=2))
    return xp.concat([given, unknown], axis=2)


def _log_shares(mass: Array, run: Rounds, settings: Settings) -> Array:
    """What masses (b, c, 1) add to logits: expected logarithms of shares, and the pull to expected masses."""
    xp, c = namespace(mass), mass.shape[1]
    rest = xp.sum(mass, axis=1, keepdims=True)
    prior, weights = run.concentrations[None, None, :], run.weights[:, None, :]
    logarithm = xp.sum(weights * digamma(mass + prior), axis=2, keepdims=True)
    expected = xp.sum(weights * (mass + prior) * rest / (rest + c * prior), axis=2, keepdims=True)
    return settings.share_weight * logarithm + settings.pull * xp.log((expected + 1) / (mass + 1))


_CUDA_REASON = "tensors on a GPU: all rounds of all tasks in one launch"
COMPILED = Arithmetic(_compiled_graph, _compiled_rounds)
BATCHED = Arithmetic(_smoothing, _batched_rounds)
CUDA = Arithmetic(_smoothing, _cuda_rounds)
_CUDA = Engine("fused_cuda", partial(solve, CUDA), _CUDA_REASON, fused_cuda.refusal)
LOOP = Loop("em", (fused_cpu(_compiled, "rounds"), _CUDA, batched(partial(solve, BATCHED))))
