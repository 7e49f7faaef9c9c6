"""EASE + SIAMESE: Zhu and Koniusz, "EASE: unsupervised discriminant subspace learning for transductive few-shot
learning", CVPR 2022.

A linear projection of all points of a task, found without labels, keeps those close that a low-rank model finds
similar and spreads all others. Class centres and a balanced transport plan of all points, in which labelled points
keep their labels, are then found in turn (SIAMESE).

Assumes that every class has equally many queries, and that the classes are about as many as the directions in which
points vary most. Uses no base data.

Differences from the authors' code: square roots of the entries are what it does for Wide ResNets; ``power="none"`` is
its ResNet-12 variant. It has no rule for negative entries, so ``power`` chooses one. Each task's transport stops by
itself, where the code goes on until the slowest task of a batch has converged. All steps work on inner products of
the points, which leaves distances as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from array_api_compat import device

from a2lp.arrays import Array, namespace
from a2lp.checks import number, whole
from a2lp.methods._maths import distances_to_sums, transport
from a2lp.methods._transport import TransportMethod
from a2lp.methods.base import Outcome, Points
from a2lp.preprocess import unit_gram

_TOLERANCE = 1e-3
_DEGREE_OFFSET = 1e-4


@dataclass(frozen=True, kw_only=True)
class EASE(TransportMethod):
    """A projection without labels, then balanced transport; scores are the logarithms of the plan over tau.

    Parameters
    ----------
    n_components : int
        Dimensions that the projection keeps.
    spread : float
        Weight of spreading all points against keeping similar ones together.
    power, lam, rate, steps
        As for ``TransportMethod``.
    """

    n_components: int = whole(40, 1, "The authors use 40.")
    spread: float = number(100.0, "0 or more", "The authors use 100.")
    steps: int = 40

    def _solve(self, points: Points) -> Outcome:
        xp = namespace(points.support)
        where = device(points.support)
        (b, _, d), m, c = points.support.shape, points.rest.shape[1], points.n_classes
        gram = self._unit_gram(points)  # (b, n, n)
        if min(gram.shape[-1], d) > self.n_components:
            gram = unit_gram(_projected(gram, c, self.spread, self.n_components), 32 * float(xp.finfo(gram.dtype).eps))

        labels = xp.matrix_transpose(points.labels)  # (b, c, s)
        counts = xp.sum(labels, axis=-1, keepdims=True)  # (b, c, 1)
        # centres are weighted sums of the points: (b, c, n)
        weights = xp.concat([labels / counts, xp.zeros((b, c, m), dtype=gram.dtype, device=where)], axis=-1)
        plan = self._transport(gram, weights, counts, m)
        for _ in range(self.steps):
            means = xp.concat([labels, plan], axis=-1) / (counts + m / c)
            weights = weights + self.rate * (means - weights)
            plan = self._transport(gram, weights, counts, m)
        return self._outcome(plan, points)

    def _transport(self, gram: Array, weights: Array, counts: Array, m: int) -> Array:
        """Which share of each of the last m points goes to each class (b, c, m), beside the support."""
        energies = self.lam * distances_to_sums(gram, weights)[:, :, -m:]
        fixed = counts[:, :, 0]
        return transport(energies, fixed + m / fixed.shape[-1], _TOLERANCE, fixed)


def _projected(gram: Array, rank: int, spread: float, n_components: int) -> Array:
    """Inner products of the projected points (b, n, n), given those of unit points."""
    xp = namespace(gram)
    n = gram.shape[-1]
    other = 1.0 - xp.eye(n, dtype=gram.dtype, device=device(gram))  # everyone else
    squares, left = xp.linalg.eigh(gram)  # ascending
    # the points are rows of left * roots, up to a rotation; directions of length zero are none
    some = squares > n * float(xp.finfo(gram.dtype).eps) * squares[:, -1:]
    roots = xp.sqrt(xp.where(some, squares, xp.zeros_like(squares)))
    main = (left * xp.astype(some, gram.dtype)[:, None, :])[:, :, -rank:]
    similar = _normalised(xp.abs(main @ xp.matrix_transpose(main)) * other)
    points = left * roots[:, None, :]
    objective = xp.matrix_transpose(points) @ (spread * _normalised(other) - similar) @ points
    _, directions = xp.linalg.eigh(objective)
    kept = points @ directions[:, :, :n_components]
    return kept @ xp.matrix_transpose(kept)


def _normalised(weights: Array) -> Array:
    xp = namespace(weights)
    scale = 1.0 / xp.sqrt(xp.sum(weights, axis=-1) + _DEGREE_OFFSET)
    return scale[..., :, None] * weights * scale[..., None, :]
