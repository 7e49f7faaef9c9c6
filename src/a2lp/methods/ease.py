"""EASE + SIAMESE: Zhu and Koniusz, "EASE: unsupervised discriminant subspace learning for transductive few-shot
learning", CVPR 2022.

A linear projection of all points of a task, found without labels, keeps points together that a low-rank model finds
similar and spreads all others. Class centres and a balanced transport plan of all points, in which labelled points
keep their labels, are then computed in turn (SIAMESE). Assumes that every class has equally many queries, and about
as many classes as directions of large variance. No base data.

The square roots of the entries are the authors' for Wide ResNets; ``power="none"`` is their ResNet-12 variant. They
have no rule for negative entries, so ``power`` chooses one. Each task's transport stops by itself, while their code
continues until the slowest task of a batch has converged.
"""

from __future__ import annotations

from dataclasses import dataclass

from a2lp.arrays import Array, device, namespace
from a2lp.checks import number, whole
from a2lp.graph import normalise
from a2lp.methods._maths import eigh, transport
from a2lp.methods._transport import TransportMethod
from a2lp.methods.base import Points
from a2lp.preprocess import unit_gram

_DEGREE_OFFSET = 1e-4


@dataclass(frozen=True, kw_only=True)
class EASE(TransportMethod):
    """A projection without labels, then balanced transport; scores are the logarithms of the plan over tau.

    Parameters
    ----------
    n_components : int
        Dimensions of the projection.
    spread : float
        Weight of spreading all points against keeping similar ones together.
    power, lam, rate, steps
        As for ``TransportMethod``.
    """

    n_components: int = whole(40, 1, "The authors use 40.")
    spread: float = number(100.0, "0 or more", "The authors use 100.")
    steps: int = 40

    def _prepared(self, gram: Array, points: Points) -> Array:
        if min(points.vectors.shape[1:]) <= self.n_components:
            return gram
        return unit_gram(_projected(gram, points.n_classes, self.spread, self.n_components), 32)

    def _means(self, labels: Array, plan: Array) -> Array:
        xp = namespace(plan)
        _, c, m = plan.shape
        return xp.concat([labels, plan], axis=-1) / (xp.sum(labels, axis=-1, keepdims=True) + m / c)

    def _transport(self, energies: Array, counts: Array) -> Array:
        _, c, m = energies.shape
        return transport(energies, counts + m / c, self._tolerance, counts)


def _projected(gram: Array, rank: int, spread: float, n_components: int) -> Array:
    """Inner products of the projected points (b, n, n), given those of unit points."""
    xp = namespace(gram)
    n = gram.shape[-1]
    other = 1.0 - xp.eye(n, dtype=gram.dtype, device=device(gram))  # all pairs of different points
    squares, left = eigh(gram)  # ascending
    # the points are rows of left * roots, up to a rotation; directions of length zero are dropped
    some = squares > n * float(xp.finfo(gram.dtype).eps) * squares[:, -1:]
    roots = xp.sqrt(xp.where(some, squares, xp.zeros_like(squares)))
    main = (left * xp.astype(some, gram.dtype)[:, None, :])[:, :, -rank:]
    similar = normalise(xp.abs(main @ xp.matrix_transpose(main)) * other, _DEGREE_OFFSET)
    points = left * roots[:, None, :]
    objective = xp.matrix_transpose(points) @ (spread * normalise(other, _DEGREE_OFFSET) - similar) @ points
    _, directions = eigh(objective)
    kept = points @ directions[:, :, :n_components]
    return kept @ xp.matrix_transpose(kept)
