"""The report's map: places, colours and shapes of the points, and where the names of the classes go."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.spatial.distance import cdist

from a2lp.arrays import NDArray
from a2lp.labelling.sources import Progress
from a2lp.pool.graph import PoolGraph, from_sparse, neighbour_graph
from a2lp.pool.layout import layout
from a2lp.pool.solve import PoolAnswer

COLOURS, SHAPES = 8, 3  # more colours could not be told apart by everyone
_ON_MAP = 5000
_WHOLE = 100_000  # points up to which the whole graph is laid out, in half a minute of one core
_CLOSE = 0.04  # points within about this distance make a place dense
_MOST_OF_CLASS = 400  # points from which the densest place of a class is found


def make_map(answer: PoolAnswer, seed: int, progress: Progress | None = None) -> tuple[NDArray, NDArray]:
    """The points on the map (m,), all or a random sample with the labelled ones, and their places (m, 2) in [0, 1]."""
    n, rng = len(answer.labels), np.random.default_rng(seed)
    report = None if progress is None else partial(progress, "drawing the map")
    rows = np.arange(n)
    if n > _ON_MAP:
        first = np.argsort(~answer.given + rng.random(n), kind="stable")  # the given ones come first, in any order
        rows = np.sort(first[:_ON_MAP])
    if n <= _WHOLE:
        return rows, layout(answer.task.graph, seed=seed, progress=report)[rows]
    return rows, layout(_graph_of(answer, rows), seed=seed, progress=report)


def names(mine: NDArray, places: NDArray, n_classes: int) -> list[tuple[int, float, float, int | None]]:
    """The classes on the map, the largest first: the code, the densest place, and the mark.

    ``mine`` (m,) is each point's class, -1 for none. A mark is a colour plus 8 times a shape; None is grey.
    """
    sizes = np.bincount(mine[mine >= 0], minlength=n_classes)
    made = []
    for place, code in enumerate(np.argsort(-sizes, kind="stable").tolist()):
        if sizes[code] == 0:
            break
        points = places[mine == code][:_MOST_OF_CLASS]
        density = np.exp(-np.square(cdist(points, points) / _CLOSE)).sum(axis=1)
        x, y = points[density.argmax()].tolist()
        made.append((code, round(x, 4), round(y, 4), place if place < COLOURS * SHAPES else None))
    return made


def _graph_of(answer: PoolAnswer, rows: NDArray) -> PoolGraph:
    points, graph = answer.task.points, answer.task.graph
    if points is not None:  # so few of many are hardly neighbours of each other in the whole graph
        return neighbour_graph(points[rows], min(15, len(rows) - 1))
    return from_sparse(graph.weights[rows][:, rows])
