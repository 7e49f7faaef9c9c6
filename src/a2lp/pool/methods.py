"""Ways to label a pool, by name; ``auto`` is the default.

**auto** takes three opinions on each point and adds up their logarithms with weights:

- ``lp``: label propagation (k = 20, gamma 3, alpha 0.8). Best on one label per class, and where classes have several
  shapes.
- ``smoothed_lr``: logistic regression's probabilities, averaged over the graph (alpha 0.5). Best with many labels.
- ``em``: class means and soft labels in turn, three rounds from label propagation's answer, with logistic
  regression's logits added in each round, weighted the more the more labels there are, and the answer averaged over
  the graph. Best where points form clusters.

All work on whitened points (``solve.prepare``). The weights begin at 1 for lp and em, 0.4 times the labels per class
(at most 4) for smoothed_lr. From 4 labels per class on, they are fitted to the labels themselves, hidden in turn in
three folds: their likelihood, with a log-normal prior (sd 1) around the start.

How it was chosen: on CUB ResNet-12 val (50 classes, and 10 and 3 of them), CLIP DTD val (47 and 10), miniImageNet
ResNet-12 val (16 and 5) and digits, 3 draws each, 1, 2, 5 and 10 labels per class. Mean accuracy in percent, and how
far it was below the best of the other four at worst:

===========  ===========  ===========  ===========  ===========
method       1            2            5            10
===========  ===========  ===========  ===========  ===========
logistic     56.9 (20.6)  65.6 (17.3)  75.5 (9.0)   80.6 (5.7)
lp           65.7 (7.5)   71.8 (8.2)   76.9 (7.5)   79.6 (6.2)
em           68.2 (1.6)   75.3 (1.2)   79.0 (4.4)   81.5 (5.9)
smoothed_lr  60.4 (15.8)  69.5 (11.2)  77.7 (5.2)   81.8 (2.9)
auto         68.5 (1.4)   75.5 (0.4)   79.8 (0.9)   82.6 (1.9)
===========  ===========  ===========  ===========  ===========

With 150 classes (8,835 points of CUB ResNet-12 train and val) auto has 74 and 84 % at 1 and 5 labels per class, where
lp has 69 and 76; 2 classes of CUB and DTD are above 89 % from one label each. What did no better: weights fitted from
fewer than 4 labels per class on; ten rounds of em; em without logistic regression; logistic regression trained on soft
labels of the graph; a softmax of half the sharpness; whitening with a ridge of 0.3 for pools of any size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from a2lp.arrays import softmax
from a2lp.engines.contract import Settings
from a2lp.errors import InputError
from a2lp.pool import logistic
from a2lp.pool.adapt import adapt
from a2lp.pool.graph import PoolGraph
from a2lp.pool.held_out import draw_folds, hide_in_turn, usual_count
from a2lp.pool.neighbours import NdArray, nearest
from a2lp.pool.propagate import propagate

N_NEIGHBORS = 20
GAMMA = 3
_ALPHA = 0.8  # how far labels travel
_SMOOTH = 0.5  # how far probabilities are averaged over the graph
_CLOSE = 1e-2  # residual of those averages: labels are the same with 1e-6
_SHARPNESS = 160.0  # of the softmax over squared distances to class means; 80 and 160 differ by a point, 40 merges
_PRIOR = 2.0  # points that every class has beside those it was given
_EM_ROUNDS = 3
_FLOOR = 1e-3  # spread over all classes, so that no opinion is a veto
_FIT_FROM = 4  # labels per class from which the weights are fitted; with fewer it costs accuracy
_FIT_FOLDS = 3
_SCALE = 0.5  # of the first weights: makes the answer's confidence about right
_NEIGHBOURS_ASKED = 5  # by the method knn


@dataclass(frozen=True, eq=False)
class Task:
    """A pool with its labels: what every method takes.

    Attributes
    ----------
    points : array (n, d) or None
        Unit vectors; None where only a graph is known.
    graph : PoolGraph
    codes : array (n,)
        Each point's class from 0 on, -1 where it has no label.
    n_classes : int
    seed : int
        Of the folds.
    weights : array (3,), optional
        Of auto's opinions, where they were fitted before.
    """

    points: NdArray | None
    graph: PoolGraph
    codes: NdArray
    n_classes: int
    seed: int = 0
    weights: NdArray | None = None

    @cached_property
    def given(self) -> NdArray:
        """Which points are labelled (n,)."""
        return self.codes >= 0

    @cached_property
    def one_hot(self) -> NdArray:
        """Labels as distributions (n, c), rows of zeros where there is none."""
        y = np.zeros((len(self.codes), self.n_classes), np.float32)
        y[self.given, self.codes[self.given]] = 1
        return y

    @property
    def labels_per_class(self) -> float:
        """Their mean number."""
        return float(self.given.sum() / self.n_classes)

    def vectors(self, method: str) -> NdArray:
        """The points, for a method that cannot do without."""
        if self.points is None:
            raise InputError(
                f"method={method!r} needs the points themselves, and only a graph was given. Pass vectors, or take "
                "method='lp'."
            )
        return self.points

    def pinned(self, distributions: NdArray) -> NdArray:
        """The same, with the given labels in the rows of labelled points."""
        return np.where(self.given[:, None], self.one_hot, distributions)

    def smoothed(self, distributions: NdArray) -> NdArray:
        """Distributions averaged over the graph, the given labels fixed before."""
        # warm: the answer is near what goes in
        spread = propagate(
            self.graph, self.pinned(distributions), _SMOOTH, tolerance=_CLOSE, start=distributions / (1 - _SMOOTH)
        )
        return _as_distributions(spread.Z)


class Found(NamedTuple):
    """What a method says."""

    probabilities: NdArray  # (n, c)
    reason: str = ""
    weights: NdArray | None = None


def lp(task: Task) -> Found:
    """Label propagation."""
    return Found(_as_distributions(propagate(task.graph, task.one_hot, _ALPHA, tolerance=_CLOSE / 10).Z))


def a2lp(task: Task) -> Found:
    """A2LP: label propagation with adapted anchors."""
    settings = Settings(n_neighbors=min(N_NEIGHBORS, len(task.codes) - 1), gamma=GAMMA, alpha=_ALPHA, steps=100)
    adapted = adapt(task.vectors("a2lp"), task.codes, settings, tolerance=1e-4)
    return Found(_as_distributions(adapted.Z))


def logistic_regression(task: Task) -> Found:
    """Logistic regression, on the labelled points alone."""
    return Found(softmax(_logits(task, "logistic")))


def smoothed_lr(task: Task) -> Found:
    """Logistic regression's probabilities, averaged over the graph."""
    return Found(task.smoothed(softmax(_logits(task, "smoothed_lr"))))


