"""Methods that label a pool, by name; ``auto`` is the default.

**auto** combines three models of each point. It adds up the logarithms of their probabilities, with weights:

- ``lp``: label propagation (k = 20, gamma 3, alpha 0.8). Best with one label per class, and for classes that consist of
  several clusters.
- ``smoothed_lr``: the probabilities of logistic regression, averaged over the graph (alpha 0.5). Best with many labels.
- ``em``: class means and soft labels in turn, three rounds from the result of label propagation. The logits of logistic
  regression are added in each round, with a weight that grows with the number of labels, and the result is averaged
  over the graph. Best where classes are clusters.

All of them work on whitened points (``prepare.whitened_graph``). The weights start at 1 for lp and em, and at 0.4 times
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
from typing import Any

import numpy as np

from a2lp.arrays import device, like, log_softmax, namespace, softmax, to_numpy
from a2lp.engines import select
from a2lp.engines.contract import Points, Settings
from a2lp.errors import InputError
from a2lp.pool import logistic
from a2lp.pool.adapt import adapt
from a2lp.pool.graph import PoolGraph
from a2lp.pool.held_out import draw_folds, predict_held_out, usual_count
from a2lp.pool.memory import NO_MEMORY, Memory
from a2lp.pool.names import Names, named
from a2lp.pool.neighbours import NdArray, nearest
from a2lp.pool.part import WHOLE, Part
from a2lp.pool.rows import as_distributions, by_rows, host_rows, products, weighted_sums
from a2lp.pool.weights import fit_weights, mix

N_NEIGHBORS = 20
GAMMA = 3
_ALPHA = 0.8  # how far labels propagate
_SMOOTH = 0.5  # how far probabilities are averaged over the graph
_RESIDUAL = 1e-3  # of propagated labels
_SMOOTH_RESIDUAL = 1e-2  # of averaged probabilities: labels are the same with 1e-6
_SHARPNESS = 160.0  # of the softmax over squared distances to class means; 80 and 160 differ by a point, 40 merges
_PRIOR = 2.0  # points that every class has beside its labelled ones
_EM_ROUNDS = 3
_LEAST = float(np.float32(np.log(1e-9)))  # of the logarithms of probabilities
_FLOOR = 1e-3  # spread over all classes, so that no model can exclude a class
_FIT_FROM = 4  # labels per class from which the weights are fitted; with fewer it costs accuracy
_FIT_FROM_WITH_NAMES = 8
_LABELS_OF_A_NAME = 4.0  # labels per class at which the models of labels have half their weight beside names
_FIT_FOLDS = 3
FIT_WHOLE = 100_000  # points up to which the weights are fitted on all of them; a part costs up to 0.4 points
_SCALE = 0.5  # of the first weights: makes the confidence about right
_KNN = 5
_DENSE_WORK = 5e8  # multiply-adds of a step, up to which a dense graph in one compiled loop is faster than a sparse one


def go_on() -> None:
    """The usual check between two steps: nothing ends the computation."""


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """A pool with its labels: the input of every method.

    Attributes
    ----------
    points : array (n, d) or None
        Unit vectors; None where only a graph is known. A tensor makes all methods work on its device.
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
    memory : Memory
        What the answer before left.
    names : Names, optional
        The named classes, which are then all classes; labels are optional.
    """

    points: Any
    graph: PoolGraph
    codes: NdArray
    n_classes: int
    seed: int = 0
    weights: NdArray | None = None
    check: Callable[[], None] = go_on
    memory: Memory = NO_MEMORY
    names: Names | None = None

    def __repr__(self) -> str:
        return f"Task({self.graph!r}, {int(self.given.sum())} labelled: {self.n_classes} classes)"

    @cached_property
    def given(self) -> NdArray:
        """Which points are labelled (n,)."""
        return self.codes >= 0

    @cached_property
    def targets(self) -> NdArray:
        """The labels of the labelled points as distributions (s, c)."""
        return np.eye(self.n_classes, dtype=np.float32)[self.codes[self.given]]

    @property
    def on_device(self) -> bool:
        """Whether points and answers are tensors on a device."""
        return self.points is not None and not isinstance(self.points, np.ndarray)

    def on_host(self) -> Task:
        """The same task with points in the host's memory."""
        return replace(self, points=to_numpy(self.points), memory=NO_MEMORY) if self.on_device else self

    @property
    def one_hot(self) -> Any:
        """Labels as distributions (n, c), rows of zeros where there is none."""
        shape = len(self.codes), self.n_classes
        if not self.on_device:
            return self.pinned(np.zeros(shape, np.float32))
        xp = namespace(self.points)
        return self.pinned(xp.zeros(shape, dtype=xp.float32, device=device(self.points)))

    @cached_property
    def propagated(self) -> Any:
        """Z of eq. 5: how much of each class's labels propagation brings to each point (n, c).

        With names, points without a label contribute the probabilities that the names give them.
        """
        if self.names is None:
            z = self.memory.propagated(self.graph, self.codes, self.one_hot, _ALPHA, _RESIDUAL)
        else:
            known = self.pinned(np.exp(self.names.text))
            z = self.memory.solved("propagated with names", self.graph, known, _ALPHA, _RESIDUAL)
        xp = namespace(z)
        return by_rows(lambda part: xp.clip(z[part], 0, None), z)  # the solver may leave values slightly below 0

    def hiding(self, codes: NdArray) -> Task:
        """The same pool with fewer labels, which nothing that was computed with them gives away."""
        return replace(self, codes=codes, memory=NO_MEMORY)

    def sample(self, largest: int = WHOLE) -> tuple[Task, NdArray]:
        """The task on a part of the pool, if it has more points than this, and the rows of the part (m,)."""
        if self.points is None or len(self.codes) <= largest:
            return self, np.arange(len(self.codes))
        part = self.memory.part or Part(self.points, N_NEIGHBORS, GAMMA)
        if self.memory is not NO_MEMORY:
            self.memory.part = part
        rows, points, graph = part.around(self.points, self.given)
        names = None if self.names is None else self.names.of(rows)
        codes = self.codes[rows]
        return replace(self, points=points, graph=graph, codes=codes, names=names, memory=NO_MEMORY), rows

    @property
    def labels_per_class(self) -> float:
        """Mean number of labels per class."""
        return float(self.given.sum() / self.n_classes)

    def vectors(self, method: str) -> Any:
        """The points, for a method that needs them."""
        if self.points is None:
            raise InputError(
                f"method={method!r} needs the points themselves, and only a graph was given. Pass vectors, or use "
                "method='lp'."
            )
        return self.points

    def pinned(self, distributions: Any) -> Any:
        """The distributions, now with the given labels in the rows of labelled points."""
        if isinstance(distributions, np.ndarray):
            distributions[self.given] = self.targets
        else:
            rows = like(np.flatnonzero(self.given), distributions)
            distributions[rows] = like(self.targets, distributions, distributions.dtype)
        return distributions

    def smoothed(self, distributions: Any, name: str) -> Any:
        """Distributions averaged over the graph; labelled points contribute their given labels.

        What they are averages of has a name, by which the next answer starts from this one. They are overwritten.
        """
        z = self.memory.solved(name, self.graph, self.pinned(distributions), _SMOOTH, _SMOOTH_RESIDUAL)
        return as_distributions(z, overwrite=True)


