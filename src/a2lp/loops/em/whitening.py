"""Local whitening of one task after another as compiled code; see ``products.locally_whitened``.

The matrix E E' + r I is positive definite, so a Cholesky factor and one forward substitution are enough. Rows of
matrices are padded with zeros. Sizes: n points; ``*r`` and ``*p`` are padded sizes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from a2lp.kernels.compiler import compiled, fast_part
from a2lp.kernels.graph import kth_largest
from a2lp.kernels.linear import factor, forward, subtract_transposed
from a2lp.kernels.simd import ALIGN, ROWS, VECTOR_BYTES, aligned, as_integers, round_up

RIDGE, LEAST_RIDGE, LEAST_SQUARE = range(3)  # indices into the vector of parameters


def make_workspace(n: int, dtype: Any) -> tuple[Any, ...]:
    """Memory for tasks of n points."""
    nr = round_up(n, ROWS)
    np_ = round_up(nr, ALIGN)
    # inner products of points, of points less their neighbours' means (E) and points, its transpose, and of E and E
    gram, across, back, U = (aligned((nr, np_), dtype) for _ in range(4))
    bits = as_integers(gram)
    keys = aligned((1, np_), bits.dtype)  # integers in the order of one row's inner products
    kth, near, counts = (np.zeros(shape, np.int64) for shape in (n, (n, n), n))
    return gram, bits, across, back, U, keys, kth, near, counts, tuple(aligned((2, np_), dtype))


@fast_part
def _find_neighbours(bits, n, k, keys, kth, near, counts):
    """Each point's k nearest neighbours, and those as near as the k-th."""
    # Numbers from -1.5 to 1.5 as non-negative integers in the same order: the bits of 1.5 plus or minus those of the
    # magnitude. Padding and the point itself are zero, below them all.
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
    gram, bits, across, back, U, keys, kth, near, counts, vectors = work
    n = grams.shape[1]
    nr, np_ = U.shape
    lanes = VECTOR_BYTES // grams.itemsize
    inverse, scale = vectors
    zero, one, none = U.dtype.type(0), U.dtype.type(1), np.int64(0)
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
        factor(U, inverse)
        forward(U, inverse, across, none)
        for i0 in range(0, nr, ROWS):
            subtract_transposed(across, across, across, none, n, gram, i0, i0 // lanes * lanes)
        for i in range(n):
            square = gram[i, i]
            scale[i] = one / math.sqrt(square) if square > floats[LEAST_SQUARE] else zero
        for i in range(n):
            for j in range(i, n):
                value = scale[i] * gram[i, j] * scale[j]
                grams[task, i, j] = value
                grams[task, j, i] = value
