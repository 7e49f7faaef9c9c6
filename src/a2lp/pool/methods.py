"""Methods that label a pool, by name; ``auto`` is the default.

**auto** combines three models of each point. It adds up the logarithms of their probabilities, with weights:

- ``lp``: label propagation (k = 20, gamma 3, alpha 0.8). Best with one label per class, and for classes that consist of
  several clusters.
- ``smoothed_lr``: the probabilities of logistic regression, averaged over the graph (alpha 0.5). Best with many labels.
- ``em``: class means and soft labels in turn, three rounds from the result of label propagation. The logits of logistic
  regression are added in each round, with a weight that grows with the number of labels, and the result is averaged
  over the graph. Best where classes are clusters.

All of them work on whitened points (``session.whitened_graph``). The weights start at 1 for lp and em, and at 0.4 times
the labels per class (at most 4) for smoothed_lr. From 4 labels per class on, they are fitted by cross-validation in
three folds: they maximise the likelihood of the held-out labels, with a log-normal prior (sd 1) around the start.

With vectors of the classes' names there is a fourth model, ``names``: the rounds of ``a2lp_em`` with names (``names``).
Its weight starts at 1, those of the others are multiplied by b / (b + 4) for b labels per class, so that without labels
it is alone, and weights are fitted from 8 labels per class on. Chosen on WHU-RS19 vectors of three encoders, 1 to 20
labels per class.

How it was chosen: on CUB ResNet-12 val (50 classes, and 10 and 3 of them), CLIP DTD val (47 and 10), miniImageNet
ResNet-12 val (16 and 5) and digits, 3 draws each, 1, 2, 5 and 10 labels per class. Tried without gain: fitting the
weights with fewer than 4 labels per class; ten rounds of em; em without logistic regression; logistic regression on
soft labels from the graph; a softmax of half the sharpness; a ridge of 0.3 in the whitening for pools of any size.
``benchmarks/pool_accuracy.py`` compares ``auto`` with scikit-learn's classifiers; docs/classify.md shows the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import minimize

from a2lp.arrays import softmax
from a2lp.engines import select
from a2lp.engines.contract import Points, Settings
from a2lp.errors import InputError
from a2lp.pool import logistic
from a2lp.pool.adapt import adapt
from a2lp.pool.graph import PoolGraph
from a2lp.pool.held_out import draw_folds, predict_held_out, usual_count
from a2lp.pool.names import Names, named
from a2lp.pool.neighbours import NdArray, nearest
from a2lp.pool.propagate import propagate

N_NEIGHBORS = 20
GAMMA = 3
_ALPHA = 0.8  # how far labels propagate
_SMOOTH = 0.5  # how far probabilities are averaged over the graph
_RESIDUAL = 1e-3  # of propagated labels
_SMOOTH_RESIDUAL = 1e-2  # of averaged probabilities: labels are the same with 1e-6
_SHARPNESS = 160.0  # of the softmax over squared distances to class means; 80 and 160 differ by a point, 40 merges
_PRIOR = 2.0  # points that every class has beside its labelled ones
_EM_ROUNDS = 3
_FLOOR = 1e-3  # spread over all classes, so that no model can exclude a class
_FIT_FROM = 4  # labels per class from which the weights are fitted; with fewer it costs accuracy
_FIT_FROM_WITH_NAMES = 8
_LABELS_OF_A_NAME = 4.0  # labels per class at which the models of labels have half their weight beside names
_FIT_FOLDS = 3
_SCALE = 0.5  # of the first weights: makes the confidence about right
_KNN = 5
_DENSE_POINTS = 2_000  # up to here, a dense graph in one compiled loop is faster than a sparse one


def go_on() -> None:
    """The usual check between two steps: nothing ends the computation."""


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """A pool with its labels: the input of every method.

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
        Weights of the three models of ``auto``.
    check : callable
        Called between the models, rounds and folds of a method; what it raises ends the computation.
    names : Names, optional
        The named classes, which are then all classes; labels are optional.
    """

    points: NdArray | None
    graph: PoolGraph
    codes: NdArray
    n_classes: int
    seed: int = 0
    weights: NdArray | None = None
    check: Callable[[], None] = go_on
    names: Names | None = None

    def __repr__(self) -> str:
        return f"Task({self.graph!r}, {int(self.given.sum())} labelled: {self.n_classes} classes)"

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

    @cached_property
    def propagated(self) -> NdArray:
        """Z of eq. 5: how much of each class's labels propagation brings to each point (n, c).

        With names, points without a label contribute the probabilities that the names give them.
        """
        known = self.one_hot if self.names is None else self.pinned(np.exp(self.names.text))
        z = propagate(self.graph, known, _ALPHA, tolerance=_RESIDUAL).Z
        return np.maximum(z, 0)  # the solver may leave values slightly below 0

    @property
    def labels_per_class(self) -> float:
        """Mean number of labels per class."""
        return float(self.given.sum() / self.n_classes)

    def vectors(self, method: str) -> NdArray:
        """The points, for a method that needs them."""
        if self.points is None:
            raise InputError(
                f"method={method!r} needs the points themselves, and only a graph was given. Pass vectors, or use "
                "method='lp'."
            )
        return self.points

    def pinned(self, distributions: NdArray) -> NdArray:
        """The distributions, with the given labels in the rows of labelled points."""
        return np.where(self.given[:, None], self.one_hot, distributions)

    def smoothed(self, distributions: NdArray) -> NdArray:
        """Distributions averaged over the graph; labelled points contribute their given labels."""
        start = distributions / (1 - _SMOOTH)  # close to the solution
        y = self.pinned(distributions)
        return as_distributions(propagate(self.graph, y, _SMOOTH, tolerance=_SMOOTH_RESIDUAL, start=start).Z)


def lp(task: Task) -> NdArray:
    """Label propagation."""
    return as_distributions(task.propagated)


def a2lp(task: Task) -> NdArray:
    """A2LP: label propagation with adapted anchors."""
    points, n = task.vectors("a2lp"), len(task.codes)
    settings = Settings(n_neighbors=min(N_NEIGHBORS, n - 1), gamma=GAMMA, alpha=_ALPHA, steps=100)
    if n > _DENSE_POINTS:
        return as_distributions(adapt(points, task.codes, settings, tolerance=1e-4).Z)
    order = np.argsort(~task.given, kind="stable")  # labelled points first
    codes = task.codes[order][: task.given.sum()]
    ran = select.run(select.PROPAGATION, "auto", Points(points[order][None], codes[None], task.n_classes, 0), settings)
    return as_distributions(ran.result.z[0][np.argsort(order)])


def logistic_regression(task: Task) -> NdArray:
    """Logistic regression on the labelled points alone."""
    return np.asarray(softmax(_logits(task, "logistic")))


def smoothed_lr(task: Task) -> NdArray:
    """Probabilities of logistic regression, averaged over the graph."""
    return task.smoothed(softmax(_logits(task, "smoothed_lr")))


def em(task: Task) -> NdArray:
    """Class means and soft labels in turn on the graph, combined with logistic regression."""
    return _expectation_maximisation(task, _logits(task, "em"))


def knn(task: Task) -> NdArray:
    """A vote of the 5 nearest labelled points, weighted by their cosines."""
    points = task.vectors("knn")
    rows = np.flatnonzero(task.given)
    places, cosines = nearest(points, points[rows], _KNN)
    votes = np.zeros((len(points), task.n_classes), np.float32)
    np.add.at(votes, (np.arange(len(points))[:, None], task.codes[rows][places]), np.maximum(cosines, 0))
    return as_distributions(votes)


def auto(task: Task) -> NdArray:
    """The weighted combination of lp, em and smoothed_lr, and of names; lp alone where only a graph is known."""
    if task.points is None:
        return lp(task)
    if task.names is not None and not task.given.any():
        return named(task)
    assert task.weights is not None
    return mix(_log_probabilities(task), task.weights)


METHODS: dict[str, Callable[[Task], NdArray]] = {
    "auto": auto,
    "lp": lp,
    "em": em,
    "smoothed_lr": smoothed_lr,
    "a2lp": a2lp,
    "logistic": logistic_regression,
    "knn": knn,
    "names": named,
}
WITHOUT_LABELS = ("auto", "lp", "names")  # these need no labels where there are names


def mix(models: NdArray, weights: NdArray) -> NdArray:
    """Distributions (n, c) from log-probabilities (n, q, c): their weighted sum, normalised."""
    return np.asarray(softmax(np.einsum("nqc,q->nc", models, weights.astype(models.dtype))))


def fit_weights(models: NdArray, codes: NdArray, start: NdArray) -> NdArray:
    """Positive weights (q,) under which log-probabilities (s, q, c) make the codes (s,) likely, near ``start``."""
    chosen = models[np.arange(len(codes)), :, codes].sum(axis=0, dtype=np.float64)  # (q,)

    def loss(step: NdArray) -> tuple[float, NdArray]:
        weights = start * np.exp(step)
        total = np.einsum("sqc,q->sc", models, weights)
        top = total.max(axis=1, keepdims=True)
        p = np.exp(total - top)
        norm = p.sum(axis=1, keepdims=True)
        value = (top + np.log(norm)).sum() - chosen @ weights
        gradient = (np.einsum("sqc,sc->q", models, p / norm) - chosen) * weights
        return float(value + 0.5 * step @ step), gradient + step

    weights: NdArray = start * np.exp(minimize(loss, np.zeros(len(start)), jac=True, method="L-BFGS-B").x)
    return weights


def choose_weights(task: Task) -> tuple[NdArray, str]:
    """The weights of ``auto``, of each of its models, and how they were chosen."""
    labels = task.labels_per_class
    start, fit_from = _SCALE * np.array([1.0, 1.0, min(4.0, 0.4 * labels)]), _FIT_FROM
    if task.names is not None:
        start, fit_from = np.append(labels / (labels + _LABELS_OF_A_NAME) * start, 1.0), _FIT_FROM_WITH_NAMES
    if (count := usual_count(task.codes, task.n_classes)) < fit_from or task.n_classes == 1:
        return start, f"fixed, since most classes have {count} label{'s' * (count != 1)}"
    folds = draw_folds(task.codes, _FIT_FOLDS, task.seed)
    held_out = predict_held_out(task.codes, folds, lambda codes: _log_probabilities(replace(task, codes=codes)))
    weights = fit_weights(held_out, task.codes[folds >= 0], start)
    return weights, f"fitted to {(folds >= 0).sum()} labels by cross-validation"


def _log_probabilities(task: Task) -> NdArray:
    """Log-probabilities of the models of ``auto`` (n, q, c): lp, em and smoothed_lr, and, with names, ``names``."""
    if task.names is not None:
        return _named_log_probabilities(task)
    task.check()
    logits = _logits(task, "auto")
    task.check()
    models = [lp(task), _expectation_maximisation(task, logits), task.smoothed(softmax(logits))]
    return np.log(np.stack(models, axis=1) + np.float32(_FLOOR / task.n_classes))


def _named_log_probabilities(task: Task) -> NdArray:
    """Log-probabilities of lp, em, smoothed_lr and names (n, 4, c).

    Labels say nothing about named classes that have none. So the first three share out, among the classes that have
    labels, what names give these together; the others keep what names give them.
    """
    names = np.log(named(task) + np.float32(_FLOOR / task.n_classes))
    models = np.repeat(names[:, None, :], 4, axis=1)
    seen = np.unique(task.codes[task.given])
    if len(seen) > 1:
        codes = np.where(task.given, np.searchsorted(seen, task.codes), -1)
        among = _log_probabilities(replace(task, codes=codes, n_classes=len(seen), names=None))
        models[:, :3, seen] = among + np.log(np.exp(names[:, seen]).sum(axis=1))[:, None, None]
    return models


def _logits(task: Task, method: str) -> NdArray:
    points = task.vectors(method)
    return logistic.scores(points, logistic.fit(points[task.given], task.one_hot[task.given]))


def _expectation_maximisation(task: Task, logits: NdArray) -> NdArray:
    points = task.vectors("em")
    evidence = min(4.0, 0.5 + 0.5 * task.labels_per_class) * np.log(np.maximum(softmax(logits), 1e-9))
    soft = task.pinned(lp(task))
    for _ in range(_EM_ROUNDS):
        task.check()
        mass = soft.sum(axis=0)
        means = (soft.T @ points) / np.maximum(mass, 1e-9)[:, None]  # (c, d)
        distance = np.square(means).sum(axis=1) - 2 * points @ means.T  # less |x|^2, which is 1
        prior = np.log(_PRIOR + soft[~task.given].sum(axis=0))
        soft = task.pinned(task.smoothed(softmax(prior - _SHARPNESS * distance + evidence)))
    return soft


def as_distributions(z: NdArray) -> NdArray:
    """Rows that sum to 1; uniform where nothing positive arrived."""
    z = np.maximum(z, 0)  # the solver may leave values slightly below 0
    total = z.sum(axis=1, keepdims=True)
    return np.where(total > 0, z / np.where(total > 0, total, 1), np.asarray(1 / z.shape[1], z.dtype))
