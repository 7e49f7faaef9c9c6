"""A2LP-EM, ours: anchors by expectation-maximisation on the graph; docs/a2lp_em.md has the equations and ablations.

A2LP moves the labelled points by gradient until propagation labels them well. Here the anchors are the class means
under the current soft labels, which need no gradient, and the soft labels that they give are propagated on the graph
of A2LP, in turn, for a few rounds. No uniform marginal is assumed by default: each class's share of the queries is
estimated; ``marginal="uniform"`` holds them equal.

Base data are not used by default: vectors are rooted, made unit, centred between the mean of their task and that of its
support, and made unit again. Where statistics of the base classes exist, ``preprocess="whiten"`` is the better choice:
points come whitened, and the task's own spread about nearest neighbours is made rounder, too. With any other
preprocessing points are taken as they are. All parameters were chosen on validation classes of CUB, CIFAR-FS and
miniImageNet, one setting for all shots and samplers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import device

from a2lp.arrays import Array, chunks, collect, is_numpy, kth_largest, namespace, one_hot
from a2lp.cores import map_on_cores
from a2lp.engines import em
from a2lp.methods._maths import rooted, unit_gram
from a2lp.methods.base import (
    Method,
    Outcome,
    Points,
    direct_outcome,
    require_flag,
    require_name,
    require_number,
    require_whole,
)

_ESTIMATED, _WHITENED = (50.0, 0.6), (50.0, 0.8)  # temperature and alpha
_UNIFORM = (20.0, 0.4)  # equal masses keep classes from merging: a softer assignment and less of the graph do
_REACH = 4.0  # the weight of the shares lies between -4, where they look equal, and 4
# of the squares of a task's entries. After a (leaky) ReLU the negative ones are a small rest, a tenth or so, and roots
# would make much of them; features that are signed for good have half or more.
_MOSTLY_POSITIVE = 2 / 3
_LOCAL_NEIGHBOURS = 12
_LOCAL_RIDGE = 6.0  # mean eigenvalues that are added to each
_TASKS = 16  # at a time on a processor: their matrices stay in its cache


@dataclass(frozen=True, kw_only=True)
class A2LPEM(Method):
    """Anchors by expectation-maximisation; probabilities are the final soft labels.

    Parameters
    ----------
    marginal : {"estimated", "uniform"}
        Whether the classes' shares among the queries are estimated or equal.
    n_neighbors, gamma : int, float
        The graph's, as for ``lp``; a task of fewer points has a neighbour less than points.
    alpha : float, optional
        How far soft labels travel on the graph; by default 0.6, 0.8 where points are whitened, and 0.4 with a uniform
        marginal.
    temperature : float, optional
        Soft labels are softmax(-temperature * squared distance from the anchors); by default 50, and 20 with a
        uniform marginal.
    rounds : int
        Of new anchors and new soft labels; 0 is label propagation.
    prior : float
        Queries that each class is given beside its own where its share is estimated.
    share_weight : float, optional
        What logarithms of estimated shares are multiplied by. By default 1 where points are whitened; elsewhere it
        follows the task, from -4 where the shares look equal, which holds them so, to 4 where they do not.
    local_whitening : bool, optional
        Whether the spread of points about their nearest neighbours is made rounder first; by default with
        ``preprocess="whiten"`` only, since it brings nothing to others.
    """

    preprocess: str = "none"
    marginal: str = "estimated"
    n_neighbors: int = 20
    gamma: float = 3
    alpha: float | None = None
    temperature: float | None = None
    rounds: int = 10
    prior: float = 2.0
    share_weight: float | None = None
    local_whitening: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_name("marginal", self.marginal, ("estimated", "uniform"))
        require_whole("n_neighbors", self.n_neighbors, 1, "20 is the usual number.")
        require_number("gamma", self.gamma, "positive", lambda v: v > 0, "3 is the usual power.")
        require_whole("rounds", self.rounds, 0, "0 is label propagation; 10 are enough.")
        require_number("prior", self.prior, "positive", lambda v: v > 0, "2 is a weak pull towards equal shares.")
        remedy = "At 1 the propagation has no unique solution; None takes what was chosen on validation classes."
        if self.alpha is not None:
            require_number("alpha", self.alpha, "at least 0 and below 1", lambda v: 0 <= v < 1, remedy)
        remedy = "None takes what was chosen on validation classes."
        if self.temperature is not None:
            require_number("temperature", self.temperature, "positive", lambda v: v > 0, remedy)
        if self.share_weight is not None:
            require_number("share_weight", self.share_weight, "finite", math.isfinite, remedy)
        if self.local_whitening is not None:
            require_flag("local_whitening", self.local_whitening, "None is True with preprocess='whiten'.")

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        xp = namespace(points.support)
        tasks = points.support.shape[0]
        if is_numpy(xp):
            parts = [_tasks(points, part) for part in chunks(tasks, _TASKS)]
            found = collect(tasks, map_on_cores(self._run, parts))
        else:
            found = self._run(points)
        n = points.support.shape[1] + points.rest.shape[1]
        return found, em.choose(points.support, n, points.n_classes)

    def _run(self, points: Points) -> Outcome:
        xp = namespace(points.support)
        x = points.vectors
        shares = em.run(self._gram(x, points), points.codes, points.n_classes, self._settings())  # (b, c, n)
        s = points.support.shape[1]
        queries = xp.matrix_transpose(shares[:, :, s : s + points.n_query])
        anchors = (shares @ x) / xp.sum(shares, axis=2, keepdims=True)
        return direct_outcome(xp.log(xp.clip(queries, min=em.LEAST)) / self.tau, anchors=anchors)

    def _gram(self, x: Array, points: Points) -> Array:
        """Inner products of unit vectors (b, n, n)."""
        xp = namespace(x)
        if self.preprocess == "none":
            x = _rooted(x)
            weights = _all_alike(x) if self.uniform else _centre(x, points.codes, points.n_classes)
            gram = _centred(unit_gram(x @ xp.matrix_transpose(x)), weights)
        else:
            gram = x @ xp.matrix_transpose(x)
        return _locally_whitened(gram) if self._local else gram

    @property
    def _local(self) -> bool:
        return self.preprocess == "whiten" if self.local_whitening is None else self.local_whitening

    def _settings(self) -> em.Settings:
        whitened = self.preprocess == "whiten" or self._local
        temperature, alpha = _UNIFORM if self.uniform else _WHITENED if whitened else _ESTIMATED
        weight = 1.0 if whitened and self.share_weight is None else self.share_weight
        return em.Settings(
            n_neighbors=int(self.n_neighbors),
            gamma=float(self.gamma),
            alpha=alpha if self.alpha is None else float(self.alpha),
            temperature=temperature if self.temperature is None else float(self.temperature),
            rounds=int(self.rounds),
            prior=float(self.prior),
            share_weights=(-_REACH, _REACH) if weight is None else (float(weight), float(weight)),
            uniform=self.uniform,
        )


def _tasks(points: Points, part: slice) -> Points:
    return points._replace(vectors=points.vectors[part], codes=points.codes[part])


def _all_alike(x: Array) -> Array:
    """Weights of the points (b, n) in their mean."""
    xp = namespace(x)
    return xp.full(x.shape[:2], 1.0 / x.shape[1], dtype=x.dtype, device=device(x))


def _centre(x: Array, codes: Array, n_classes: int) -> Array:
    """Weights of the points (b, n) in what they are centred on.

    The mean of all lies near the classes that have most queries, which brings them, of all, close to zero. The mean of
    the support's class means has every class alike, but is of few points. So: between them, nearer to the second the
    more shots there are.
    """
    xp = namespace(x)
    (b, s), n = codes.shape, x.shape[1]
    labels = one_hot(codes, n_classes, x.dtype)  # (b, s, c)
    shots = xp.clip(xp.sum(labels, axis=1, keepdims=True), min=1.0)
    supported = xp.sum(labels / shots, axis=2) / n_classes  # (b, s)
    rest = xp.zeros((b, n - s), dtype=x.dtype, device=device(x))
    trust = s / (s + n_classes)
    return trust * xp.concat([supported, rest], axis=1) + (1 - trust) * _all_alike(x)


def _centred(gram: Array, weights: Array) -> Array:
    """Inner products (b, n, n) of points less their sum under weights (b, n), made unit."""
    xp = namespace(gram)
    inner = gram @ weights[:, :, None]  # (b, n, 1)
    square = xp.sum(weights[:, :, None] * inner, axis=1, keepdims=True)
    gram = gram - inner - xp.matrix_transpose(inner) + square
    # what centring leaves of points that are all equal is rounding, not a direction
    return unit_gram(gram, 32 * float(xp.finfo(gram.dtype).eps))


def _locally_whitened(gram: Array) -> Array:
    """Inner products (b, n, n) after the spread of points about their nearest neighbours was made rounder.

    With E the points X less the means of their neighbours and r the ridge, points become X (E'E + r I)^(-1/2), up to
    a factor, made unit. By the Woodbury identity this takes n by n matrices alone.
    """
    xp = namespace(gram)
    n, eps = gram.shape[-1], float(xp.finfo(gram.dtype).eps)
    neighbours, least_ridge, least_square = min(_LOCAL_NEIGHBOURS, n - 1), 4 * (n + 16) * eps, 32 * eps
    if is_numpy(xp):
        return _compiled_whitening(gram, neighbours, [_LOCAL_RIDGE / n, least_ridge, least_square])
    eye = xp.eye(n, dtype=gram.dtype, device=device(gram))
    others = gram - 4.0 * eye  # a point is no neighbour of its own
    near = xp.astype(others >= kth_largest(others, neighbours), gram.dtype)
    averages = near / xp.sum(near, axis=-1, keepdims=True)
    across = gram - averages @ gram  # E X'
    within = across - across @ xp.matrix_transpose(averages)  # E E'
    spread = xp.sum(xp.clip(xp.linalg.diagonal(within), min=0.0), axis=-1)[:, None, None]
    # points that are all equal have no spread but rounding: nothing is divided by that
    ridge = _LOCAL_RIDGE / n * spread + least_ridge
    taken = xp.matrix_transpose(across) @ xp.linalg.solve(within + ridge * eye, across)
    return unit_gram(gram - taken, least_square)


def _compiled_whitening(gram: Array, neighbours: int, constants: list[float]) -> Array:
    """The same in compiled code, in place: NumPy has neither a fast k-th largest nor products with few neighbours."""
    from a2lp.engines import _local_kernel as kernel

    gram = np.ascontiguousarray(gram)
    work = kernel.make_workspace(gram.shape[-1], gram.dtype)
    kernel.whiten_tasks(gram, neighbours, np.array(constants, gram.dtype), work)
    return gram


def _rooted(x: Array) -> Array:
    """Signed square roots; where a task's negative entries are a small rest they count as zero."""
    xp = namespace(x)
    positive = xp.clip(x, min=0.0)
    kept, total = (xp.sum(xp.vecdot(v, v), axis=1) for v in (positive, x))  # (b,)
    rectify = kept >= _MOSTLY_POSITIVE * total
    if bool(xp.all(rectify)):
        return rooted(positive, "clamp")
    return rooted(xp.where(rectify[:, None, None], positive, x), "sign")
