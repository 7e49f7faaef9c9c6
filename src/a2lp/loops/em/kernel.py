"""Expectation-maximisation on the graph of one task as compiled code, with the task in a core's cache.

The graph is that of label propagation, factored once; a round is one product with the inner products and one
substitution with the factor, for all classes at once. Rows of matrices are padded with zeros.

Sizes: s labelled of n points, c classes; ``*p`` are padded sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from a2lp.kernels.compiler import compiled, fast_part
from a2lp.kernels.elementary import digamma, exp
from a2lp.kernels.graph import normalised_system, powers
from a2lp.kernels.linear import backward, factor, forward, matmul
from a2lp.kernels.simd import ALIGN, ROWS, allocate, as_integers, round_up

# indices into the vector of parameters
GAMMA, ALPHA, TEMPERATURE, PRIOR, EQUAL_WEIGHT, UNEQUAL_WEIGHT, UNEQUAL, LEAST, SLACK = range(9)


def make_workspace(n: int, c: int, k: int, dtype: Any) -> tuple[Any, ...]:
    """Memory for tasks of n points, c classes and k neighbours."""
    nr = round_up(n, ROWS)
    np_, cp = round_up(max(nr, k), ALIGN), round_up(c, ALIGN)
    shapes = {
        "gram sim power": (nr, np_),
        "U": (nr, np_),  # W, then the factor
        "scratch": (1, np_),  # results of powers and normalised_system that are not needed here
        "X weights cross": (nr, cp),  # shares, as weights in the class means, inner products of points and means
        "kth": (1, np_),  # each row's k-th largest similarity
        "vectors": (5, np_),
        "by_class": (3, cp),
    }
    work = allocate(dtype, shapes)
    work |= {"bits": as_integers(work["sim"]), "kth_bits": as_integers(work["kth"])}
    work |= {name: tuple(work[name]) for name in ("vectors", "by_class")}
    return *work.values(), np.arange(n)


@fast_part
def _normalise_rows(X, s, n, c, least):
    """Shares that sum to one; a point that nothing reaches has equal shares."""
    for i in range(s, n):
        total = X.dtype.type(0)
        for q in range(c):
            X[i, q] = max(X[i, q], X.dtype.type(0)) + least
            total += X[i, q]
        for q in range(c):
            X[i, q] /= total


@fast_part
def _balance(X, s, n, c, rounds, mass, least):
    """Sinkhorn's rounds: classes of equal mass, then points of mass one."""
    one = X.dtype.type(1)
    target = X.dtype.type(n - s) / X.dtype.type(c)
    for _ in range(rounds):
        for q in range(c):
            mass[q] = 0
        for i in range(s, n):
            for q in range(c):
                mass[q] += X[i, q]
        for q in range(c):
            mass[q] = target / max(mass[q], least)
        for i in range(s, n):
            total = X.dtype.type(0)
            for q in range(c):
                X[i, q] *= mass[q]
                total += X[i, q]
            total = one / max(total, least)
            for q in range(c):
                X[i, q] *= total


@fast_part
def _assign(X, cross, squares, s, n, c, temperature, extra):
    """Softmax over the classes of ``extra`` minus temperature times the squared distance, without |x|^2."""
    for i in range(s, n):
        top = X.dtype.type(-np.inf)
        for q in range(c):
            X[i, q] = temperature * (2 * cross[i, q] - squares[q]) + extra[q]
            top = max(top, X[i, q])
        total = X.dtype.type(0)
        for q in range(c):
            X[i, q] = exp(X[i, q] - top)
            total += X[i, q]
        total = X.dtype.type(1) / total
        for q in range(c):
            X[i, q] *= total


@fast_part
def _share_weight(mass, c, floats):
    """The weight of the logarithms of the shares, by how unequal the classes' masses are."""
    mean = mass.dtype.type(0)
    for q in range(c):
        mean += mass[q]
    mean = max(mean / mass.dtype.type(c), floats[LEAST])
    unequal = mass.dtype.type(0)
    for q in range(c):
        off = mass[q] / mean - mass.dtype.type(1)
        unequal += off * off
    unequal = min(unequal / mass.dtype.type(c) / floats[UNEQUAL], mass.dtype.type(1))
    return floats[EQUAL_WEIGHT] + (floats[UNEQUAL_WEIGHT] - floats[EQUAL_WEIGHT]) * unequal


