"""EM-Dirichlet: Martin, Huang, Shakeri, Pesquet and Ben Ayed, "Transductive zero-shot and few-shot CLIP", CVPR 2024.

A point is its vector of text probabilities, softmax(30 cosines), and a class is a Dirichlet distribution of such
vectors, fitted by majorise-minimise steps. A penalty, lambda times the entropy of the classes' shares, empties classes:
few of the named ones should occur. ``hard=True`` assigns each point to one class in every round. Without shots,
clusters are matched to names at the end, one to one, by the mean probabilities of their points.

lambda is floor(c / k_eff) times the number of points. The authors set k_eff = 5 without shots; with shots they use the
true number of classes among the queries, which nobody knows who has no labels. Here it is a parameter, 5 by default.

The fit stops for each task by itself, while the authors' stops when all tasks of a batch together hardly change, and it
is computed in float64: the curvature of small parameters cancels in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.special
from scipy.optimize import linear_sum_assignment

from a2lp.arrays import Array, digamma, is_numpy, like, log_gamma, namespace, one_hot, softmax, to_numpy
from a2lp.checks import flag, number, whole
from a2lp.methods._maths import log_scores
from a2lp.methods._names import text_logits
from a2lp.methods.base import Method, Outcome, Points, scored

_LEAST = 1e-15  # added to probabilities before their logarithm
_EMPTY = -10.0  # mean logarithm of a class without points
_SMALL, _CURVATURE_AT_ZERO = 1e-11, math.pi**2 / 6
_CHECK_EVERY, _TOLERANCE = 50, 1e-11


@dataclass(frozen=True, kw_only=True)
class EMDirichlet(Method):
    """A mixture of Dirichlet distributions of text probabilities; probabilities are the final soft labels.

    Parameters
    ----------
    hard : bool
        Whether each round assigns every point to one class.
    k_eff : int
        Number of classes that are expected to occur; see above.
    scale : float
        Of the cosines in the softmax, the authors' temperature.
    rounds : int, optional
        Rounds of new distributions and new labels; by default 20, or 10 where ``hard``.
    fit_steps : int
        Most majorise-minimise steps in a round.
    matching : bool
        Whether clusters are matched to names at the end, without shots.
    """

    uses_names: ClassVar[str] = "required"

    hard: bool = flag(False, "The authors have both.")
    k_eff: int = whole(5, 1, "The authors use 5 without shots.")
    scale: float = number(30.0, "positive", "The authors use 30.")
    rounds: int | None = whole(None, 1, "The authors use 20, and 10 for hard assignments.")
    fit_steps: int = whole(1000, 1, "The authors use 1000.")
    matching: bool = flag(True, "The authors match.")

    def _solve(self, points: Points) -> Outcome:
        xp, s, c = namespace(points.vectors), points.codes.shape[1], points.n_classes
        probabilities = xp.exp(text_logits(points, self.scale))
        logs = xp.astype(xp.log(probabilities + _LEAST), xp.float64)  # (b, n, c)  coordinates are classes, too
        labels = xp.astype(points.labels, xp.float64)
        shares = xp.astype(probabilities, xp.float64)[:, s:, :]
        alphas = xp.ones_like(xp.matrix_transpose(shares) @ shares)  # (b, c, c)
        rounds = (10 if self.hard else 20) if self.rounds is None else self.rounds
        for _ in range(rounds):
            members = xp.matrix_transpose(xp.concat([labels, shares], axis=1))  # (b, c, n)
            sizes = xp.sum(members, axis=2, keepdims=True)
            occurs = sizes > _LEAST
            means = xp.where(occurs, members @ logs / xp.clip(sizes, min=_LEAST), xp.full_like(alphas, _EMPTY))
            alphas = xp.where(occurs, _fit(alphas, means, self.fit_steps), alphas)
            entropy = 1.0 + xp.log(xp.mean(shares, axis=1, keepdims=True) + _LEAST)
            logits = _log_densities(logs[:, s:, :], alphas) + (c // self.k_eff) * entropy
            shares = softmax(logits)
            if self.hard:
                shares = one_hot(xp.argmax(shares, axis=-1), c, xp.float64)
        found = softmax(logits)
        if self.matching and not s:
            found = _matched(found, probabilities)
        queries = xp.astype(found[:, : points.n_query, :], points.vectors.dtype)
        return scored(log_scores(queries, self.tau), steps=rounds)


def _log_densities(logs: Array, alphas: Array) -> Array:
    """Logarithms of the Dirichlet densities of points (b, n, c), given the logarithms of their coordinates."""
    xp = namespace(logs)
    norms = log_gamma(xp.sum(alphas, axis=-1)) - xp.sum(log_gamma(alphas), axis=-1)  # (b, c)
    return logs @ xp.matrix_transpose(alphas - 1.0) + norms[:, None, :]


def _fit(alphas: Array, means: Array, steps: int) -> Array:
    """Parameters (b, c, c) of the Dirichlet distributions with these means of logarithms, from a start."""
    xp = namespace(alphas)
    psi = scipy.special.psi if is_numpy(xp) else digamma  # compiled: most of the time is spent here
    moving = xp.ones_like(alphas[:, :1, :1]) > 0
    for step in range(steps):
        slope = psi(alphas + 1.0)
        small = alphas <= _SMALL
        safe = xp.where(small, xp.ones_like(alphas), alphas)
        bend = xp.abs(2.0 * (slope * safe - log_gamma(safe + 1.0))) / (safe * safe)
        bend = xp.where(small, xp.full_like(bend, _CURVATURE_AT_ZERO), bend)
        linear = slope - psi(xp.sum(alphas, axis=-1))[:, :, None] - bend * alphas - means
        new = (xp.sqrt(linear * linear + 4.0 * bend) - linear) / (2.0 * bend)
        change = xp.where(moving, new - alphas, xp.zeros_like(alphas))
        alphas = alphas + change
        if step and step % _CHECK_EVERY == 0:
            squares = xp.sum(alphas * alphas, axis=(1, 2), keepdims=True)
            moving = moving & (xp.sum(change * change, axis=(1, 2), keepdims=True) >= _TOLERANCE * squares)
            if not bool(xp.any(moving)):
                break
    return alphas


def _matched(shares: Array, probabilities: Array) -> Array:
    """Columns (clusters) of soft labels (b, n, c) in the order of the names that they match best, one to one."""
    xp, c = namespace(shares), shares.shape[2]
    members = one_hot(xp.argmax(shares, axis=-1), c, probabilities.dtype)
    sizes = xp.sum(members, axis=1)[:, :, None]
    means = to_numpy(xp.matrix_transpose(members) @ probabilities / xp.clip(sizes, min=1.0))  # (b, c, c)
    order = np.empty(means.shape[:2], dtype=np.int64)
    for task, (scores, size) in enumerate(zip(means, to_numpy(sizes)[:, :, 0], strict=True)):
        some = np.flatnonzero(size)
        _, names = linear_sum_assignment(-scores[some].astype(np.float64))
        order[task, names] = some
        # empty clusters keep the names that are left
        left = np.setdiff1d(np.arange(c), names)
        order[task, left] = np.setdiff1d(np.arange(c), some)
    chosen = one_hot(like(order, shares), c, shares.dtype)  # (b, c, c)  rows are names
    return shares @ xp.matrix_transpose(chosen)
