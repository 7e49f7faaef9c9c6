"""BAVARDAGE: Hu, Pateux and Gripon, "Adaptive dimension reduction and variational inference for transductive few-shot
classification" (WACV 2023).

Classes are Gaussians of one round covariance after the base classes' covariance has been divided out, with priors on
their means and shares; variational Bayes updates responsibilities and parameters in turn, from a start by soft
k-means. Base statistics: the mean, and the scatter within classes on the unit sphere. No uniform marginal is assumed
by default (a Dirichlet prior on the shares); ``marginal="uniform"`` is the authors' ``--balanced``: equal shares, held.

The authors rotate the task's vectors into the eigenvectors of the base covariance restricted to the task's span, scale
them (by at most 5), and project them on the differences of the class means in every round. A projection on these
adds the same number to a point's squared distances to all means, so that it changes nothing and we leave it out; the
rest is a matter of inner products, and we iterate on them (n, n) in the place of vectors. Shots that are unequal are
taken off the counts class by class.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from a2lp.arrays import Array, distinct_rows, is_numpy, like, namespace
from a2lp.engines import variational
from a2lp.methods.base import Method, Outcome, Points, direct_outcome, require_name
from a2lp.preprocess import require_base

_BLOCKS = 5  # of a triangular matrix: products with the zeros above its diagonal are left out, 6/10 of all stay


@dataclass(frozen=True, kw_only=True)
class BAVARDAGE(Method):
    """Variational Bayes with the base classes' covariance; probabilities are the responsibilities.

    Parameters
    ----------
    marginal : {"estimated", "uniform"}
        Whether the classes' shares among the queries are learned or held equal.
    """

    needs_base: ClassVar[bool] = True

    preprocess: str = "cl2n"
    marginal: str = "estimated"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_name("marginal", self.marginal, ("estimated", "uniform"))

    @property
    def _multiplies_once(self) -> bool:
        return True

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        xp = namespace(points.support)
        x = points.vectors  # (b, n, d)
        base = require_base("bavardage", self.base, x.shape[-1])
        whitened, places = _whitened(x, like(base.sphere_factor, x, x.dtype))
        uniform = self.marginal == "uniform"
        logs, means = variational.run(x, whitened, places, points.codes, points.n_classes, uniform)
        scores = xp.matrix_transpose(logs)[:, : points.n_query, :] / self.tau
        return direct_outcome(scores, anchors=means), variational.choose(x)


def _whitened(x: Array, factor: Array) -> tuple[Array, Array | None]:
    """Vectors (b, n, d) times a lower triangular matrix (m, d), and which of these is which vector's (b, n).

    Tasks are often drawn from one pool: a vector that many of a batch have is multiplied once.
    """
    xp = namespace(x)
    b, n, d = x.shape
    rows, places = xp.reshape(x, (-1, d)), None
    if is_numpy(xp):
        rows, places = distinct_rows(rows)
        places = None if places is None else places.reshape(b, n)
    edges = [d * i // _BLOCKS for i in range(_BLOCKS + 1)]
    return xp.concat([rows[:, lo:] @ factor[lo:, lo:hi] for lo, hi in itertools.pairwise(edges)], axis=1), places