def lp(task: Task) -> Any:
    """Label propagation."""
    return as_distributions(task.propagated)


def a2lp(task: Task) -> Any:
    """A2LP: label propagation with adapted anchors."""
    task = task.on_host()
    points, n = task.vectors("a2lp"), len(task.codes)
    settings = Settings(n_neighbors=min(N_NEIGHBORS, n - 1), gamma=GAMMA, alpha=_ALPHA, steps=100)
    s, d = int(task.given.sum()), points.shape[1]
    if n**3 / 3 + 2 * task.n_classes * n**2 + 2 * s * n * d > _DENSE_WORK:
        return as_distributions(adapt(points, task.codes, settings, tolerance=1e-4).Z)
    order = np.argsort(~task.given, kind="stable")  # labelled points first
    codes = task.codes[order][: task.given.sum()]
    ran = select.run(select.PROPAGATION, "auto", Points(points[order][None], codes[None], task.n_classes, 0), settings)
    return as_distributions(ran.result.z[0][np.argsort(order)])


def logistic_regression(task: Task) -> Any:
    """Logistic regression on the labelled points alone."""
    return _exponentials(_evidence(task, "logistic"))


def smoothed_lr(task: Task) -> Any:
    """Probabilities of logistic regression, averaged over the graph."""
    return task.smoothed(logistic_regression(task), "smoothed_lr")


