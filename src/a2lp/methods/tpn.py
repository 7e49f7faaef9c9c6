"""TPN with a fixed width: Liu, Lee, Park, Kim, Yang, Hwang and Yang, "Learning to propagate labels: transductive
propagation network for few-shot learning", ICLR 2019.

Labels are propagated over a task's nearest-neighbour graph with Gaussian weights. No class marginal, no base data.

The authors learn a width for every point, together with the network; here all points have one width (``tpn_learned``
has learned ones). The rest is as in their code: a point is among its own 20 neighbours, an edge is kept if either end
chose it, alpha is 0.99, and the probabilities are the softmax of the propagated labels. They also add 2.2e-16 to every
entry of the matrix before inversion, and their exponent is the mean over dimensions; ours is |x - y|^2 / (2 sigma^2).

``sigma`` was chosen from 0.05 to 1 on CUB's validation classes, over one and five shots, balanced and Dirichlet tasks:
0.3 is best, 0.28 to 0.32 are within half a point, and 0.2 and 0.4 lose five and ten points.
"""

from __future__ import annotations

from dataclasses import dataclass

from a2lp.arrays import device, kth_largest, namespace
from a2lp.checks import number, whole
from a2lp.engines.contract import NO_SOLUTION
from a2lp.graph import normalise
from a2lp.methods._maths import gram_distances, solve
from a2lp.methods.base import Method, Outcome, Points, scored


@dataclass(frozen=True, kw_only=True)
class TPN(Method):
    """Label propagation with Gaussian weights; probabilities are the softmax of F.

    Parameters
    ----------
    sigma : float
        Width of the Gaussian, in units of the preprocessed vectors.
    n_neighbors : int
        Neighbours that each point chooses, itself among them.
    alpha : float
        How far labels propagate, from 0 (nowhere) to below 1.
    """

    sigma: float = number(0.3, "positive", "0.3 suits unit vectors.")
    n_neighbors: int = whole(20, 1, "The authors use 20.")
    alpha: float = number(0.99, "at least 0 and below 1", f"{NO_SOLUTION} the authors use 0.99.")

    def _solve(self, points: Points) -> Outcome:
        vectors = points.vectors  # (b, n, d)
        xp = namespace(vectors)
        s, q = points.codes.shape[1], points.n_query
        distances = gram_distances(vectors @ xp.matrix_transpose(vectors))  # (b, n, n)
        eye = xp.eye(vectors.shape[1], dtype=vectors.dtype, device=device(vectors))
        weights = xp.exp(distances / (-2 * self.sigma**2))
        chosen = weights >= kth_largest(weights, min(self.n_neighbors, vectors.shape[1]))
        weights = xp.where(chosen | xp.matrix_transpose(chosen), weights, xp.zeros_like(weights))
        # a point is its own neighbour, so no degree is below 1
        system = eye - self.alpha * normalise(weights, 0.0)
        scores = solve(system, points.all_labels)[:, s : s + q, :]
        reached = xp.max(scores, axis=-1) > 0
        nearest = points.codes_at(xp.argmin(distances[:, s : s + q, :s], axis=-1))
        codes = xp.where(reached, xp.argmax(scores, axis=-1), nearest)
        return scored(scores / self.tau, codes=codes, reached=reached)