def em(task: Task) -> Found:
    """Class means and soft labels in turn on the graph, logistic regression beside them."""
    return Found(_means_in_turn(task, lp(task).probabilities, _logits(task, "em")))


def knn(task: Task) -> Found:
    """The labels of the 5 nearest labelled points, weighted by their cosines."""
    points = task.vectors("knn")
    rows = np.flatnonzero(task.given)
    places, cosines = nearest(points, points[rows], _NEIGHBOURS_ASKED)
    votes = np.zeros((len(points), task.n_classes), np.float32)
    np.add.at(votes, (np.arange(len(points))[:, None], task.codes[rows][places]), np.maximum(cosines, 0))
    return Found(_as_distributions(votes))


def auto(task: Task) -> Found:
    """The weighted opinions of lp, em and smoothed_lr; lp alone where only a graph is known."""
    if task.points is None:
        return Found(lp(task).probabilities, "label propagation, since only a graph is known")
    weights, why = _weights(task)
    named = ", ".join(f"{name} {weight:.2g}" for name, weight in zip(("lp", "em", "smoothed_lr"), weights, strict=True))
    return Found(mix(_opinions(task), weights), f"weights {named}: {why}", weights)


METHODS: dict[str, Callable[[Task], Found]] = {
    "auto": auto,
    "lp": lp,
    "em": em,
    "smoothed_lr": smoothed_lr,
    "a2lp": a2lp,
    "logistic": logistic_regression,
    "knn": knn,
}


