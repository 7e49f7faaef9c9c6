"""The adaptive manifold: a graph whose centroids, distances and edges are optimised for mutual information.

Nodes are the support, then all other points, then one centroid per class, at first its mean. Only they are labelled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from a2lp.arrays import Array, device, namespace
from a2lp.cores import map_tasks
from a2lp.engines.contract import Callback, Engine, Loop, Points, Step, batched, fused_cpu
from a2lp.graph import degrees, neighbours, tie_slack
from a2lp.loops.am import fused_cuda
from a2lp.loops.am.fused_cuda import SAME
from a2lp.loops.tim import Objective
from a2lp.optimizers import Adam


class Settings(NamedTuple):
    """How labels propagate on the graph, and what is minimised; tau multiplies Z in the softmax.

    The authors' last update, after the last Z, has no effect and is left out; 0 steps are one round without an update.
    """

    n_neighbors: int
    alpha: float
    tau: float
    objective: Objective
    steps: int
    adam: Adam


class Manifold(NamedTuple):
    """The parameters or their gradient: centroids (b, c, d), scales of distances and weights of edges (b, n, n)."""

    centroids: Array
    scales: Array
    edges: Array


def _batched(points: Points, settings: Settings, callback: Callback | None = None) -> tuple[Array, Array]:
    vectors, labels, adam = points.vectors, points.labels, settings.adam
    xp = namespace(vectors)
    b, n = vectors.shape[0], vectors.shape[1] + points.n_classes
    ones = xp.ones((b, n, n), dtype=vectors.dtype, device=device(vectors))
    # edges start at alpha, as in the authors' code, although normalisation removes a common factor
    now = Manifold(points.class_means, ones, settings.alpha * ones)
    states = [adam.init(part) for part in now]
    for step in range(max(settings.steps, 1)):
        z, gradient = value_and_gradient(vectors, labels, now, settings)
        if callback is not None:
            callback(Step(step, slice(0, b), now.centroids, None, z))
        if step >= settings.steps - 1:
            break
        moves = [adam.update(*pair) for pair in zip(states, gradient, strict=True)]
        states = [state for state, _ in moves]
        now = Manifold(*(part + move for part, (_, move) in zip(now, moves, strict=True)))
    return z, now.centroids


def value_and_gradient(points: Array, labels: Array, now: Manifold, settings: Settings) -> tuple[Array, Manifold]:
    """Z of all nodes but the centroids (b, m, c), and the gradient of the loss."""
    xp = namespace(points)
    (b, m, _), c = points.shape, labels.shape[2]
    n, alpha, tau = m + c, settings.alpha, settings.tau
    nodes = xp.concat([points, now.centroids], axis=1)
    same_node = xp.eye(n, dtype=xp.bool, device=device(points))
    zero = xp.zeros((), dtype=points.dtype, device=device(points))

    distance = _distances(nodes)
    mean = xp.mean(distance, axis=(1, 2), keepdims=True)
    spread = xp.sqrt(xp.sum((distance - mean) ** 2, axis=(1, 2), keepdims=True) / (n * n - 1))
    spread = xp.where(spread > 0, spread, xp.ones_like(spread))
    far = distance / spread
    near = xp.where(same_node, zero, xp.exp(-far * now.scales))
    chosen = neighbours(xp.where(same_node, zero - 1, near)[:, :m, :], settings.n_neighbors)
    # centroids choose no neighbours
    near = xp.concat([xp.where(chosen, near[:, :m, :], zero), xp.zeros_like(near[:, m:, :])], axis=1)
    mutual = 0.5 * (near + xp.matrix_transpose(near))
    weights = now.edges * mutual
    degree = degrees(weights)[:, :, None]
    scale = 1.0 / xp.sqrt(degree)
    both = scale * xp.matrix_transpose(scale)
    system = xp.astype(same_node, points.dtype) - alpha * both * weights
    inverse = xp.linalg.inv(system)
    z = inverse[:, :, m:]  # the labels are one-hot on the centroids

    d_z = tau * settings.objective.gradient(tau * z[:, :m, :], labels)
    d_z = xp.concat([d_z, xp.zeros_like(z[:, m:, :])], axis=1)
    adjoint = xp.matrix_transpose(inverse) @ d_z
    eye = xp.broadcast_to(xp.eye(c, dtype=points.dtype, device=device(points)), (b, c, c))
    own = xp.concat([xp.zeros_like(z[:, :m, :]), eye], axis=1)
    d_degree = (-0.5 / degree) * xp.sum(adjoint * (z - own) + z * (adjoint - d_z), axis=-1, keepdims=True)
    d_weights = alpha * both * (adjoint @ xp.matrix_transpose(z)) + d_degree
    d_mutual = d_weights * now.edges
    d_exponent = -0.5 * (d_mutual + xp.matrix_transpose(d_mutual)) * near  # near is zero except for neighbours
    d_far = d_exponent * now.scales
    d_spread = -xp.sum(d_far * far, axis=(1, 2), keepdims=True) / spread
    d_distance = (d_far + d_spread * (distance - mean) / (n * n - 1)) / spread
    pull = (d_distance + xp.matrix_transpose(d_distance))[:, m:, :]  # (b, c, n)
    apart = distance[:, m:, :]
    pull = xp.where(apart > 0, pull / xp.where(apart > 0, apart, xp.ones_like(apart)), zero)
    d_centroids = xp.sum(pull, axis=-1, keepdims=True) * now.centroids - pull @ nodes
    return z[:, :m, :], Manifold(d_centroids, d_exponent * far, d_weights * mutual)


def _distances(nodes: Array) -> Array:
    """|v_i - v_j| (b, n, n); exactly zero, and without a slope, where only rounding is left."""
    xp = namespace(nodes)
    length = xp.sum(nodes * nodes, axis=-1)
    lengths = length[:, :, None] + length[:, None, :]
    squares = lengths - 2 * (nodes @ xp.matrix_transpose(nodes))
    same_node = xp.eye(nodes.shape[1], dtype=xp.bool, device=device(nodes))
    differ = (squares > SAME * xp.finfo(nodes.dtype).eps * lengths) & ~same_node
    return xp.sqrt(xp.where(differ, squares, xp.zeros_like(squares)))


def _compiled(points: Points, settings: Settings) -> tuple[Array, Array]:
    from a2lp.loops.am import kernel

    vectors, codes, centroids = points.vectors, np.asarray(points.codes, np.int64), points.class_means
    (b, m, d), s, c = vectors.shape, codes.shape[1], points.n_classes
    kind = vectors.dtype.type
    floats = np.array([settings.tau, *settings.objective, *settings.adam.constants], kind)
    rates = settings.adam.rates(max(settings.steps - 1, 0)).astype(kind)
    alpha, same, slack = kind(settings.alpha), kind(SAME * np.finfo(kind).eps), kind(tie_slack(vectors.dtype))
    z, found = np.empty((b, m, c), kind), np.empty_like(centroids)

    def solve(i: int, work: dict[str, Any]) -> None:
        work["nodes"][:m, :d] = vectors[i]
        work["nodes"][m : m + c, :d] = centroids[i]
        work["across"][:, :m] = vectors[i].T
        work["codes"][:] = codes[i]
        work["scales"][:] = 1
        work["edges"][:] = settings.alpha
        for name in ("scales_mean", "scales_square", "edges_mean", "edges_square", "mean", "square"):
            work[name][:] = 0
        kernel.adapt(c, settings.n_neighbors, alpha, same, slack, floats, rates, tuple(work.values()))
        z[i] = work["Z"][:c, :m].T
        found[i] = work["nodes"][m : m + c, :d]

    map_tasks(solve, b, lambda: kernel.make_workspace(s, m, d, c, kind))
    return z, found


_CUDA_REASON = "tensors on a GPU: all rounds of all tasks in one launch"
_CUDA = Engine("fused_cuda", fused_cuda.run, _CUDA_REASON, fused_cuda.refusal)
# the result is Z of all points (b, m, c) and the centroids (b, c, d) of the last round
LOOP = Loop("am", (fused_cpu(_compiled), _CUDA, batched(_batched, shows_steps=True)))
