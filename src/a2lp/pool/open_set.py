"""Which points probably belong to none of the labelled classes.

A method must choose among the classes it knows, so its confidence says little about points of other classes: far from
all labels, a point can still be much closer to one class than to the others. ``novelty`` combines two scores, each as
the point's rank among the unlabelled ones:

- how little of the labels propagation (alpha 0.8) brings to the point, before rows are normalised;
- how far its neighbourhood is from the nearest mean of a class's labelled points (cosines of whitened points, averaged
  over the graph with alpha 0.8).

With names, as long as a class has no label, the scores are instead the cosine with the nearest name, and the
probability that the names give the predicted class, both averaged over the graph. They were chosen among 20 scores on
WHU-RS19 vectors of three encoders, with the names of 8 and 14 of the 19 classes.

The others were chosen among 18 scores on validation pools: CUB ResNet-12, CLIP DTD, miniImageNet ResNet-12 and digits.
``benchmarks/open_set.py`` compares ``novelty`` with one minus the largest probability; docs/classify.md shows the
result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import rankdata

from a2lp.arrays import device, like, namespace, to_numpy
from a2lp.pool.methods import Task
from a2lp.pool.neighbours import NdArray
from a2lp.pool.propagate import propagate
from a2lp.pool.rows import host_rows, products
from a2lp.pool.solve import PoolAnswer
from a2lp.preprocess import l2

_ALPHA = 0.8


def novelty(answer: PoolAnswer) -> NdArray:
    """How little each point looks like any of the classes (n,), from 0 to 1; 0 where the label was given.

    The scores are ranks: 0.9 means that nine in ten of the unlabelled points look more like one of the classes. They do
    not tell how many points belong to no class.
    """
    new = ~answer.given
    scores = np.zeros(len(new))
    if new.any():
        scores[new] = np.mean([rankdata(-one[new]) / new.sum() for one in _evidence(answer)], axis=0)
    return scores


def _evidence(answer: PoolAnswer) -> list[NdArray]:
    """What speaks for each point's belonging to one of the classes (n,): it falls as novelty rises."""
    task = answer.task
    classes, seen = range(task.n_classes), np.unique(task.codes[task.given])
    if task.names is not None and len(seen) < task.n_classes:
        own = np.exp(task.names.text[np.arange(len(task.codes)), np.searchsorted(answer.classes, answer.labels)])
        return [_around(task, task.names.nearest), _around(task, own)]
    if task.points is None:
        return [answer.arrived]
    points, xp, codes = task.points, namespace(task.points), task.codes[task.given]
    labelled = host_rows(points, task.given)
    means = like(l2(np.stack([labelled[codes == code].mean(axis=0) for code in classes])), points)
    out = xp.empty(len(points), dtype=means.dtype, device=device(points))
    nearest = products(points, lambda _, x: xp.max(x @ means.T, axis=1), out)
    return [answer.arrived, _around(task, nearest)]


def _around(task: Task, values: Any) -> NdArray:
    """Values (n,) averaged over the graph."""
    xp = namespace(values)
    z = propagate(task.graph, xp.stack([values, xp.ones_like(values)], axis=1), _ALPHA, tolerance=1e-4).Z
    return to_numpy(z[:, 0] / z[:, 1])