def mix(opinions: NdArray, weights: NdArray) -> NdArray:
    """Distributions (n, c) of log-opinions (n, 3, c): their weighted sum, normalised."""
    return np.asarray(softmax(np.einsum("nqc,q->nc", opinions, weights.astype(opinions.dtype))))


def fit_weights(opinions: NdArray, codes: NdArray, start: NdArray) -> NdArray:
    """Positive weights (3,) under which log-opinions (s, 3, c) make the codes (s,) likely, not far from ``start``."""
    said = opinions[np.arange(len(codes)), :, codes].sum(axis=0, dtype=np.float64)  # (3,)

    def loss(step: NdArray) -> tuple[float, NdArray]:
        weights = start * np.exp(step)
        total = np.einsum("sqc,q->sc", opinions, weights)
        top = total.max(axis=1, keepdims=True)
        p = np.exp(total - top)
        norm = p.sum(axis=1, keepdims=True)
        value = (top + np.log(norm)).sum() - said @ weights
        gradient = (np.einsum("sqc,sc->q", opinions, p / norm) - said) * weights
        return float(value + 0.5 * step @ step), gradient + step

    found: NdArray = start * np.exp(minimize(loss, np.zeros(len(start)), jac=True, method="L-BFGS-B").x)
    return found


def _weights(task: Task) -> tuple[NdArray, str]:
    if task.weights is not None:
        return task.weights, "those of the earlier answer"
    start = _SCALE * np.array([1.0, 1.0, min(4.0, 0.4 * task.labels_per_class)])
    if (count := usual_count(task.codes)) < _FIT_FROM or task.n_classes == 1:
        return start, f"fixed, since most classes have {count} label{'s' * (count != 1)}"
    folds = draw_folds(task.codes, _FIT_FOLDS, task.seed)
    held_out = hide_in_turn(task.codes, folds, lambda codes: _opinions(replace(task, codes=codes)))
    return fit_weights(held_out, task.codes[folds >= 0], start), f"fitted to {(folds >= 0).sum()} labels in turn"


def _opinions(task: Task) -> NdArray:
    """Logarithms of what lp, em and smoothed_lr say (n, 3, c)."""
    propagated = lp(task).probabilities
    logits = _logits(task, "auto")
    spoken = np.stack([propagated, _means_in_turn(task, propagated, logits), task.smoothed(softmax(logits))], axis=1)
    return np.log(spoken + np.float32(_FLOOR / task.n_classes))


def _logits(task: Task, method: str) -> NdArray:
    points = task.vectors(method)
    return logistic.scores(points, logistic.fit(points[task.given], task.one_hot[task.given]))


def _means_in_turn(task: Task, start: NdArray, logits: NdArray) -> NdArray:
    points = task.vectors("em")
    evidence = min(4.0, 0.5 + 0.5 * task.labels_per_class) * np.log(np.maximum(softmax(logits), 1e-9))
    soft = task.pinned(start)
    for _ in range(_EM_ROUNDS):
        mass = soft.sum(axis=0)
        means = (soft.T @ points) / np.maximum(mass, 1e-9)[:, None]  # (c, d)
        distance = np.square(means).sum(axis=1) - 2 * points @ means.T  # less |x|^2, which is 1
        prior = np.log(_PRIOR + soft[~task.given].sum(axis=0))
        soft = task.pinned(task.smoothed(softmax(prior - _SHARPNESS * distance + evidence)))
    return soft


def _as_distributions(z: NdArray) -> NdArray:
    """Rows that sum to 1; uniform where nothing positive arrived."""
    z = np.maximum(z, 0)  # the solver leaves zeros a rounding below
    total = z.sum(axis=1, keepdims=True)
    return np.where(total > 0, z / np.where(total > 0, total, 1), np.asarray(1 / z.shape[1], z.dtype))
