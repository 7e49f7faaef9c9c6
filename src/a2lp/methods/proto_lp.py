"""protoLP: Zhu and Koniusz, "Transductive few-shot learning with prototype-based label propagation by iterative graph
refinement", CVPR 2023.

Class centres are the anchors of a graph whose edges are a balanced transport plan from points to centres. Labels
propagated over that graph, mixed with the plan itself, weight the points in the centres, in turn with the plan.
Assumes that every class has equally many queries. No base data.

This is the "full" script of the authors (regulariser Z'Z - Z'Z D^-1 Z'Z, weight 0.05, mixture 0.7, 50 steps), with the
square roots of the entries that it takes for Wide ResNets; ``power="none"`` is its ResNet-12 variant. Differences: it
has no rule for negative entries, so ``power`` chooses one. Each task's transport stops by itself, while the code
continues until the slowest task of a batch has converged. When propagated labels are balanced, the support has its own
labels from the first round on, not from the second.
"""

from __future__ import annotations

from dataclasses import dataclass

from a2lp.arrays import Array, device, namespace
from a2lp.checks import number, whole
from a2lp.methods._maths import centred_unit_gram, eigh, sinkhorn, solve
from a2lp.methods._transport import TransportMethod
from a2lp.methods.base import Points

_PROPAGATION_TOLERANCE = 1e-2
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

    def _prepared(self, gram: Array, points: Points) -> Array:
        _, n, d = points.vectors.shape
        if min(n, d) > self.n_components:  # first principal directions, about the origin
            squares, left = eigh(gram)  # ascending
            left = left[:, :, -self.n_components :]
            gram = (left * squares[:, None, -self.n_components :]) @ namespace(gram).matrix_transpose(left)
        return centred_unit_gram(gram, (n,))

    def _first_centres(self, memberships: Array, gram: Array) -> Array:
        xp = namespace(gram)  # sums of the support, made unit
        squares = xp.sum((memberships @ gram) * memberships, axis=-1, keepdims=True)
        return memberships / xp.sqrt(xp.where(squares > 0, squares, xp.ones_like(squares)))

    def _means(self, labels: Array, plan: Array) -> Array:
        mixed = self.mixture * self._propagated(labels, plan) + (1 - self.mixture) * plan
        return super()._means(labels, namespace(plan).clip(mixed, min=0.0, max=1.0))

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
        # (c, c): the label of each centre
        of_centre = solve(support + self.gamma * laplacian, support)
        shares = xp.clip(xp.matrix_transpose(of_centre) @ plan, min=_LEAST_SHARE)
        return sinkhorn(shares, counts + m / c, _PROPAGATION_TOLERANCE, fixed=counts)
