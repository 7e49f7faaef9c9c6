"""All rounds of the adaptive manifold in one CUDA launch, one thread block per task; for torch tensors on a GPU."""

from __future__ import annotations

from typing import Any

from a2lp.arrays import chunks, namespace
from a2lp.engines.contract import Points
from a2lp.graph import DEGREE_OFFSET, tie_slack
from a2lp.kernels import descent

SAME = 8  # squared distances below this many roundings of the lengths count as zero
_REALS = f"{descent.ADAM} {descent.OBJECTIVE} tau alpha same slack degree_offset"
_CHUNK_BYTES = 1 << 30  # of what is adapted


def refusal(points: Points, settings: Any) -> str | None:
    """Why the kernel cannot run these tasks, or None if it can."""
    return descent.refusal(points.vectors, points.n_classes, own_memory(points))


def run(points: Points, settings: Any) -> tuple[Any, Any]:
    """Z of all points (b, m, c), and the centroids (b, c, d) of the last round."""
    b, m, d = points.vectors.shape
    c, centroids = points.n_classes, points.class_means.contiguous()
    z = centroids.new_empty((b, m, c))
    parameters = make_parameters(points, settings)
    size = adapted_numbers(m, c, d)
    for part in chunks(b, max(1, _CHUNK_BYTES // (size * z.element_size()))):
        adapted = z.new_empty((len(z[part]), size))
        descent.launch(
            "am", points.vectors[part], points.codes[part], settings.adam, parameters.updates,
            (centroids[part], adapted, z[part]), parameters=parameters, own=own_memory(points),
        )  # fmt: skip
    return z, centroids


def adapted_numbers(m: int, c: int, d: int) -> int:
    """Of a task's scales and edges, with their moments, and the moments of its centroids."""
    return 4 * (2 * m + c) * (m + c) + 2 * c * d


def own_memory(points: Points) -> descent.Own:
    """Shared memory beside that of the descent."""
    vectors = points.vectors
    m, c, bits = int(vectors.shape[1]), points.n_classes, namespace(vectors).finfo(vectors.dtype).bits
    n = m + c
    padded = -(-n // 4) * 4
    row = (padded // 4 | 1) * 4
    doubles = 2 * descent.MOST_THREADS // 32 * 64 // bits
    system = padded * row
    rows = 4 * padded + 4 * c * padded + c * n + 2 * c * m + c + 3 * m + 3 * n
    return descent.Own(doubles + system + rows, reused=system)


def make_parameters(points: Points, settings: Any) -> Any:
    """The kernel's parameters."""
    dtype = points.vectors.dtype
    same = SAME * 2.0 ** (-52 if dtype.itemsize == 8 else -23)
    made = descent.params(dtype.itemsize, _REALS, "s k updates")
    return made(
        *settings.adam.constants, *settings.objective, settings.tau, settings.alpha, same, tie_slack(dtype),
        DEGREE_OFFSET, points.codes.shape[1], settings.n_neighbors, max(settings.steps - 1, 0),
    )  # fmt: skip
