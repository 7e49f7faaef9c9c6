"""From points to the whitened points and the graph of a pool, and how both change with the points."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.errors import InputError
from a2lp.pool.device import unit_points
from a2lp.pool.forecast import check_memory
from a2lp.pool.graph import PoolGraph, neighbour_graph
from a2lp.pool.methods import GAMMA, N_NEIGHBORS
from a2lp.pool.neighbours import Progress, check_points
from a2lp.pool.stages import Stages, release
from a2lp.pool.whiten import Whitening, neighbour_whitening
from a2lp.scale import Cluster

_RIDGE_LOW, _RIDGE_HIGH = 0.3, 3.0


def whitened_graph(
    x: Any,
    progress: Progress | None = None,
    folder: str | Path | None = None,
    memory_limit: int | None = None,
    *,
    named: bool = False,
    device: Any = None,
    cluster: Cluster | None = None,
) -> tuple[Whitening, Any, PoolGraph]:
    """The whitening of points (n, d), their whitened unit vectors (n, r), and the neighbour graph of these.

    The ridge of the whitening is 2 d / n, between 0.3 and 3: with fewer points per dimension, directions of small
    variance are known less well. With names it has all dimensions, whatever the points span, and a ridge of 0.3. What
    each stage found is kept in ``folder``, from which a run that was ended goes on. Pools that will need more bytes
    than ``memory_limit`` are refused. With a torch ``device``, the whitened points are a tensor there.
    On a ``cluster``, neighbours are found by its workers, which must see the folder under the same name.
    """
    if cluster is not None and (folder is None or device is not None):
        raise InputError(
            f"scheduler {cluster.scheduler} has workers that find neighbours on their CPUs, in files of a folder that "
            f"they share with this process; found folder={folder} and device={device or 'cpu'}. Name a folder with "
            "--folder DIR (in Python: folder=), and use device='cpu'."
        )
    x = check_points(x)
    n, d = x.shape
    if n < 2:
        raise InputError("a pool needs at least two points, and n_samples=1. Add points.")
    check_memory(n, d, memory_limit, 8 if x.dtype == np.float64 else 4)
    ridge = _RIDGE_LOW if named else float(np.clip(2 * d / n, _RIDGE_LOW, _RIDGE_HIGH))
    stages = Stages(folder, x, "with names" if named else "")
    make = partial(neighbour_whitening, x, ridge=ridge, spanned=not named)
    k = min(N_NEIGHBORS, n - 1)
    if device is not None:
        from a2lp.pool import device_graph

        unit = unit_points(x, device)
        release(x)
        if n >= d:  # fewer are few, and have coordinates of their own
            make = partial(device_graph.neighbour_whitening, unit, ridge=ridge)
        whitening = Whitening(*stages.keep("whitening", make))
        points = device_graph.whitened(unit, whitening)
        del unit, make
        return whitening, points, device_graph.neighbour_graph(points, k, GAMMA, progress, stages)
    whitening = Whitening(*stages.keep("whitening", make))
    points = whitening.apply(x, stages)
    release(x, points)
    return whitening, points, neighbour_graph(points, k, GAMMA, progress=progress, stages=stages, cluster=cluster)
