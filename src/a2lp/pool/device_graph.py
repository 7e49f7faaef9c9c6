"""The neighbour graph of points on a device: every point is compared with all others.

A block of rows is compared with all points by a product in float16. Of each row a few more candidates are kept than
neighbours are asked for, and their cosines are computed again in the precision of the points. The largest of a row are
found in two steps: columns are taken in groups, the groups with the largest maxima contain all of the largest values,
and only their members are looked at one by one.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from a2lp.arrays import chunks, like, to_numpy
from a2lp.graph import tie_slack
from a2lp.pool.device import TILE, Tensor
from a2lp.pool.device_solver import System, make_system
from a2lp.pool.graph import PoolGraph
from a2lp.pool.neighbours import SPARE, Lists, NdArray, Progress
from a2lp.pool.rows import products
from a2lp.pool.stages import Stages
from a2lp.pool.whiten import ROWS, Whitening, sampled, whitening_matrix
from a2lp.preprocess import l2

_MORE = 20  # candidates beyond the neighbours that are asked for
_GROUP = 32  # columns that are looked at together
_GROUPED = 4096  # points from which they are
_AGAIN = 2048  # rows whose candidates are compared again at a time


def search(x: Tensor, length: int, progress: Progress | None = None) -> Lists:
    """The ``length`` nearest others of each row of ``x`` (n, d), at most n - 1, as tensors."""
    import torch

    from a2lp.pool import _kernels as kernels

    n = len(x)
    kept = min(n, length + 1 + _MORE)
    group = _GROUP if n >= _GROUPED else 1
    width = -(-n // (8 * group)) * 8  # groups; of column j, the group is j % width
    coarse = x.new_zeros((group * width, x.shape[1]), dtype=torch.float16 if x.is_cuda else x.dtype)
    coarse[:n] = x
    sims = x.new_empty((n, length))
    indices = torch.empty((n, length), dtype=torch.int32, device=x.device)
    for part in chunks(n, max(1, TILE // (len(coarse) * coarse.element_size()))):
        found = _largest(coarse[part] @ coarse.T, kept, group)
        for some in chunks(len(found), _AGAIN):
            rows = slice(part.start + some.start, part.start + some.stop)
            best, places = _compare(x, rows, found[some])
            usable = best[:, :length] > float(kernels.TINY)
            sims[rows] = best[:, :length].masked_fill(~usable, float(kernels.TINY))
            indices[rows] = places[:, :length].masked_fill(~usable, int(kernels.NOBODY)).int()
        if progress is not None:
            progress(part.stop, n)
    return Lists(sims, indices)


def _largest(block: Tensor, kept: int, group: int) -> Tensor:
    """The columns of the largest values of each row (r, kept), in no order."""
    import torch

    if group == 1:
        return block.topk(kept, sorted=False).indices
    width = block.shape[1] // group
    groups = block.view(-1, group, width).amax(dim=1).topk(kept, sorted=False).indices  # (r, kept)
    members = torch.arange(group, device=block.device) * width
    columns = (groups[:, :, None] + members).flatten(1)  # (r, kept * group)
    return columns.gather(1, block.gather(1, columns).topk(kept, sorted=False).indices)


def _compare(x: Tensor, rows: slice, found: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines with candidates (r, kept), the largest first and of equal ones the lower row; -1 for the point itself."""
    import torch

    n = len(x)
    found = found.sort(dim=1).values
    others = x[found.clamp(max=n - 1)]  # (r, kept, d)
    sims = torch.bmm(others, x[rows, :, None])[:, :, 0]
    own = torch.arange(rows.start, rows.stop, device=x.device)[:, None]
    sims.masked_fill_((found == own) | (found >= n), -1)
    sims, order = sims.sort(dim=1, descending=True, stable=True)
    return sims, found.gather(1, order)


def choose(lists: Lists, k: int) -> tuple[Tensor, Tensor]:
    """``Lists.choose`` of lists on a device."""
    import torch

    from a2lp.pool import _kernels as kernels

    sims, indices = _tensors(lists)
    known = indices != int(kernels.NOBODY)
    slack = tie_slack(sims.dtype)
    low = sims[:, k - 1 : k] * (1 - slack)
    high = low * (1 + 2 * slack)
    above = sims > high
    tied = (sims >= low) & ~above & known
    # the place of each tied neighbour among all of them, by row
    place = torch.where(tied, indices, int(kernels.NOBODY)).argsort(dim=1, stable=True).argsort(dim=1)
    chosen = above | (tied & (place < k - above.sum(dim=1, keepdim=True)))
    full = known[:, k - 1 : k]
    return torch.where(full, chosen, known), known[:, -1] & full[:, 0] & (sims[:, -1] >= low[:, 0])


def neighbour_whitening(points: Tensor, n_neighbors: int = 5, ridge: float = 0.3) -> Whitening:
    """``whiten.neighbour_whitening`` of at least as many unit points as dimensions (n, d), n > 1, on their device."""
    rows = sampled(len(points))
    points = points[rows] if isinstance(rows, slice) else points[like(rows, points)]
    n, d = points.shape
    mean = to_numpy(points.double().mean(dim=0))
    k = min(n_neighbors, n - 1)
    matrix = whitening_matrix(_differences(points, search(points, k).indices) / (2 * n * k), d, ridge)
    return Whitening(mean, np.eye(d) if matrix is None else matrix)


