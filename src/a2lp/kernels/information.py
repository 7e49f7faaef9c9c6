"""Mutual information on one task's logits as compiled code: softmax, and the gradient of its losses.

Matrices are (classes, points), so that every loop runs along whole vectors of points; padding adds nothing to any sum.
"""

from __future__ import annotations

import math

from a2lp.kernels.compiler import fast_part
from a2lp.kernels.elementary import exp

TAU, SUPPORT, MARGINAL, CONDITIONAL, ORDER = range(5)  # indices into the vector of parameters, before Adam's


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
    """H = p (u - sum_k p_k u_k) / m on the queries, u = w_1 phi(mean p) - w_2 phi(p); zero elsewhere.

    phi is minus the slope of the entropy: log p, or order / (order - 1) p^(order - 1).
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
    """The cross-entropy's p - y on the support; 1 - p_y is a sum of its parts, since p_y is near one."""
    for i in range(len(codes)):
        wrong = P.dtype.type(0)
        for q in range(c):
            if q != codes[i]:
                H[q, i] = scale * P[q, i]
                wrong += H[q, i]
        H[codes[i], i] = -wrong
