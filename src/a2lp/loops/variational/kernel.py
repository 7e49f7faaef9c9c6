"""BAVARDAGE's rounds of one task after another as compiled code, with the task in a core's cache.

Arrays are (classes, points), so that softmax is loops over whole vectors. Rows of matrices are padded with zeros.
Symmetric matrices are computed above the diagonal and mirrored.

Sizes: s labelled of n points, c classes, d dimensions; ``*r`` and ``*p`` are padded sizes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from a2lp.kernels.compiler import compiled, fast_part, part
from a2lp.kernels.elementary import digamma, dot, exp
from a2lp.kernels.linear import factor, forward, matmul, multiply, multiply_transposed
from a2lp.kernels.simd import ALIGN, ROWS, VECTOR_BYTES, allocate, dot_block, round_up

# indices into the vector of parameters
MEANS_TEMPERATURE, TEMPERATURE, MEAN_PRIOR, SHARE_PRIOR, LARGEST_SQUARE, RIDGE, LEAST_RIDGE = range(7)


def padded(n: int, c: int, d: int) -> tuple[int, int, int]:
    """Sizes of arrays for n points, c classes and d dimensions."""
    return round_up(n, ROWS), round_up(c, ROWS), round_up(d, ALIGN)


def make_workspace(n: int, c: int, d: int, dtype: Any) -> tuple[Any, ...]:
    """Memory for tasks of n points, c classes and d dimensions."""
    nr, cr, dp = padded(n, c, d)
    np_ = round_up(nr, ALIGN)
    shapes = {
        "X": (nr, dp),  # whitened points
        "gram": (nr, np_),  # inner products
        "total U": (nr, np_),  # inner products of whitened points plus 25 gram, then of scaled points; its factor
        "R M": (nr, np_),  # the same minus 25 gram, then relative to the factor; R with signs as eigenvalues
        "A B": (nr, np_),  # scratch
        "shares weights": (cr, np_),  # and their weights in the class means
        "cross": (cr, np_),  # inner products of means and points, then logits
        "by_point": (3, np_),  # reciprocal pivots, largest logits, sums
    }
    return tuple(allocate(dtype, shapes).values())


@part
def _mirror(A):
    """Copy the entries above the diagonal below it."""
    for i in range(len(A)):
        for j in range(i):
            A[i, j] = A[j, i]


@fast_part
def _gram(X, out):
    """Inner products of rows."""
    (nr, dp), np_ = X.shape, out.shape[1]
    for i0 in range(0, nr, ROWS):
        for j0 in range(i0, nr, ROWS):
            dot_block(X, i0 * dp, X, j0 * dp, dp, dp, out, i0 * np_ + j0, np_)
    _mirror(out)


@part
def _symmetric(A, B, out):
    """A B where that is symmetric."""
    lanes, none = VECTOR_BYTES // A.itemsize, np.int64(0)  # typed: numba compiles a function anew for each literal
    for i0 in range(0, len(A), ROWS):
        multiply(A, B, A, none, len(A), out, i0, i0 // lanes * lanes)
    _mirror(out)


@fast_part
def _scale_gram(floats, steps, work):
    """Turn the inner products of whitened points in ``total`` into those of scaled points; see ``_scaled_gram``."""
    _, gram, total, U, R, M, A, B, _, _, _, by_point = work
    nr, np_ = gram.shape
    none = np.int64(0)
    largest = total.dtype.type(0)
    for i in range(nr):
        for j in range(np_):
            plain = floats[LARGEST_SQUARE] * gram[i, j]
            R[i, j] = total[i, j] - plain
            total[i, j] += plain
            U[i, j] = total[i, j]
            largest = max(largest, total[i, j])
    for i in range(nr):
        U[i, i] += floats[LEAST_RIDGE] + floats[RIDGE] * largest
    factor(U, by_point[0])
    for i in range(nr):
        for j in range(i):
            U[i, j] = 0
    # from the left, then with the transpose from the right
    forward(U, by_point[0], R, none)
    for i in range(nr):
        for j in range(i):
            R[i, j], R[j, i] = R[j, i], R[i, j]
    forward(U, by_point[0], R, none)
    for i in range(nr):
        for j in range(np_):
            M[i, j] = R[i, j]
    for step in range(len(steps)):
        a, b, c = steps[step, 0], steps[step, 1], steps[step, 2]
        _symmetric(M, M, A)
        _symmetric(A, A, B)
        for i in range(nr):
            for j in range(np_):
                B[i, j] = b * A[i, j] + c * B[i, j]
        _symmetric(M, B, A)
        for i in range(nr):
            for j in range(np_):
                M[i, j] = a * M[i, j] + A[i, j]
    _symmetric(R, M, A)
    half = total.dtype.type(0.5)
    matmul(A, U, nr, B)
    for i0 in range(0, nr, ROWS):
        # columns of the factor end at its diagonal
        multiply_transposed(U, B, U, none, i0 + ROWS, A, i0, none)
    for i in range(nr):
        for j in range(np_):
            total[i, j] = half * (total[i, j] - A[i, j])


@fast_part
def _label(shares, codes, n):
    """The support's shares as given; padding has none."""
    for q in range(len(shares)):
        for i in range(len(codes)):
            shares[q, i] = 0
        for i in range(n, shares.shape[1]):
            shares[q, i] = 0
    for i in range(len(codes)):
        shares[codes[i], i] = 1


