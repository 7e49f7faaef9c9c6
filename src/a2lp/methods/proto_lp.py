"""protoLP: Zhu and Koniusz, "Transductive few-shot learning with prototype-based label propagation by iterative graph
refinement", CVPR 2023.

Class centres are the anchors of a graph whose edges are a balanced transport plan from points to centres. Labels
propagated over that graph and the plan itself together say which points a centre is made of, in turn with the plan.

Assumes that every class has equally many queries. Uses no base data.

This is the "full" script of the authors (regulariser Z'Z - Z'Z D^-1 Z'Z, weight 0.05, mixture 0.7, 50 steps), with the
square roots of the entries that it has for Wide ResNets; ``power="none"`` is its ResNet-12 variant. Differences: it has
no rule for negative entries, so ``power`` chooses one. Each task's transport stops by itself, where the code goes on
until the slowest task of a batch has converged. When propagated labels are balanced, the support has its own labels
from the first round on, and not from the second. All steps work on inner products of the points.
"""

from __future__ import annotations

from dataclasses import dataclass

from array_api_compat import device

from a2lp.arrays import Array, namespace
from a2lp.checks import number, whole
from a2lp.methods._maths import centred_unit_gram, distances_to_sums, sinkhorn, transport
from a2lp.methods._transport import TransportMethod
from a2lp.methods.base import Outcome, Points

_PLAN_TOLERANCE, _PROPAGATION_TOLERANCE = 1e-3, 1e-2
_LEAST_SHARE = 1e-26  # of a propagated label: zero could not be scaled


@dataclass(frozen=True, kw_only=True)
class ProtoLP(TransportMethod):
    """Propagation over a graph of points and centres; scores are the logarithms of the last plan over tau.

    Parameters
    ----------
    n_components : int
        Principal directions of a task that are kept.
    gamma : float
        Weight of the graph against the support's labels.
    mixture : float
        Weight of propagated labels against the plan, from 0 to 1.
    power, lam, rate, steps
        As for ``TransportMethod``.
    """

    n_components: int = whole(40, 1, "The authors use 40.")
    gamma: float = number(0.05, "0 or more", "The authors use 0.05.")
    mixture: float = number(0.7, "from 0 to 1", "The authors use 0.7.")
    steps: int = 50

    def _solve(self, points: Points) -> Outcome:
        xp = namespace(points.support)
        where = device(points.support)
        (b, _, d), m, c = points.support.shape, points.rest.shape[1], points.n_classes
        gram = self._unit_gram(points)  # (b, n, n)
        n = gram.shape[-1]
        if min(n, d) > self.n_components:
            gram = _principal(gram, self.n_components)
        gram = centred_unit_gram(gram, (n,))

        labels = xp.matrix_transpose(points.labels)  # (b, c, s)
        # centres are weighted sums of the points: (b, c, n); they start as unit vectors
        weights = xp.concat([labels, xp.zeros((b, c, m), dtype=gram.dtype, device=where)], axis=-1)
        squares = xp.sum((weights @ gram) * weights, axis=-1, keepdims=True)
        weights = weights / xp.sqrt(xp.where(squares > 0, squares, xp.ones_like(squares)))
        plan = self._transport(gram, weights, m)
        for _ in range(self.steps):
            shares = self.mixture * self._propagated(labels, plan) + (1 - self.mixture) * plan
            mass = xp.concat([labels, xp.clip(shares, min=0.0, max=1.0)], axis=-1)
            weights = weights + self.rate * (mass / xp.sum(mass, axis=-1, keepdims=True) - weights)
            plan = self._transport(gram, weights, m)
        return self._outcome(plan, points)

    def _transport(self, gram: Array, weights: Array, m: int) -> Array:
        """Which share of each of the last m points goes to each class (b, c, m)."""
        energies = self.lam * distances_to_sums(gram, weights)[:, :, -m:]
        columns = namespace(gram).full(energies.shape[:2], m / energies.shape[1], dtype=gram.dtype, device=device(gram))
        return transport(energies, columns, _PLAN_TOLERANCE)

    def _propagated(self, labels: Array, plan: Array) -> Array:
        """Labels of the queries, propagated over the graph of points and centres and balanced again (b, c, m)."""
        xp = namespace(plan)
        _, c, m = plan.shape
        edges = xp.concat([labels, plan], axis=-1)  # Z' (b, c, n)
        counts = xp.sum(labels, axis=-1)  # (b, c)
        support = counts[:, :, None] * xp.eye(c, dtype=plan.dtype, device=device(plan))  # Z_S' Z_S = Z_S' Y_S
        common = edges @ xp.matrix_transpose(edges)  # Z' Z
        degrees = xp.sum(edges, axis=-1)[:, None, :]
        laplacian = common - common @ (common / degrees)
        # (c, c): which label each centre has
        of_centre = xp.linalg.solve(support + self.gamma * laplacian, support)
        shares = xp.clip(xp.matrix_transpose(of_centre) @ plan, min=_LEAST_SHARE)
        return sinkhorn(shares, counts + m / c, _PROPAGATION_TOLERANCE, fixed=counts)


def _principal(gram: Array, n_components: int) -> Array:
    """Inner products of points in their first principal directions, about the origin."""
    xp = namespace(gram)
    squares, left = xp.linalg.eigh(gram)  # ascending
    left = left[:, :, -n_components:]
    return (left * squares[:, None, -n_components:]) @ xp.matrix_transpose(left)
