"""PT-MAP: Hu, Gripon and Pateux, "Leveraging the feature distribution in transfer-based few-shot learning", ICANN 2021.

Roots of the entries make features more Gaussian; support and queries are then centred apart. Class centres and an
optimal-transport plan that gives every class the same number of queries are found in turn, as in k-means.

Assumes that every class has equally many queries; where it has not, a query is labelled wrongly for every one that
is missing. Uses no base data.

Differences from the authors' code: it has no rule for negative entries, which features after a leaky ReLU have, so
``power`` chooses one (by default they count as zero). Each task's transport stops by itself, where the code goes on
until the slowest task of a batch has converged. All steps work on inner products of the points, which gives the
same distances as the code's QR reduction.
"""

from __future__ import annotations

from dataclasses import dataclass

from array_api_compat import device

from a2lp.arrays import Array, namespace
from a2lp.methods._maths import centred_unit_gram, distances_to_sums, transport
from a2lp.methods._transport import TransportMethod
from a2lp.methods.base import Outcome, Points

_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class PTMAP(TransportMethod):
    """Class centres by balanced transport; scores are the logarithms of the plan over tau.

    The parameters are those of ``TransportMethod``.
    """

    def _solve(self, points: Points) -> Outcome:
        xp = namespace(points.support)
        where, dtype = device(points.support), points.support.dtype
        (b, s, _), m, c = points.support.shape, points.rest.shape[1], points.n_classes
        # a single query is its own mean: alone, nothing would be left of it
        groups = (s, m) if m > 1 else (s + m,)
        gram = centred_unit_gram(self._unit_gram(points), groups)  # (b, n, n)

        labels = xp.matrix_transpose(points.labels)  # (b, c, s)
        # centres are weighted sums of the points: (b, c, n)
        weights = xp.concat([labels, xp.zeros((b, c, m), dtype=dtype, device=where)], axis=-1)
        weights = weights / xp.sum(weights, axis=-1, keepdims=True)
        plan = self._transport(gram, weights, s)
        for _ in range(self.steps):
            mass = xp.concat([labels, plan], axis=-1)
            weights = weights + self.rate * (mass / xp.sum(mass, axis=-1, keepdims=True) - weights)
            plan = self._transport(gram, weights, s)
        return self._outcome(plan, points)

    def _transport(self, gram: Array, weights: Array, s: int) -> Array:
        """Which share of each query goes to each class (b, c, m)."""
        energies = self.lam * distances_to_sums(gram, weights)[:, :, s:]
        b, c, m = energies.shape
        columns = namespace(gram).full((b, c), m / c, dtype=gram.dtype, device=device(gram))
        return transport(energies, columns, _TOLERANCE)