@fast_part
def _count(shares, first):
    total = shares.dtype.type(0)
    for i in range(first, len(shares)):
        total += shares[i]
    return total


@fast_part
def _round(bayes, work, s, c, uniform, floats):
    """One round of variational Bayes on scaled points, or of soft k-means: new logits in ``cross`` and new shares."""
    _, plain, scaled, _, _, _, _, _, shares, weights, cross, by_point = work
    np_, none = shares.shape[1], np.int64(0)
    zero, one, two = plain.dtype.type(0), plain.dtype.type(1), plain.dtype.type(2)
    gram = scaled if bayes else plain
    temperature = floats[TEMPERATURE] if bayes else floats[MEANS_TEMPERATURE]
    prior = floats[MEAN_PRIOR] if bayes else zero
    top, total = by_point[1], by_point[2]
    for q in range(c):
        scale = one / (prior + _count(shares[q], none))
        for i in range(np_):
            weights[q, i] = scale * shares[q, i]
    matmul(weights, gram, len(gram), cross)
    for i in range(np_):
        top[i] = -np.inf
        total[i] = 0
    for q in range(c):
        extra = -temperature * dot(weights[q], cross[q])
        if bayes:
            extra -= gram.dtype.type(c - 1) / (two * (prior + _count(shares[q], none)))
            if not uniform:
                extra += gram.dtype.type(digamma(np.float64(floats[SHARE_PRIOR] + _count(shares[q], s))))
        for i in range(np_):
            cross[q, i] = two * temperature * cross[q, i] + extra
            top[i] = max(top[i], cross[q, i])
    for q in range(c):
        for i in range(np_):
            cross[q, i] -= top[i]
            shares[q, i] = exp(cross[q, i])
            total[i] += shares[q, i]
    for q in range(c):
        for i in range(np_):
            shares[q, i] /= total[i]


@compiled()
def solve_tasks(points, whitened, places, codes, floats, steps, rounds, uniform, logs, means, work):
    """All tasks, one after the other; logs (b, c, n - s) and means (b, cr, dp) are filled.

    points (b, nr, dp), padded; whitened (m, d); places (b, n): each task's rows of it; codes (b, s); steps (k, 3).
    """
    X, gram, total, _, _, _, _, _, shares, _, cross, by_point = work
    (b, n), s, c, d = places.shape, codes.shape[1], logs.shape[1], whitened.shape[1]
    none = np.int64(0)
    for task in range(b):
        for i in range(n):
            for j in range(d):
                X[i, j] = whitened[places[task, i], j]
        _gram(X, total)
        _gram(points[task], gram)
        _scale_gram(floats, steps, work)
        for q in range(c):
            for i in range(n):
                shares[q, i] = 0
        _label(shares, codes[task], n)
        for step in range(2 * rounds):
            _round(step >= rounds, work, s, c, uniform, floats)
            _label(shares, codes[task], n)
        for i in range(s, n):
            log = math.log(by_point[2, i])
            for q in range(c):
                logs[task, q, i - s] = cross[q, i] - log
        for q in range(c):
            scale = points.dtype.type(1) / _count(shares[q], none)
            for i in range(shares.shape[1]):
                shares[q, i] *= scale
        matmul(shares, points[task], points.shape[1], means[task])
