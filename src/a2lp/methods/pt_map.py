"""PT-MAP: Hu, Gripon and Pateux, "Leveraging the feature distribution in transfer-based few-shot learning", ICANN 2021.

Square roots of the entries make features more Gaussian, and support and queries are centred separately. Class centres
and an optimal-transport plan with equally many queries per class are then computed in turn, as in k-means. Assumes
that every class has equally many queries; otherwise, each missing query is one error. No base data.

The authors' code has no rule for negative entries, which features after a leaky ReLU have, so ``power`` chooses one (by
default they become zero). Each task's transport stops by itself, while the code continues until the slowest task of a
batch has converged. Inner products of the points give the same distances as the code's QR reduction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from a2lp.arrays import Array
from a2lp.methods._maths import centred_unit_gram
from a2lp.methods._transport import TransportMethod
from a2lp.methods.base import Points


@dataclass(frozen=True, kw_only=True)
class PTMAP(TransportMethod):
    """Class centres by balanced transport; scores are the logarithms of the plan over tau.

    The parameters are those of ``TransportMethod``.
    """

    _tolerance: ClassVar[float] = 1e-6

    def _prepared(self, gram: Array, points: Points) -> Array:
        s, m = points.codes.shape[1], points.rest.shape[1]
        # a single query is its own mean: centred alone, it would be zero
        return centred_unit_gram(gram, (s, m) if m > 1 else (s + m,))
