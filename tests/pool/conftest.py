"""Answers about a pool, without the session."""

from __future__ import annotations

from typing import Any

import pytest

from a2lp.encoding import encode_labels
from a2lp.pool.graph import PoolGraph
from a2lp.pool.methods import Task
from a2lp.pool.prepare import whitened_graph
from a2lp.pool.solve import PoolAnswer, solve


@pytest.fixture(scope="session")
def answer() -> Any:
    """A function of points and graph (or of what they are made from), labels and method."""

    def answered(space: Any, labels: Any, method: str = "auto") -> PoolAnswer:
        if isinstance(space, PoolGraph):
            space = None, space
        points, graph = space[-2:] if isinstance(space, tuple) else whitened_graph(space)[1:]
        classes, codes = encode_labels(labels, range(graph.n))
        return solve(Task(points, graph, codes, len(classes)), classes, method)

    return answered