@fast_part
def _label(X, codes, cp):
    for i in range(len(codes)):
        for q in range(cp):
            X[i, q] = 0
        X[i, codes[i]] = 1


@fast_part
def _graph(n, k, floats, gram, work):
    """U = I - alpha S, S the normalised graph of the inner products."""
    _, sim, power, U, scratch, _, _, _, kth, vectors, _, bits, kth_bits, order = work
    nr, np_ = U.shape
    threshold, degree, scale, _, count = vectors
    zero, one = U.dtype.type(0), U.dtype.type(1)
    first = np.int64(0)  # typed: numba compiles a function anew for each literal
    for i in range(n):
        for j in range(n):
            sim[i, j] = gram[i, j]
        powers(sim, power, scratch, i, first, n, floats[GAMMA])
        sim[i, i] = -one
        power[i, i] = zero
        for j in range(n, np_):
            sim[i, j] = -one
    for i in range(n, np_):
        threshold[i] = np.inf
    normalised_system(
        sim, bits, power, kth, kth_bits, floats[SLACK], order, n, n, k, floats[ALPHA], U, scratch, threshold, degree,
        scale, count,
    )  # fmt: skip
    for i in range(n, nr):
        for j in range(np_):
            U[i, j] = zero
        U[i, i] = one


@fast_part
def _means(X, weights, cross, gram, n, c, counts, squares):
    """Inner products of the points with the class means under shares X, and of the means with themselves."""
    for q in range(c):
        counts[q] = 0
        squares[q] = 0
    for i in range(n):
        for q in range(c):
            counts[q] += X[i, q]
    for i in range(n):
        for q in range(c):
            weights[i, q] = X[i, q] / counts[q]
    matmul(gram, weights, n, cross)
    for i in range(n):
        for q in range(c):
            squares[q] += weights[i, q] * cross[i, q]


@compiled()
def solve_tasks(grams, codes, floats, k, rounds, sinkhorn_rounds, shares, work):
    """All tasks, one after the other: grams (b, n, n), codes (b, s), shares (b, c, n) to be filled."""
    gram, _, _, U, _, X, weights, cross, _, vectors, by_class, _, _, _ = work
    n, s, c = grams.shape[1], codes.shape[1], shares.shape[1]
    nr, cp = X.shape
    counts, extra, squares = by_class  # masses, what is added to logits, squared lengths of the means
    inverse, least, none = vectors[3], floats[LEAST], np.int64(0)
    for task in range(len(grams)):
        # the graph's thresholds, by row and by column, need exactly the same number on both sides
        for i in range(n):
            for j in range(i + 1):
                gram[i, j] = grams[task, i, j]
                gram[j, i] = grams[task, i, j]
        _graph(n, k, floats, gram, work)
        factor(U, inverse)
        for i in range(nr):
            for q in range(cp):
                X[i, q] = 0
        for q in range(c):
            extra[q] = 0
        for step in range(rounds + 1):
            if step > 0:
                _means(X, weights, cross, gram, n, c, counts, squares)
                if sinkhorn_rounds == 0:
                    for q in range(c):
                        counts[q] = 0
                    for i in range(s, n):
                        for q in range(c):
                            counts[q] += X[i, q]
                    weight = _share_weight(counts, c, floats)
                    for q in range(c):
                        extra[q] = weight * digamma(np.float64(floats[PRIOR] + counts[q]))
                _assign(X, cross, squares, s, n, c, floats[TEMPERATURE], extra)
            _label(X, codes[task], cp)
            for i in range(n, nr):
                for q in range(cp):
                    X[i, q] = 0
            forward(U, inverse, X, none)
            backward(U, inverse, X, none, nr)
            _normalise_rows(X, s, n, c, least)
            _balance(X, s, n, c, sinkhorn_rounds, counts, least)
            _label(X, codes[task], cp)
        for i in range(n):
            for q in range(c):
                shares[task, q, i] = X[i, q]
