"""Mutual information on one task's logits as compiled code: softmax, the gradient of its losses, and Adam.

Matrices are (classes, points), so that every loop goes over whole vectors of points; columns that only pad have no
share in any sum.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from a2lp.engines._elementary import exp
from a2lp.engines._simd import fast_part
from a2lp.optimizers import Adam

# places in the vector of parameters; REST: 1 - beta, rounded once
TAU, SUPPORT, MARGINAL, CONDITIONAL, ORDER, BETA1, REST1, BETA2, REST2, EPS = range(10)


def parameters(tau: float, objective: tuple[float, float, float, float], adam: Adam, dtype: Any) -> Any:
    """The vector of parameters."""
    b1, b2 = adam.betas
    return np.array([tau, *objective, b1, 1 - b1, b2, 1 - b2, adam.eps], dtype)


@fast_part
def probabilities(L, P, shift, total, c):
    """Softmax over the classes of the logits L into P; L becomes its logarithm."""
    one = P.dtype.type(1)
    points = len(shift)
    for i in range(points):
        shift[i] = L[0, i]
        total[i] = 0
    for q in range(1, c):
        for i in range(points):
            shift[i] = max(shift[i], L[q, i])
    for q in range(c):
        for i in range(points):
            e = exp(L[q, i] - shift[i])
            P[q, i] = e
            total[i] += e
    for i in range(points):
        shift[i] += math.log(total[i])
        total[i] = one / total[i]
    for q in range(c):
        for i in range(points):
            P[q, i] *= total[i]
            L[q, i] -= shift[i]


@fast_part
def query_gradient(P, L, H, average, is_query, c, share, floats):
    """H = p (u - sum_k p_k u_k) / m on the queries, u = w_1 phi(mean p) - w_2 phi(p); zero on all else.

    phi is the entropy's slope without its sign: log p, or order / (order - 1) p^(order - 1).
    """
    order, one = floats[ORDER], P.dtype.type(1)
    tiny = P.dtype.type(1e-30)
    points = len(average)
    for i in range(points):
        average[i] = 0
    for q in range(c):
        mass = P.dtype.type(0)
        for i in range(points):
            mass += P[q, i] * is_query[i]
        log_mass = math.log(max(mass * share, tiny))
        if order == one:
            marginal, conditional = floats[MARGINAL] * log_mass, floats[CONDITIONAL]
            for i in range(points):
                H[q, i] = marginal - conditional * L[q, i]
        else:
            factor = order / (order - one)
            marginal = factor * floats[MARGINAL] * math.exp((order - one) * log_mass)
            conditional = factor * floats[CONDITIONAL]
            for i in range(points):
                H[q, i] = marginal - conditional * exp((order - one) * L[q, i])
        for i in range(points):
            average[i] += P[q, i] * H[q, i]
    for q in range(c):
        for i in range(points):
            H[q, i] = share * is_query[i] * P[q, i] * (H[q, i] - average[i])


@fast_part
def support_gradient(P, H, codes, c, scale):
    """The cross-entropy's p - y on the support; 1 - p_y is summed from its parts, since p_y is near one."""
    for i in range(len(codes)):
        wrong = P.dtype.type(0)
        for q in range(c):
            if q != codes[i]:
                H[q, i] = scale * P[q, i]
                wrong += H[q, i]
        H[codes[i], i] = -wrong


@fast_part
def adam(values, mean, square, gradient, floats, rate, correction):
    """One step, as in optimizers.py."""
    b1, rest1, b2, rest2, eps = floats[BETA1], floats[REST1], floats[BETA2], floats[REST2], floats[EPS]
    zero = values.dtype.type(0)
    for j in range(len(values)):
        g = gradient[j]
        mu = b1 * mean[j] + rest1 * g
        nu = b2 * square[j] + rest2 * g * g
        mean[j] = mu
        square[j] = nu
        denominator = math.sqrt(nu) * correction + eps
        values[j] -= rate * mu / denominator if denominator > zero else zero