def whitened(points: Tensor, whitening: Whitening) -> Tensor:
    """``Whitening.apply`` for unit points on a device."""
    mean, matrix = like(whitening.mean, points, points.dtype), like(whitening.matrix, points, points.dtype)
    out = points.new_empty((len(points), matrix.shape[1]))
    return products(points, lambda _, rows: l2((rows - mean) @ matrix), out)


def _tensors(lists: Lists) -> tuple[Tensor, Tensor]:
    return lists.similarities, lists.indices


def neighbour_graph(
    x: Tensor, k: int, gamma: float, progress: Progress | None = None, stages: Stages | None = None
) -> PoolGraph:
    """``graph.neighbour_graph`` by comparing all points (n, d) on their device, where its system stays."""
    if stages is None:
        return _make(x, k, gamma, progress)
    made: list[PoolGraph] = []

    def make() -> tuple[NdArray, ...]:
        made.append(_make(x, k, gamma, progress))
        weights, lists = made[0].weights, made[0].lists
        assert lists is not None
        return weights.data, weights.indices, weights.indptr, *lists

    arrays = stages.keep(f"graph {k} {gamma:g} exact", make)
    n = len(x)
    return made[0] if made else PoolGraph(sparse.csr_array(arrays[:3], shape=(n, n)), Lists(*arrays[3:]))


def _make(x: Tensor, k: int, gamma: float, progress: Progress | None) -> PoolGraph:
    lists = search(x, min(k + SPARE, len(x) - 1), progress)
    chosen, cut = choose(lists, k)
    if lists.indices.shape[1] < len(x) - 1 and bool(cut.any()):
        _choose_among_all(x, lists, chosen, cut.nonzero()[:, 0], k)
    return graph_of(lists, chosen, gamma)


def _choose_among_all(x: Tensor, lists: Lists, chosen: Tensor, rows: Tensor, k: int) -> None:
    """Choose again the neighbours of points whose lists end in a tie, of all points; the lists are changed."""
    import torch

    slack = tie_slack(x.dtype)
    for part in chunks(len(rows), max(1, TILE // (8 * len(x) * x.element_size()))):
        mine = rows[part]
        sims = (x[mine] @ x.T).clamp(min=0)
        sims.scatter_(1, mine[:, None], -1)
        low = sims.topk(k).values[:, -1:] * (1 - slack)
        above = sims > low * (1 + 2 * slack)
        tied = (sims >= low) & ~above
        taken = above | (tied & (tied.cumsum(dim=1) <= k - above.sum(dim=1, keepdim=True)))
        found = taken.nonzero()[:, 1].view(-1, k)
        lists.indices[mine, :k] = found.int()
        lists.similarities[mine, :k] = sims.gather(1, found)
        chosen[mine] = torch.arange(chosen.shape[1], device=x.device) < k


def graph_of(lists: Lists, chosen: Tensor, gamma: float) -> PoolGraph:
    """``graph.from_chosen`` of lists on a device."""
    import torch

    sims, indices = _tensors(lists)
    n = len(sims)
    rows, places = chosen.nonzero(as_tuple=True)
    columns = indices[rows, places].long()
    values = sims[rows, places]
    values = (values * values * values if gamma == 3 else values**gamma) / 2
    keys, order = torch.cat([rows * n + columns, columns * n + rows]).sort()
    values = values.repeat(2)[order]
    # an edge that both ends chose is there twice
    first = torch.ones_like(keys, dtype=torch.bool)
    first[1:] = keys[1:] != keys[:-1]
    both = torch.zeros_like(first)
    both[:-1] = ~first[1:]
    data = torch.where(both, values + values.roll(-1), values)[first]
    keys = keys[first][data > 0]  # powers may be rounded to zero
    data = data[data > 0]
    starts = torch.searchsorted(keys, torch.arange(n + 1, device=keys.device) * n)
    columns = (keys % n).int()
    kind = np.int32 if len(data) < 2**31 else np.int64
    weights = sparse.csr_array(
        (data.cpu().numpy(), columns.cpu().numpy(), starts.cpu().numpy().astype(kind)), shape=(n, n)
    )
    graph = PoolGraph(weights, Lists(sims.cpu().numpy(), indices.cpu().numpy()))
    graph._on_devices[data.device] = make_system(starts, columns, data)
    return graph


def components(system: System) -> Tensor:
    """The lowest point of each point's part of the graph (n,), all of whose points have a path to each other."""
    import torch

    n = len(system.offsets) - 1
    rows = torch.repeat_interleave(torch.arange(n, device=system.data.device), system.offsets.diff())
    columns, lowest = system.indices.long(), torch.arange(n, device=system.data.device)
    while True:
        found = lowest.scatter_reduce(0, rows, lowest[columns], "amin")
        found = found.scatter_reduce(0, lowest, found, "amin")  # what one point of a part learns, all do
        found = found[found]
        if bool((found == lowest).all()):
            return found
        lowest = found


def _differences(points: Tensor, indices: Tensor) -> NdArray:
    """The sum of the outer products of the differences between points (n, d) and their neighbours (n, k): (d, d)."""
    import torch

    total = torch.zeros((points.shape[1],) * 2, dtype=torch.float64, device=points.device)
    for part in chunks(len(points), ROWS):
        for column in indices[part].T:
            known = (column < len(points))[:, None]
            difference = (points[part] - points[column.long().clamp(max=len(points) - 1)]) * known
            total += difference.T @ difference
    return to_numpy(total)
