"""Expectation-maximisation on the graph of one task as compiled code, with the task in a core's cache.

The graph is that of label propagation, factored once for all runs; a round is one product with the inner products and
one substitution with the factor, for all classes at once. Rows of matrices are padded with zeros.

Sizes: s labelled of n points, c classes; ``*p`` are padded sizes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from a2lp.kernels.compiler import compiled, fast_part
from a2lp.kernels.elementary import digamma, exp
from a2lp.kernels.graph import normalised_system, powers, whole_powers
from a2lp.kernels.linear import backward, factor, forward, matmul
from a2lp.kernels.simd import ALIGN, ROWS, aligned, allocate, as_integers, round_up

# indices into the vector of parameters
GAMMA, ALPHA, SLACK = range(3)  # of graphs
TEMPERATURE, SHARE_WEIGHT, MEAN_PRIOR, PULL, LEAST = range(5)  # of rounds


def make_workspace(n: int, c: int, k: int, dtype: Any) -> tuple[Any, ...]:
    """Memory for tasks of n points, c classes and k neighbours."""
    nr = round_up(n, ROWS)
    np_, cp = round_up(max(nr, k), ALIGN), round_up(c, ALIGN)
    shapes = {
        "gram sim power": (nr, np_),
        "scratch": (1, np_),  # results of powers and normalised_system that are not needed here
        "X weights cross": (nr, cp),  # shares, as weights in the class means, inner products of points and means
        "kth": (1, np_),  # each row's k-th largest similarity
        "vectors": (4, np_),
        "by_class": (3, cp),
    }
    work = allocate(dtype, shapes)
    work |= {"bits": as_integers(work["sim"]), "kth_bits": as_integers(work["kth"])}
    work |= {name: tuple(work[name]) for name in ("vectors", "by_class")}
    return *work.values(), np.arange(n)


def make_factors(b: int, n: int, k: int, dtype: Any) -> tuple[Any, Any]:
    """Memory for the factored graphs of b tasks of n points with k neighbours."""
    nr = round_up(n, ROWS)
    np_ = round_up(max(nr, k), ALIGN)
    return aligned((b * nr, np_), dtype).reshape(b, nr, np_), aligned((b, np_), dtype)


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
def _assign(X, cross, squares, s, n, c, temperature, extra, bias):
    """Softmax over the classes of what is added minus temperature times the squared distance, without |x|^2."""
    for i in range(s, n):
        top = X.dtype.type(-np.inf)
        for q in range(c):
            X[i, q] = temperature * (2 * cross[i, q] - squares[q]) + extra[q] + bias[q, i]
            top = max(top, X[i, q])
        total = X.dtype.type(0)
        for q in range(c):
            X[i, q] = exp(X[i, q] - top)
            total += X[i, q]
        total = X.dtype.type(1) / total
        for q in range(c):
            X[i, q] *= total


@fast_part
def _log_shares(X, s, n, c, concentrations, weights, floats, mass, extra):
    """What the classes' masses add to the logits: expected logarithms of shares, and the pull to expected masses."""
    for q in range(c):
        mass[q] = 0
    for i in range(s, n):
        for q in range(c):
            mass[q] += X[i, q]
    rest = np.float64(n - s)
    for q in range(c):
        found = np.float64(mass[q])
        logarithm, expected = 0.0, 0.0
        for a in range(len(concentrations)):
            prior, weight = np.float64(concentrations[a]), np.float64(weights[a])
            logarithm += weight * digamma(found + prior)
            expected += weight * (found + prior) * rest / (rest + c * prior)
        pull = math.log((expected + 1.0) / (found + 1.0))
        extra[q] = np.float64(floats[SHARE_WEIGHT]) * logarithm + np.float64(floats[PULL]) * pull


@fast_part
def _label(X, codes, cp):
    for i in range(len(codes)):
        for q in range(cp):
            X[i, q] = 0
        X[i, codes[i]] = 1


@fast_part
def _graph(n, k, floats, gram, U, work):
    """U = I - alpha S, S the normalised graph of the inner products."""
    _, sim, power, scratch, _, _, _, kth, vectors, _, bits, kth_bits, order = work
    nr, np_ = U.shape
    threshold, degree, scale, count = vectors
    zero, one = U.dtype.type(0), U.dtype.type(1)
    first = np.int64(0)  # typed: numba compiles a function anew for each literal
    for i in range(n):
        for j in range(n):
            sim[i, j] = gram[i, j]
        if floats[GAMMA] == np.floor(floats[GAMMA]):
            whole_powers(sim, power, scratch[first], i, n, floats[GAMMA])
        else:
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
def _means(X, weights, cross, gram, n, c, prior, counts, squares):
    """Inner products of the points with the class means under shares X, and of the means with themselves.

    ``prior`` points at the centre, which is the origin, are added to each class.
    """
    for q in range(c):
        counts[q] = 0
        squares[q] = 0
    for i in range(n):
        for q in range(c):
            counts[q] += X[i, q]
    for i in range(n):
        for q in range(c):
            weights[i, q] = X[i, q] / (counts[q] + prior)
    matmul(gram, weights, n, cross)
    for i in range(n):
        for q in range(c):
            squares[q] += weights[i, q] * cross[i, q]


@fast_part
def _fill(gram, matrix, n):
    """A task's inner products; the graph's thresholds need exactly the same number on both sides of the diagonal."""
    for i in range(n):
        for j in range(i + 1):
            gram[i, j] = matrix[i, j]
            gram[j, i] = matrix[i, j]


@compiled()
def factor_tasks(grams, floats, k, factors, inverses, work):
    """The factored graphs of all tasks: grams (b, n, n); factors (b, nr, np) and inverses (b, np) to be filled."""
    gram, n = work[0], grams.shape[1]
    for task in range(len(grams)):
        _fill(gram, grams[task], n)
        _graph(n, k, floats, gram, factors[task], work)
        factor(factors[task], inverses[task])


@compiled()
def solve_tasks(
    grams, factors, inverses, codes, bias, concentrations, weights, floats, rounds, sinkhorn_rounds, shares, work
):
    """All tasks, one after the other: grams (b, n, n), codes (b, s); shares (b, c, n) are replaced.

    ``bias`` (b, c, n) is added to the logits. No rounds are label propagation, whatever the shares were.
    """
    gram, _, _, _, X, means, cross, _, _, by_class, _, _, _ = work
    n, s, c = grams.shape[1], codes.shape[1], shares.shape[1]
    nr, cp = X.shape
    counts, extra, squares = by_class  # masses, what is added to logits, squared lengths of the means
    least, none = floats[LEAST], np.int64(0)
    for task in range(len(grams)):
        U, inverse = factors[task], inverses[task]
        _fill(gram, grams[task], n)
        for i in range(nr):
            for q in range(cp):
                X[i, q] = 0
        for q in range(c):
            extra[q] = 0
        for i in range(n if rounds > 0 else 0):
            for q in range(c):
                X[i, q] = shares[task, q, i]
        for _ in range(max(rounds, 1)):
            if rounds > 0:
                _means(X, means, cross, gram, n, c, floats[MEAN_PRIOR], counts, squares)
                if sinkhorn_rounds == 0:
                    _log_shares(X, s, n, c, concentrations, weights[task], floats, counts, extra)
                _assign(X, cross, squares, s, n, c, floats[TEMPERATURE], extra, bias[task])
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
