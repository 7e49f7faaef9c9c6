"""Pools on a GPU: which device is used, what fits on it, and the points there.

Points, graph and everything with a row for each point and a column for each class stay on the device; labels go there,
and what an answer says about each point comes back. torch is imported only where a device may be used.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from a2lp.arrays import chunks
from a2lp.checks import shown
from a2lp.errors import InputError, install_command
from a2lp.files import reason
from a2lp.pool.neighbours import NdArray, unit_rows
from a2lp.preprocess import l2

Tensor = Any  # torch.Tensor

_PAYS = 20_000  # points from which a GPU is faster, with the seconds in which torch is loaded
_ROWS = 65_536  # that are copied at a time
TILE = 2 << 30  # bytes of cosines that are held at a time


def choose(device: Any, shape: tuple[int, int]) -> Any:
    """The torch device for points (n, d), or None for NumPy.

    Parameters
    ----------
    device : str
        "auto" (a GPU, where torch sees one, for pools that are large enough and fit), "cpu", "cuda", "cuda:1"; other
        devices of torch are for image networks, and mean NumPy.
    """
    if not isinstance(device, str):  # a torch.device
        return device
    if device == "cpu" or (device == "auto" and (shape[0] < _PAYS or find_spec("torch") is None)):
        return None
    if find_spec("torch") is None:
        raise InputError(f"device={shown(device)} needs torch: {install_command('torch')}. Or use device='cpu'.")
    import torch

    if device == "auto":
        if not torch.cuda.is_available():
            return None
        chosen = torch.device("cuda")
        return chosen if needed(*shape) <= torch.cuda.mem_get_info(chosen)[0] else None
    try:
        chosen = torch.device(device)
        if chosen.type != "cuda":
            return None
        free = torch.cuda.mem_get_info(chosen)[0]
    except (RuntimeError, AssertionError, ValueError) as error:
        raise InputError(
            f"device={shown(device)} cannot be used ({reason(error)}). Choose auto, cpu, or cuda on a GPU."
        ) from error
    if (wanted := needed(*shape)) > free:
        raise InputError(
            f"a pool of {shape[0]:,} points of {shape[1]} dimensions takes about {wanted / 2**30:.2g} GiB of {device}, "
            f"where {free / 2**30:.2g} GiB are free. Use fewer points or dimensions, or device='cpu'."
        )
    return chosen


def needed(n: int, d: int, n_classes: int = 50, k: int = 28) -> int:
    """Bytes of the device that a pool takes: while its graph is made, or answers are."""
    points, lists = 4 * n * d, 8 * n * k
    search = points + points // 2 + 1.4 * min(TILE, 2 * n * n) + lists  # once more in float16, and what a tile becomes
    edges = points + 8 * lists  # while rows and columns are put in order
    answer = points + 2 * lists + 14 * 4 * n * n_classes
    return int(max(2 * points, search, edges, answer)) + (1 << 29)


def unit_points(x: NdArray, device: Any) -> Tensor:
    """The caller's points at unit length on the device, in float64 if they are, else in float32."""
    import torch

    out = copied(x, device)
    for part in chunks(len(x), _ROWS):
        if not bool(torch.isfinite(out[part]).all()):
            unit_rows(x, part)  # says which row
        out[part] = l2(out[part])
    return out


def copied(x: NdArray, device: Any) -> Tensor:
    """Rows (n, d) on the device, in float64 if they are, else in float32."""
    import torch

    kind = torch.float64 if x.dtype == np.float64 else torch.float32
    out = torch.empty(x.shape, dtype=kind, device=device)
    for part in chunks(len(x), _ROWS):
        rows = x[part]
        if rows.dtype not in (np.float16, np.float32, np.float64):
            rows = rows.astype(np.float32)
        if not rows.flags.writeable:  # torch refuses these
            rows = rows.copy()
        out[part] = torch.from_numpy(np.ascontiguousarray(rows)).to(device)
    return out
