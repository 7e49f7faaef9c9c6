"""Logistic regression of one task as compiled code in float64, on the points' inner products.

Arrays are (classes, points), so that loops run along whole vectors. Sizes: t training points, c classes.
"""

from __future__ import annotations

import math

import numpy as np

from a2lp.kernels.compiler import compiled, fast_part

MOST_STEPS = 50  # of Newton's method; a few are usually enough
LEAST_STEP = 1e-6
SLOPE = 1e-4  # share of the decrease predicted by the slope that a step must reach
ROUNDING = 1e-13  # relative error of the objective; near the end a good step gains less
FIT_ARRAYS = 11


@fast_part
def _weigh(K, x, out):
    """Values at the points for coefficients (c, t + 1): each row times K; the biases, last, stay."""
    c, t = len(x), len(K)
    for q in range(c):
        row = out[q, :t]
        for i in range(t):
            row[i] = 0
        for j in range(t):
            factor, column = x[q, j], K[j]
            for i in range(t):
                row[i] += factor * column[i]
        out[q, t] = x[q, t]


@fast_part
def _objective(A, KA, labels, C, P):
    """C times the cross-entropy plus half the squared weights; the probabilities go to P (c, t)."""
    c, t = P.shape
    loss, squares = 0.0, 0.0
    for i in range(t):
        top = -np.inf
        for q in range(c):
            P[q, i] = KA[q, i] + KA[q, t]
            top = max(top, P[q, i])
            squares += A[q, i] * KA[q, i]
        loss += top - P[labels[i], i]
        mass = 0.0
        for q in range(c):
            P[q, i] = math.exp(P[q, i] - top)
            mass += P[q, i]
        loss += math.log(mass)
        for q in range(c):
            P[q, i] /= mass
    return C * loss + 0.5 * squares


@fast_part
def _descent(A, labels, C, P, out):
    """Coefficients of minus the gradient."""
    c, t = P.shape
    for q in range(c):
        out[q, t] = 0
        for i in range(t):
            error = C * (P[q, i] - (1.0 if labels[i] == q else 0.0))
            out[q, i] = -A[q, i] - error
            out[q, t] -= error


@fast_part
def _curve(S, KS, C, P, out):
    """Coefficients of the Hessian times S."""
    c, t = P.shape
    for q in range(c):
        out[q, t] = 0
    for i in range(t):
        mean = 0.0
        for q in range(c):
            mean += P[q, i] * (KS[q, i] + KS[q, t])
        for q in range(c):
            value = C * P[q, i] * (KS[q, i] + KS[q, t] - mean)
            out[q, i] = S[q, i] + value
            out[q, t] += value


@fast_part
def combine(x, factor, y, out):
    """Put x + factor y into out."""
    for q in range(len(x)):
        for i in range(x.shape[1]):
            out[q, i] = x[q, i] + factor * y[q, i]


@fast_part
def _copy(x, out):
    for q in range(len(x)):
        for i in range(x.shape[1]):
            out[q, i] = x[q, i]


@fast_part
def _inner(x, y):
    total = 0.0
    for q in range(len(x)):
        for i in range(x.shape[1]):
            total += x[q, i] * y[q, i]
    return total


@compiled()
def fit(K, labels, C, A, tolerance, work):
    """Logistic regression: class weights sum_i A[:, i] x_i and biases A[:, t], improved in place.

    Newton's method with conjugate gradients on the coefficients A, given the points' inner products K (t, t), until
    the gradient's length is below the tolerance. ``work`` (FIT_ARRAYS, c, t + 1) is memory.
    """
    KA, D, KD, R, KR, S, KS, HS, B, KB = (
        work[0], work[1], work[2], work[3], work[4], work[5], work[6], work[7], work[8], work[9]
    )  # fmt: skip
    P = work[10, :, : len(K)]
    _weigh(K, A, KA)
    value = _objective(A, KA, labels, C, P)
    for _ in range(MOST_STEPS):
        _descent(A, labels, C, P, R)
        _weigh(K, R, KR)
        norm = _inner(R, KR)
        if norm <= tolerance * tolerance:
            break
        _copy(R, S)
        _copy(KR, KS)
        for q in range(len(D)):
            for i in range(D.shape[1]):
                D[q, i] = 0
                KD[q, i] = 0
        slope = 0.0
        enough = norm * min(0.01, norm)  # more exact near the end
        for _ in range(A.size):
            _curve(S, KS, C, P, HS)
            curvature = _inner(KS, HS)
            if curvature <= 0:
                break
            ahead = norm / curvature
            slope += ahead * norm
            combine(D, ahead, S, D)
            combine(KD, ahead, KS, KD)
            combine(R, -ahead, HS, R)
            _weigh(K, R, KR)
            before, norm = norm, _inner(R, KR)
            if norm <= enough:
                break
            combine(R, norm / before, S, S)
            combine(KR, norm / before, KS, KS)
        size, now = 1.0, value
        while size > LEAST_STEP:
            combine(A, size, D, B)
            combine(KA, size, KD, KB)
            now = _objective(B, KB, labels, C, P)
            if now <= value - SLOPE * size * slope + ROUNDING * value:
                break
            size *= 0.5
        if size <= LEAST_STEP:  # no further descent within rounding
            break
        _copy(B, A)
        _copy(KB, KA)
        value = now
