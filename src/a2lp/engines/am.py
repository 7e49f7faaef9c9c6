"""The adaptive manifold: a graph whose centroids, distances and edges descend on mutual information.

Compiled for NumPy arrays, a plain loop in any other library. Nodes are the support, then all other points, then one
centroid for each class, which alone carries a label.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
from array_api_compat import device

from a2lp.arrays import Array, is_numpy, namespace, one_hot
from a2lp.cores import map_on_cores
from a2lp.engines.tim import Objective
from a2lp.graph import degrees, neighbours, tie_slack
from a2lp.optimizers import Adam

# Squared distances below this many roundings of the lengths are zero: a product cannot tell them from it.
SAME = 8


class Settings(NamedTuple):
    """How a task's labels spread, and on what they are judged; tau multiplies Z in the softmax."""

    n_neighbors: int
    alpha: float
    tau: float
    objective: Objective


class Manifold(NamedTuple):
    """What is learnt, or its gradient: centroids (b, c, d), and (b, n, n) scales of distances and weights of edges."""

    centroids: Array
    scales: Array
    edges: Array


def choose(points: Array, steps: int) -> tuple[str, str]:
    """Which engine ``run`` takes, and the reason in words."""
    if steps > 0 and is_numpy(namespace(points)):
        return "fused_cpu", "NumPy arrays: all steps of a task in one compiled call, a task to a core"
    return "batched", "its gradient has a closed form on any array library"


def run(
    points: Array, codes: Array, centroids: Array, settings: Settings, steps: int, adam: Adam
) -> tuple[Array, Array]:
    """Z of all nodes but the centroids (b, m, c) and the centroids, at the last of ``steps`` rounds.

    The authors' last update comes after the last Z, so it decides nothing, and is left out; no steps at all are one
    round without an update.

    Parameters
    ----------
    points : array (b, m, d)
        The support first; float32 or float64.
    codes : array (b, s)
        Each support vector's class, 0 to c - 1.
    centroids : array (b, c, d)
        Where to start.
    """
    if choose(points, steps)[0] == "fused_cpu":
        return _compiled(points, np.asarray(codes, np.int64), centroids, settings, steps, adam)
    xp = namespace(points)
    labels = one_hot(codes, centroids.shape[1], points.dtype)
    n = points.shape[1] + centroids.shape[1]
    ones = xp.ones((points.shape[0], n, n), dtype=points.dtype, device=device(points))
    # edges start at alpha, as in the authors' code, though their common factor is normalised away
    now = Manifold(centroids, ones, settings.alpha * ones)
    states = [adam.init(part) for part in now]
    for _ in range(steps - 1):
        _, gradient = value_and_gradient(points, labels, now, settings)
        moves = [adam.update(*pair) for pair in zip(states, gradient, strict=True)]
        states = [state for state, _ in moves]
        now = Manifold(*(part + move for part, (_, move) in zip(now, moves, strict=True)))
    z, _ = value_and_gradient(points, labels, now, settings)
    return z, now.centroids


def value_and_gradient(points: Array, labels: Array, now: Manifold, settings: Settings) -> tuple[Array, Manifold]:
    """Z of all nodes but the centroids (b, m, c), and the loss's gradient by all that is learnt."""
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
    near = xp.exp(-far * now.scales)
    near = xp.where(same_node, zero, near)
    chosen = neighbours(xp.where(same_node, zero - 1, near)[:, :m, :], settings.n_neighbors)
    near = xp.concat(
        [xp.where(chosen, near[:, :m, :], zero), xp.zeros_like(near[:, m:, :])], axis=1
    )  # centroids choose nobody
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
    own = xp.concat([xp.zeros_like(z[:, :m, :]), xp.broadcast_to(_eye(c, points), (b, c, c))], axis=1)
    d_degree = (-0.5 / degree) * xp.sum(adjoint * (z - own) + z * (adjoint - d_z), axis=-1, keepdims=True)
    d_weights = alpha * both * (adjoint @ xp.matrix_transpose(z)) + d_degree
    d_mutual = d_weights * now.edges
    d_exponent = -0.5 * (d_mutual + xp.matrix_transpose(d_mutual)) * near  # near is zero where nothing was chosen
    d_far = d_exponent * now.scales
    d_spread = -xp.sum(d_far * far, axis=(1, 2), keepdims=True) / spread
    d_distance = (d_far + d_spread * (distance - mean) / (n * n - 1)) / spread
    pull = (d_distance + xp.matrix_transpose(d_distance))[:, m:, :]  # (b, c, n)
    apart = distance[:, m:, :]
    pull = xp.where(apart > 0, pull / xp.where(apart > 0, apart, xp.ones_like(apart)), zero)
    d_centroids = xp.sum(pull, axis=-1, keepdims=True) * now.centroids - pull @ nodes
    return z[:, :m, :], Manifold(d_centroids, d_exponent * far, d_weights * mutual)


def _distances(nodes: Array) -> Array:
    """|v_i - v_j| (b, n, n); where it cannot be told from zero it is zero, and so has no slope."""
    xp = namespace(nodes)
    length = xp.sum(nodes * nodes, axis=-1)
    lengths = length[:, :, None] + length[:, None, :]
    squares = lengths - 2 * (nodes @ xp.matrix_transpose(nodes))
    differ = (squares > SAME * xp.finfo(nodes.dtype).eps * lengths) & ~xp.eye(
        nodes.shape[1], dtype=xp.bool, device=device(nodes)
    )
    return xp.sqrt(xp.where(differ, squares, xp.zeros_like(squares)))


def _eye(c: int, reference: Array) -> Array:
    return namespace(reference).eye(c, dtype=reference.dtype, device=device(reference))[None, :, :]


def _compiled(
    points: Array, codes: Array, centroids: Array, settings: Settings, steps: int, adam: Adam
) -> tuple[Array, Array]:
    """All rounds of a task in one call, without the GIL; tasks are spread over all cores."""
    from a2lp.engines import _am_kernel as kernel
    from a2lp.engines._information import parameters

    (b, m, d), s, c = points.shape, codes.shape[1], centroids.shape[1]
    kind = points.dtype.type
    floats = parameters(settings.tau, settings.objective, adam, kind)
    rates = adam.rates(steps - 1).astype(kind)
    alpha, same, slack = kind(settings.alpha), kind(SAME * np.finfo(kind).eps), kind(tie_slack(points.dtype))
    z, found = np.empty((b, m, c), kind), np.empty_like(centroids)
    own = threading.local()  # each core's memory, used for task after task

    def solve(i: int) -> None:
        if not hasattr(own, "space"):
            own.space = kernel.make_workspace(s, m, d, c, kind)
        space = own.space
        space.nodes[:m, :d] = points[i]
        space.nodes[m : m + c, :d] = centroids[i]
        space.across[:, :m] = points[i].T
        space.codes[:] = codes[i]
        space.scales[:] = 1
        space.edges[:] = settings.alpha
        for moments in (
            space.scales_mean,
            space.scales_square,
            space.edges_mean,
            space.edges_square,
            space.mean,
            space.square,
        ):
            moments[:] = 0
        kernel.adapt(c, settings.n_neighbors, alpha, same, slack, floats, rates, space)
        z[i] = space.Z[:c, :m].T
        found[i] = space.nodes[m : m + c, :d]

    map_on_cores(solve, range(b))
    return z, found
