"""The paper, line by line: one task, NumPy, float64. All other engines are tested against this one.

Sizes: n points of a task, of which the first s are anchors; c classes; d dimensions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from a2lp.arrays import like, namespace, to_numpy
from a2lp.engines.contract import Callback, Engine, Points, Result, Settings, Step
from a2lp.graph import DEGREE_OFFSET, tie_slack
from a2lp.preprocess import l2

F64 = np.ndarray[Any, np.dtype[np.float64]]


class Graph(NamedTuple):
    """One task's graph, with what the gradient needs."""

    sim: F64  # (n, n)  [v_i . v_j]_+
    mask: F64  # (n, n)  1 where row i keeps column j
    degrees: F64  # (n,)
    system: F64  # (n, n)  I - alpha S


def build_graph(V: F64, settings: Settings) -> Graph:
    """Eq. 1 to 3, and the matrix of eq. 5."""
    n = len(V)
    k = min(settings.n_neighbors, n - 1)
    sim = np.maximum(V @ V.T, 0)  # (n, n)
    np.fill_diagonal(sim, -1)  # i != j in eq. 1
    mask = np.zeros((n, n))
    slack = tie_slack(sim.dtype)
    for i in range(n):
        kth = np.sort(sim[i])[-k]
        low = kth * (1 - slack)
        above = sim[i] > low * (1 + 2 * slack)
        tied = np.flatnonzero(~above & (sim[i] >= low))
        mask[i, above] = 1
        mask[i, tied[: k - above.sum()]] = 1  # ties go to the lower index
    np.fill_diagonal(sim, 0)
    A = mask * sim**settings.gamma  # (n, n)  eq. 1
    W = (A + A.T) / 2
    D = W.sum(axis=1) + DEGREE_OFFSET  # (n,)  eq. 3, of W: the paper's calligraphic W there is a slip
    S = W / np.sqrt(np.outer(D, D))  # (n, n)  eq. 2
    return Graph(sim, mask, D, np.eye(n) - settings.alpha * S)


def anchor_gradient(V: F64, Y: F64, Z: F64, H: F64, graph: Graph, factor: Any, s: int, settings: Settings) -> F64:
    """dL/dV of the s anchors from H = dL/dZ, through eq. 5, 2 and 1; the mask is a constant of the step."""
    D, gamma = graph.degrees, settings.gamma
    adjoint = scipy.linalg.cho_solve(factor, H)  # (n, c)  the system is symmetric
    # alpha S Z = Z - Y and alpha S adjoint = adjoint - H spare two products with S
    dD = -((adjoint * (Z - Y)).sum(axis=1) + (Z * (adjoint - H)).sum(axis=1)) / (2 * D)  # (n,)
    dW = settings.alpha * (adjoint @ Z.T) / np.sqrt(np.outer(D, D)) + dD[:, None]  # (n, n)
    dA = (dW + dW.T) / 2
    slope = np.where(graph.sim > 0, gamma * np.where(graph.sim > 0, graph.sim, 1.0) ** (gamma - 1), 0.0)
    dG = dA * graph.mask * slope  # (n, n)
    gradient: F64 = (dG + dG.T)[:s] @ V  # (s, d)
    return gradient


def solve_task(V: F64, Y: F64, s: int, settings: Settings, callback: Callback | None, index: int) -> Result:
    """Algorithm 1 for one task: V (n, d) has the anchors first, Y (n, c) is that of eq. 4."""
    V = V.copy()
    optimizer = settings.make_optimizer()
    state = optimizer.init(V[:s])
    losses, converged, taken = [], False, settings.steps
    loss_tol, grad_tol = settings.tolerances
    for step in range(settings.steps + 1):
        graph = build_graph(V, settings)
        factor = scipy.linalg.cho_factor(graph.system, lower=True)
        Z = scipy.linalg.cho_solve(factor, Y)  # (n, c)  eq. 5
        if step == settings.steps:
            break
        value, d_anchors, d_rest = settings.loss_at(Z[None, :s], Z[None, s:], Y[None, :s])  # eq. 6, 7
        losses.append(float(value[0]))
        if callback is not None:
            callback(Step(step, slice(index, index + 1), V[None, :s].copy(), np.asarray(value), Z[None]))
        H = np.concatenate([d_anchors[0], np.zeros_like(Z[s:]) if d_rest is None else d_rest[0]])  # (n, c)
        gradient = anchor_gradient(V, Y, Z, H, graph, factor, s, settings)  # (s, d)
        if settings.renormalize:  # the gradient of a cosine has no radial part
            gradient = gradient - (gradient * V[:s]).sum(axis=1, keepdims=True) * V[:s]
        if losses[-1] <= loss_tol or np.abs(gradient).max() <= grad_tol:
            converged, taken = True, step
            break
        if step >= settings.updates:
            break
        state, move = optimizer.update(state, gradient)
        V[:s] += move
        if settings.renormalize:
            V[:s] = l2(V[:s])
    losses += losses[-1:] * (settings.steps - len(losses))
    return Result(Z[None], V[None, :s], np.array([losses]), np.array([taken]), np.array([converged]))


def run(points: Points, settings: Settings, callback: Callback | None = None) -> Result:
    """Solve the tasks one after another, in float64."""
    xp, s = namespace(points.vectors), points.codes.shape[1]
    tasks = zip(*(to_numpy(x).astype(np.float64) for x in (points.vectors, points.all_labels)), strict=True)
    results = [solve_task(V, Y, s, settings, callback, i) for i, (V, Y) in enumerate(tasks)]
    joined = Result(*(np.concatenate(parts) for parts in zip(*results, strict=True)))
    return Result(*(like(x, points.vectors, dtype=xp.float64 if x.dtype == np.float64 else None) for x in joined))


REFERENCE = Engine("reference", run, "it is the paper, line by line", shows_steps=True)
