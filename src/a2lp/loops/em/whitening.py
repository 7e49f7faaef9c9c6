"""Local whitening of one task after another as compiled code; see ``products.locally_whitened`` for the meaning.

Averages of neighbours are sums of a few rows. What is divided by is positive definite, so that half of its Cholesky
solution and its square are all that is needed. Rows of matrices are padded with zeros to whole vectors.

Sizes: n points; ``*r`` and ``*p`` are padded sizes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from a2lp.kernels.compiler import compiled, fast_part
from a2lp.kernels.graph import kth_largest
from a2lp.kernels.linear import factor, forward, subtract
from a2lp.kernels.simd import ALIGN, ROWS, VECTOR_BYTES, aligned, round_up

RIDGE, LEAST_RIDGE, LEAST_SQUARE = range(3)  # places in the vector of parameters


class Workspace(NamedTuple):
    """The memory of one task's run, of one type; made once and used for task after task."""

    gram: Any  # (nr, np)
    bits: Any  # as integers
    across: Any  # (nr, np)  inner products of points less their neighbours' means, and points
    back: Any  # (nr, np)  its transpose
    U: Any  # (nr, np)  inner products of points less their neighbours' means, then the factor
    keys: Any  # (1, np)  integers in the order of one row's inner products
    kth: Any  # (n,)  each row's k-th largest key
    near: Any  # (n, n)  each point's neighbours
    counts: Any  # (n,)  of neighbours
    vectors: Any  # (2, np)  reciprocal pivots, scales
    rows: Any  # (1,)  stands for rows that are only looked up where they are indexed


def make_workspace(n: int, dtype: Any) -> Workspace:
    """Memory for tasks of n points."""
    nr = round_up(n, ROWS)
    np_ = round_up(nr, ALIGN)
    gram, across, back, U = (aligned((nr, np_), dtype) for _ in range(4))
    bits = gram.view(np.int32 if np.dtype(dtype).itemsize == 4 else np.int64)
    kth, near, counts, rows = (np.zeros(shape, np.int64) for shape in (n, (n, n), n, 1))
    keys, vectors = aligned((1, np_), bits.dtype), aligned((2, np_), dtype)
    return Workspace(gram, bits, across, back, U, keys, kth, near, counts, vectors, rows)


@fast_part
def _find_neighbours(bits, n, k, keys, kth, near, counts):
    """Each point's k nearest, and those as near as the k-th."""
    # Numbers up to 1.5 either side of zero as integers that are not negative: magnitudes counted from that of 1.5,
    # up or down by the sign. What is padded and the point itself stay below them all.
    middle = 0x3FC00000 if bits.itemsize == 4 else 0x3FF8000000000000
    magnitude = 0x7FFFFFFF if bits.itemsize == 4 else 0x7FFFFFFFFFFFFFFF
    none = np.int64(0)  # typed: numba compiles a function anew for each literal
    for i in range(n):
        for j in range(n):
            value = bits[i, j]
            keys[0, j] = middle + value if value >= 0 else middle - (value & magnitude)
        keys[0, i] = 0
        kth[i] = kth_largest(keys, none, keys.shape[1], k, kth[i])
        found = 0
        for j in range(n):
            near[i, found] = j
            found += keys[0, j] >= kth[i]
        counts[i] = found


@fast_part
def _less_means(A, near, counts, n, out):
    """Rows less the means of their neighbours' rows."""
    np_ = A.shape[1]
    for i in range(n):
        for j in range(np_):
            out[i, j] = 0
        for a in range(counts[i]):
            other = near[i, a]
            for j in range(np_):
                out[i, j] += A[other, j]
        share = A.dtype.type(1) / A.dtype.type(counts[i])
        for j in range(np_):
            out[i, j] = A[i, j] - share * out[i, j]


@compiled()
def whiten_tasks(grams, k, floats, work):
    """All tasks, one after the other: grams (b, n, n) of unit points are replaced."""
    gram, bits, across, back, U, keys, kth, near, counts, vectors, rows = work
    n = grams.shape[1]
    nr, np_ = U.shape
    lanes = VECTOR_BYTES // grams.itemsize
    inverse, scale = vectors[0], vectors[1]
    zero, one, none, unit = U.dtype.type(0), U.dtype.type(1), np.int64(0), np.int64(1)
    for task in range(len(grams)):
        for i in range(n):
            for j in range(i + 1):
                gram[i, j] = grams[task, i, j]
                gram[j, i] = grams[task, i, j]
        _find_neighbours(bits, n, k, keys, kth, near, counts)
        _less_means(gram, near, counts, n, across)
        for i in range(n):
            for j in range(n):
                back[j, i] = across[i, j]
        _less_means(back, near, counts, n, U)
        spread = zero
        for i in range(n):
            spread += max(U[i, i], zero)
        for i in range(n):
            U[i, i] += floats[RIDGE] * spread + floats[LEAST_RIDGE]
        for i in range(n, nr):
            for j in range(np_):
                U[i, j] = zero
            U[i, i] = one
        factor(U, inverse, nr, np_, lanes, rows)
        forward(U, inverse, across, none, nr, np_, np_, lanes, rows)
        for i0 in range(0, nr, ROWS):
            v = i0 // lanes
            j0 = v * lanes
            subtract(
                across, i0, unit, np_, across, j0, np_, rows, none, n, gram, i0 * np_ + j0, np_, np_ // lanes - v, lanes
            )
        for i in range(n):
            square = gram[i, i]
            scale[i] = one / math.sqrt(square) if square > floats[LEAST_SQUARE] else zero
        for i in range(n):
            for j in range(i, n):
                value = scale[i] * gram[i, j] * scale[j]
                grams[task, i, j] = value
                grams[task, j, i] = value
