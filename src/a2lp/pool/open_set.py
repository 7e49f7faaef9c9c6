"""Which points probably belong to none of the labelled classes.

A method must choose among the classes it knows, so its confidence says little about points of other classes: far from
all labels, a point can still be much closer to one class than to the others. ``novelty`` combines two scores, each as
the point's rank among the unlabelled ones:

- how little of the labels propagation (alpha 0.8) brings to the point, before rows are normalised;
- how far its neighbourhood is from the nearest mean of a class's labelled points (cosines of whitened points, averaged
  over the graph with alpha 0.8).

They were chosen among 18 scores on validation pools: CUB ResNet-12, CLIP DTD, miniImageNet ResNet-12 and digits.
``benchmarks/open_set.py`` compares ``novelty`` with one minus the largest probability; docs/classify.md shows the
result.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from a2lp.pool.neighbours import NdArray, rows_of
from a2lp.pool.propagate import propagate
from a2lp.pool.rows import products
from a2lp.pool.solve import PoolAnswer
from a2lp.preprocess import l2

_ALPHA = 0.8


def novelty(answer: PoolAnswer) -> NdArray:
    """How little each point looks like any of the classes (n,), from 0 to 1; 0 where the label was given.

    The scores are ranks: 0.9 means that nine in ten of the unlabelled points look more like one of the classes. They do
    not tell how many points belong to no class.
    """
    task, new = answer.task, ~answer.given
    evidence = [answer.arrived]
    if (points := task.points) is not None:
        classes = range(task.n_classes)
        means = np.asarray(l2(np.stack([rows_of(points, task.codes == code).mean(axis=0) for code in classes])))

        def cosines(_: slice, x: NdArray) -> NdArray:
            nearest = (x @ means.T).max(axis=1)
            return np.stack([nearest, np.ones_like(nearest)], axis=1)

        y = products(points, cosines, np.empty((len(points), 2), means.dtype))
        z = propagate(task.graph, y, _ALPHA, tolerance=1e-4).Z
        evidence.append(z[:, 0] / z[:, 1])
    scores = np.zeros(len(new))
    if new.any():
        scores[new] = np.mean([rankdata(-one[new]) / new.sum() for one in evidence], axis=0)
    return scores
