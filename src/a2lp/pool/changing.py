"""Points that come to a pool and leave it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from a2lp.errors import InputError
from a2lp.pool.graph import PoolGraph
from a2lp.pool.growth import grown, shrunk
from a2lp.pool.methods import GAMMA, N_NEIGHBORS
from a2lp.pool.names import Names
from a2lp.pool.neighbours import NdArray
from a2lp.pool.whiten import Whitening


class ChangingPoints(ABC):
    """The part of ``Pool`` that adds and removes points."""

    whitening: Whitening | None
    points: NdArray | None
    names: Names | None
    graph: PoolGraph
    _given: dict[int, tuple[Any, str]]
    _history: list[dict[int, tuple[Any, str] | None]]

    def __len__(self) -> int:
        return self.graph.n

    def add(self, x: Any, labels: Any = None, how: Any = "") -> None:
        """Add points (m, d) after the others, with their labels, without building the graph again.

        They are whitened as the first ones were. Their neighbours are found among all points, and they become
        neighbours of the others where they are nearer than those that these had: as if they had been there from the
        start. Earlier calls of ``label`` can no longer be taken back.
        """
        whitening, points = self._movable()
        old = len(self)
        points = np.concatenate([points, whitening.apply(x).astype(points.dtype)])
        self.points, self.graph = points, grown(self.graph, points, N_NEIGHBORS, GAMMA)
        self._start_anew()
        if labels is not None:
            self.label(slice(old, None), labels, how)
            self._history.clear()

    def remove(self, rows: Any) -> None:
        """Remove points, with their labels, without building the graph again; later rows move up.

        Earlier calls of ``label`` can no longer be taken back.
        """
        _, points = self._movable()
        kept = np.ones(len(self), bool)
        kept[self._places(rows)] = False
        if kept.sum() <= N_NEIGHBORS:
            raise InputError(f"{kept.sum()} points would remain, and a pool of so few is made anew. Make another Pool.")
        points = points[kept]
        self.points, self.graph = points, shrunk(self.graph, points, kept, N_NEIGHBORS, GAMMA)
        place = np.cumsum(kept) - 1
        self._given = {int(place[row]): label for row, label in self._given.items() if kept[row]}
        self._start_anew()

    def _movable(self) -> tuple[Whitening, NdArray]:
        """What is needed for points to come and go."""
        if self.names is not None:
            raise InputError("points do not come and go in a pool with class names. Make another Pool of all points.")
        points = self.points
        if self.whitening is None or points is None or self.graph.lists is None or len(self) <= N_NEIGHBORS:
            raise InputError(
                f"points come and go in a pool that was made from more than {N_NEIGHBORS} points; this one has "
                f"{len(self)}, or was made from a graph. Make another Pool."
            )
        return self.whitening, points

    @abstractmethod
    def label(self, rows: Any, labels: Any, how: Any = "") -> None:
        """Set or remove the labels of some points."""

    @abstractmethod
    def _places(self, rows: Any) -> NdArray:
        """Positions of points, checked."""

    @abstractmethod
    def _start_anew(self) -> None:
        """Forget everything that belongs to points that were there before."""
