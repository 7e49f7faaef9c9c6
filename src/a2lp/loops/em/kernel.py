"""Expectation-maximisation on the graph of one task as compiled code, everything of the task in a core's cache.

The graph is that of label propagation, factored once; a round is one product with the inner products and one
substitution with the factor, for all classes at once. Rows of matrices are padded with zeros to whole vectors.

Sizes: s labelled of n points, c classes; ``*p`` are padded sizes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from a2lp.graph import DEGREE_OFFSET
from a2lp.kernels.compiler import compiled, fast_part
from a2lp.kernels.elementary import digamma, exp
from a2lp.kernels.graph import drop_ties, kth_largest, powers, weigh
from a2lp.kernels.linear import backward, factor, forward, product
from a2lp.kernels.simd import ALIGN, ROWS, VECTOR_BYTES, aligned, round_up

# places in the vector of parameters
GAMMA, ALPHA, TEMPERATURE, PRIOR, EQUAL_WEIGHT, UNEQUAL_WEIGHT, UNEQUAL, LEAST, SLACK = range(9)

_multiply = product(subtract=False, indexed=False)


class Workspace(NamedTuple):
    """The memory of one task's run, of one type; made once and used for task after task."""

    gram: Any  # (nr, np)
    sim: Any  # (nr, np)
    bits: Any  # sim as integers
    power: Any  # (nr, np)
    U: Any  # (nr, np)  W, then the factor
    scratch: Any  # (1, np)  what powers and weigh would give for anchors
    X: Any  # (nr, cp)  shares
    weights: Any  # (nr, cp)  of the points in the class means
    cross: Any  # (nr, cp)  inner products of points and means
    kth: Any  # (1, np)  each row's k-th largest similarity
    kth_bits: Any  # as integers
    vectors: Any  # (N_VECTORS, np)
    by_class: Any  # (3, cp)  counts, what is added to logits, masses
    rows: Any  # (np,)  stands for rows that are only looked up where they are indexed
    order: Any  # (n,)


THRESHOLD, DEGREE, SCALES, INVERSE, COUNT, N_VECTORS = range(6)


def make_workspace(n: int, c: int, k: int, dtype: Any) -> Workspace:
    """Memory for tasks of n points, c classes and k neighbours."""
    nr = round_up(n, ROWS)
    np_, cp = round_up(max(nr, k), ALIGN), round_up(c, ALIGN)
    shapes = {
        "gram": (nr, np_), "sim": (nr, np_), "power": (nr, np_), "U": (nr, np_), "scratch": (1, np_), "X": (nr, cp),
        "weights": (nr, cp), "cross": (nr, cp), "kth": (1, np_), "vectors": (N_VECTORS, np_), "by_class": (3, cp),
    }  # fmt: skip
    arrays = {name: aligned(shape, dtype) for name, shape in shapes.items()}
    as_integers = np.int32 if np.dtype(dtype).itemsize == 4 else np.int64
    views = {"bits": arrays["sim"].view(as_integers), "kth_bits": arrays["kth"].view(as_integers)}
    return Workspace(**views, rows=np.zeros(np_, np.int64), order=np.arange(n), **arrays)


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
    """Softmax over the classes of ``extra`` minus temperature times the squared distance but for |x|^2."""
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
    """Of the logarithms of the shares, by how unequal the classes' masses are."""
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
    _, sim, bits, power, U, scratch, _, _, _, kth, kth_bits, vectors, _, _, order = work
    nr, np_ = U.shape
    threshold, degree, scale, count = vectors[THRESHOLD], vectors[DEGREE], vectors[SCALES], vectors[COUNT]
    zero, one, slack = U.dtype.type(0), U.dtype.type(1), floats[SLACK]
    first = np.int64(0)  # typed: numba compiles a function anew for each literal
    for i in range(n):
        for j in range(n):
            sim[i, j] = gram[i, j]
        powers(sim, power, scratch, i, first, n, floats[GAMMA])
        sim[i, i] = -one
        power[i, i] = zero
        for j in range(n, np_):
            sim[i, j] = -one
        kth_bits[0, i] = kth_largest(bits, i * np_, np_, k, kth_bits[0, i])
        threshold[i] = (one - slack) * kth[0, i]
    for i in range(n, np_):
        threshold[i] = np.inf
    weigh(sim, power, threshold, n, np_, n, U, degree, scratch, count)
    for i in range(n):
        if count[i] > k and threshold[i] > 0:
            drop_ties(i, sim, power, threshold, slack, order, n, n, k, U, degree, scratch)
    for i in range(n):
        scale[i] = one / math.sqrt(degree[i] + U.dtype.type(DEGREE_OFFSET))
    for i in range(n):
        f = -floats[ALPHA] * scale[i]
        for j in range(np_):
            U[i, j] *= f * scale[j]
        U[i, i] = one
    for i in range(n, nr):
        for j in range(np_):
            U[i, j] = zero
        U[i, i] = one


@fast_part
def _means(X, weights, cross, gram, n, c, lanes, counts, squares, rows):
    """Inner products of the points with the class means under shares X, and of the means with themselves."""
    nr, np_ = gram.shape
    cp = X.shape[1]
    none, unit = np.int64(0), np.int64(1)
    for q in range(c):
        counts[q] = 0
        squares[q] = 0
    for i in range(n):
        for q in range(c):
            counts[q] += X[i, q]
    for i in range(n):
        for q in range(c):
            weights[i, q] = X[i, q] / counts[q]
    for i0 in range(0, nr, ROWS):
        _multiply(gram, i0 * np_, np_, unit, weights, none, cp, rows, none, n, cross, i0 * cp, cp, cp // lanes, lanes)
    for i in range(n):
        for q in range(c):
            squares[q] += weights[i, q] * cross[i, q]


@compiled()
def solve_tasks(grams, codes, floats, k, rounds, sinkhorn_rounds, shares, work):
    """All tasks, one after the other: grams (b, n, n), codes (b, s), shares (b, c, n) to be filled."""
    gram, _, _, _, U, _, X, weights, cross, _, _, vectors, by_class, rows, _ = work
    n, s, c = grams.shape[1], codes.shape[1], shares.shape[1]
    nr, np_ = U.shape
    cp = X.shape[1]
    lanes = VECTOR_BYTES // grams.itemsize
    counts, extra, squares = by_class[0], by_class[1], by_class[2]
    inverse, least, none = vectors[INVERSE], floats[LEAST], np.int64(0)
    for task in range(len(grams)):
        # the graph's thresholds, a row's and a column's, need the same number on both sides to the bit
        for i in range(n):
            for j in range(i + 1):
                gram[i, j] = grams[task, i, j]
                gram[j, i] = grams[task, i, j]
        _graph(n, k, floats, gram, work)
        factor(U, inverse, nr, np_, lanes, rows)
        for i in range(nr):
            for q in range(cp):
                X[i, q] = 0
        for q in range(c):
            extra[q] = 0
        for step in range(rounds + 1):
            if step > 0:
                _means(X, weights, cross, gram, n, c, lanes, counts, squares, rows)
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
            forward(U, inverse, X, none, nr, np_, cp, lanes, rows)
            backward(U, inverse, X, none, nr, nr, np_, cp, lanes, rows)
            _normalise_rows(X, s, n, c, least)
            _balance(X, s, n, c, sinkhorn_rounds, counts, least)
            _label(X, codes[task], cp)
        for i in range(n):
            for q in range(c):
                shares[task, q, i] = X[i, q]
