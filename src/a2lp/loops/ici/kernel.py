"""Credibility of instances of one task, ICI's path of a group lasso, as compiled code in float64.

The problem is convex, so this solver finds the same solution as the authors'. Arrays are (classes, points), so that
loops run along whole vectors. Sizes: n points, c classes, r dimensions of the reduced points.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from a2lp.kernels.compiler import compiled, fast_part
from a2lp.kernels.elementary import dot
from a2lp.kernels.logistic import LEAST_STEP, MOST_STEPS, ROUNDING, SLOPE, combine

_GRID, _SMALLEST = 100, 1e-3  # penalties on the path, from the largest down to this share of it
_EXACT = 1e-9


@fast_part
def _residuals(Y, UT, B, out, squares):
    """Y - B' U', and its squared lengths."""
    c, n = Y.shape
    for j in range(n):
        squares[j] = 0
    for q in range(c):
        row = out[q]
        for j in range(n):
            row[j] = Y[q, j]
        for a in range(len(UT)):
            factor, column = B[a, q], UT[a]
            for j in range(n):
                row[j] -= factor * column[j]
        for j in range(n):
            squares[j] += row[j] * row[j]


@fast_part
def _huber(squares, penalty):
    total = 0.0
    for j in range(len(squares)):
        size = math.sqrt(squares[j])
        total += 0.5 * squares[j] if size <= penalty else penalty * (size - 0.5 * penalty)
    return total


@fast_part
def _newton_step(UT, R, squares, penalty, weight, bent, H, gradient, x, step):
    """Newton's step for B (r, c) at these residuals into ``step``; its slope and the gradient's largest entry."""
    (r, n), c = UT.shape, len(R)
    for j in range(n):
        weight[j] = penalty / math.sqrt(squares[j]) if squares[j] > penalty * penalty else 1.0
    top = 0.0
    for a in range(r):
        for q in range(c):
            total, row = 0.0, bent[a * c + q]
            for j in range(n):
                row[j] = UT[a, j] * R[q, j]
                total -= weight[j] * row[j]
            gradient[a * c + q] = total
            top = max(top, abs(total))
    if top <= _EXACT * penalty:
        return 0.0, top
    # a residual beyond the penalty has no curvature along itself
    for k in range(r * c):
        for j in range(n):
            bent[k, j] *= math.sqrt(weight[j] / squares[j]) if weight[j] < 1 else 0.0
    for a in range(r):
        for b in range(a + 1):
            total = 0.0
            for j in range(n):
                total += weight[j] * UT[a, j] * UT[b, j]
            for q in range(c):
                for p in range(c):
                    H[a * c + q, b * c + p] = total if p == q else 0.0
    for k in range(r * c):
        for m in range(k + 1):
            H[k, m] -= dot(bent[k], bent[m])
        H[k, k] += _EXACT * penalty
    _solve(H, gradient, x, step)
    slope = 0.0
    for k in range(r * c):
        slope += gradient[k] * step[k // c, k % c]
    return slope, top


@fast_part
def _solve(H, gradient, x, step):
    """Minus H^-1 times the gradient into ``step``, by Cholesky; H is lost."""
    size, c = len(H), step.shape[1]
    for k in range(size):
        x[k] = -gradient[k]
        for m in range(k + 1):
            total = H[k, m]
            for j in range(m):
                total -= H[k, j] * H[m, j]
            H[k, m] = math.sqrt(max(total, 1e-300)) if m == k else total / H[m, m]
        for j in range(k):
            x[k] -= H[k, j] * x[j]
        x[k] /= H[k, k]
    for k in range(size - 1, -1, -1):
        for j in range(k + 1, size):
            x[k] -= H[j, k] * x[j]
        x[k] /= H[k, k]
        step[k // c, k % c] = x[k]


def make_path_memory(r: int, c: int, n: int) -> tuple[Any, ...]:
    """Memory of ``credibility`` for r dimensions, c classes and n points."""
    shapes = [(r, c)] * 3 + [(c, n)] * 2 + [(n,)] * 3 + [(r * c, n), (r * c, r * c)] + [(r * c,)] * 2
    return tuple(np.empty(shape) for shape in shapes)


@compiled()
def credibility(UT, Y, place, share, work):
    """At which penalty each instance first needs no correction, and its residual there.

    The authors' group lasso of corrections G on Y - U B - G, with decreasing penalties on a grid, is a fit of B by
    Huber's loss on residuals' lengths: corrections are zero where a residual is within the penalty.

    UT (r, n) has orthonormal rows, Y (c, n). ``place`` (n,) receives indices on the grid, 0 for the smallest penalty,
    ``share`` (n,) the residuals' lengths over the penalty; both start as zeros. work: from ``make_path_memory``.
    """
    (r, n), c = UT.shape, len(Y)
    B, trial_B, step, R, trial_R, squares, trial_squares, weight, bent, H, gradient, x = work
    for a in range(r):
        for q in range(c):
            B[a, q] = 0
            for j in range(n):
                B[a, q] += UT[a, j] * Y[q, j]
    _residuals(Y, UT, B, R, squares)
    largest = 0.0
    for j in range(n):
        largest = max(largest, math.sqrt(squares[j]))
    if largest == 0:
        return
    for k in range(_GRID):
        penalty = largest * _SMALLEST ** (k / (_GRID - 1))
        value = _huber(squares, penalty)
        for _ in range(MOST_STEPS):
            slope, top = _newton_step(UT, R, squares, penalty, weight, bent, H, gradient, x, step)
            if top <= _EXACT * penalty:
                break
            size, now = 1.0, value
            while size > LEAST_STEP:
                combine(B, size, step, trial_B)
                _residuals(Y, UT, trial_B, trial_R, trial_squares)
                now = _huber(trial_squares, penalty)
                if now <= value + SLOPE * size * slope + ROUNDING * value:
                    break
                size *= 0.5
            if size <= LEAST_STEP:  # no further descent within rounding
                break
            B, trial_B, R, trial_R, squares, trial_squares = trial_B, B, trial_R, R, trial_squares, squares
            value = now
        for j in range(n):
            if math.sqrt(squares[j]) <= penalty * (1 + _EXACT):
                place[j] = _GRID - 1 - k
                share[j] = math.sqrt(squares[j]) / penalty