def em(task: Task) -> Any:
    """Class means and soft labels in turn on the graph, combined with logistic regression."""
    return _expectation_maximisation(task, _evidence(task, "em"))


def knn(task: Task) -> Any:
    """A vote of the 5 nearest labelled points, weighted by their cosines."""
    task = task.on_host()
    points = task.vectors("knn")
    rows = np.flatnonzero(task.given)
    places, cosines = nearest(points, points[rows], _KNN)
    votes = np.zeros((len(points), task.n_classes), np.float32)
    np.add.at(votes, (np.arange(len(points))[:, None], task.codes[rows][places]), np.maximum(cosines, 0))
    return as_distributions(votes)


def auto(task: Task) -> Any:
    """The weighted combination of lp, em and smoothed_lr, and of names; lp alone where only a graph is known."""
    if task.points is None:
        return lp(task)
    if task.names is not None and not task.given.any():
        return named(task)
    assert task.weights is not None
    weights, models = task.weights, _models(task)
    # that of smoothed_lr is needed no more; with names it may be that of another model, too
    out = models[-1] if task.names is None else np.empty_like(models[-1])
    return by_rows(lambda part: mix(_logarithms(models, part), weights), out)


METHODS: dict[str, Callable[[Task], Any]] = {
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


def predict_rows(task: Task, method: str, rows: NdArray) -> NdArray:
    """Distributions of some points (m, c), by a method."""
    if method == "lp" or (method == "auto" and task.points is None):
        return to_numpy(as_distributions(task.propagated[rows]))
    if method == "auto" and (task.names is None or task.given.any()):
        assert task.weights is not None
        return to_numpy(mix(_logarithms(_models(task), rows), task.weights))
    return to_numpy(METHODS[method](task)[rows])


def has_fitted_weights(task: Task) -> bool:
    """Whether the weights of ``auto`` are fitted to labels that are held out, which takes longer than an answer."""
    fit_from = _FIT_FROM if task.names is None else _FIT_FROM_WITH_NAMES
    return task.n_classes > 1 and usual_count(task.codes, task.n_classes) >= fit_from


def first_weights(task: Task) -> NdArray:
    """The weights of ``auto``, of each of its models, where they are not fitted."""
    labels = task.labels_per_class
    start = _SCALE * np.array([1.0, 1.0, min(4.0, 0.4 * labels)])
    return start if task.names is None else np.append(labels / (labels + _LABELS_OF_A_NAME) * start, 1.0)


def choose_weights(task: Task) -> tuple[NdArray, str]:
    """The weights of ``auto``, of each of its models, and how they were chosen."""
    start = first_weights(task)
    if not has_fitted_weights(task):
        count = usual_count(task.codes, task.n_classes)
        return start, f"fixed, since most classes have {count} label{'s' * (count != 1)}"
    task, _ = task.sample(FIT_WHOLE)
    folds = draw_folds(task.codes, _FIT_FOLDS, task.seed)

    def predict(codes: NdArray, rows: NdArray) -> NdArray:
        return to_numpy(_logarithms(_models(task.hiding(codes)), rows))

    held_out = predict_held_out(task.codes, folds, predict, on_device=task.on_device)
    weights = fit_weights(held_out, task.codes[folds >= 0], start)
    return weights, f"fitted to {(folds >= 0).sum()} labels by cross-validation"


def _models(task: Task) -> list[Any]:
    """Probabilities of lp, em and smoothed_lr (n, c), and, with names, of ``names``; those of lp are not normalised."""
    if task.names is not None:
        return _models_with_names(task)
    task.check()
    evidence = _evidence(task, "auto")
    task.check()
    found = [task.propagated, _expectation_maximisation(task, evidence)]
    return [*found, task.smoothed(_exponentials(evidence), "smoothed_lr")]


def _logarithms(models: list[Any], rows: Any) -> Any:
    """Logarithms of the probabilities of some points by several models (m, q, c)."""
    xp, floor = namespace(models[0]), float(np.float32(_FLOOR / models[0].shape[1]))
    return xp.log(xp.stack([as_distributions(model[rows]) for model in models], axis=1) + floor)


def _models_with_names(task: Task) -> list[NdArray]:
    """Probabilities of lp, em, smoothed_lr and names (n, c).

    Labels say nothing about named classes that have none. So the first three share out, among the classes that have
    labels, what names give these together; the others keep what names give them.
    """
    names = named(task)
    seen = np.unique(task.codes[task.given])
    if len(seen) < 2:
        return [names] * 4
    codes = np.where(task.given, np.searchsorted(seen, task.codes), -1)
    together = names[:, seen].sum(axis=1, keepdims=True)

    def shared_out(among: NdArray) -> NdArray:
        found = names.copy()
        found[:, seen] = as_distributions(among) * together
        return found

    models = _models(replace(task, codes=codes, n_classes=len(seen), names=None, memory=NO_MEMORY))
    return [*map(shared_out, models), names]


def _evidence(task: Task, method: str) -> Any:
    """Logarithms of the probabilities of logistic regression (n, c)."""
    points = task.vectors(method)
    coefficients = like(task.memory.fitted(host_rows(points, task.given), task.targets), points)
    xp = namespace(points)
    out = xp.empty((len(points), task.n_classes), dtype=coefficients.dtype, device=device(points))
    return products(points, lambda _, x: xp.clip(log_softmax(logistic.scores(x, coefficients)), _LEAST, None), out)


def _exponentials(values: Any) -> Any:
    """They take the place of the values."""
    xp = namespace(values)
    return by_rows(lambda part: xp.exp(values[part]), values)


def _expectation_maximisation(task: Task, evidence: Any) -> Any:
    points, xp = task.vectors("em"), namespace(evidence)
    weight = min(4.0, 0.5 + 0.5 * task.labels_per_class)
    soft = task.pinned(lp(task))
    for number in range(_EM_ROUNDS):
        task.check()
        mass = xp.sum(soft, axis=0)
        means = weighted_sums(soft, points) / xp.clip(mass, 1e-9, None)[:, None]  # (c, d)
        lengths = xp.sum(xp.square(means), axis=1)
        prior = xp.log(_PRIOR + mass - like(task.targets.sum(axis=0), mass))

        shift = prior - _SHARPNESS * lengths

        def expected(part: slice, x: Any, means: Any = means, shift: Any = shift) -> Any:
            closeness = x @ (2 * _SHARPNESS * means.T)  # less |x|^2, which is 1
            return softmax(closeness + shift + weight * evidence[part])

        soft = products(points, expected, soft if soft.dtype == evidence.dtype else xp.empty_like(evidence))
        soft = task.pinned(task.smoothed(soft, f"em {number}"))
    return soft
