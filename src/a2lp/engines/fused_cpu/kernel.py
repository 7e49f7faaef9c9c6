"""The whole run of one task as compiled code: all steps in one call, with the task in a core's cache.

Points are ordered rest first, anchors (by class) last. The labels, and the gradient of a loss on the anchors, are then
zero in all but the last rows, so forward substitution starts there, and one backward substitution serves both. A loss
on the other points needs all of Z first, and two more full substitutions. Rows of matrices are padded with zeros.

Sizes: m rest + s anchors = n points, c classes, d dimensions; ``*p`` are padded sizes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from a2lp.kernels.compiler import compiled, fast_part
from a2lp.kernels.graph import normalised_system, powers
from a2lp.kernels.linear import backward, factor, forward, product
from a2lp.kernels.losses import EXACT, NO_QUERIES, OTHERS, exact_loss, official_loss, query_loss
from a2lp.kernels.simd import ALIGN, ROWS, allocate, as_integers, dot_block, round_up

# indices into the vectors of parameters
GAMMA, ALPHA, TAU, SCALE, BETA1, BETA2, EPS, LOSS_TOL, GRAD_TOL, SLACK, ENTROPY, MARGINAL = range(12)
NEIGHBORS, STEPS, UPDATES, LOSS, ADAM, RENORMALIZE, CLASSES, QUERIES = range(8)

_multiply = product(indexed=True)


def make_workspace(s: int, m: int, d: int, c: int, k: int, dtype: Any) -> dict[str, Any]:
    """Memory for tasks of s anchors, m other points, d dimensions, c classes and k neighbours."""
    sp, nr = round_up(s, ROWS), round_up(s + m, ROWS)
    dp, mp, cp = round_up(d, ALIGN), round_up(m, ALIGN), round_up(2 * c, ALIGN)
    np_ = round_up(max(nr, m + sp, c, k), ALIGN)
    many = m + sp + ROWS
    shapes = {
        "points": (many, dp),  # rest, then anchors
        "across": (d, mp),  # rest, transposed
        "sim power": (many, np_),
        "U": (nr, np_),  # W, then the factor
        "slope share": (sp, np_),  # of the anchors' rows
        "X": (many, cp),  # Z and the adjoint, side by side
        "adjoint": (nr, cp),  # where the adjoint is solved, as far up as dL/dZ is not zero
        "XT": (2 * c, np_),
        "H": (sp, c),  # dL/dZ of the anchors
        "coefficient packed": (ROWS, np_),
        "gradient mean square": (sp, dp),
        "kth": (1, np_),  # each row's k-th largest similarity
        "vectors": (9, np_),
    }
    work = allocate(dtype, shapes)
    work["vectors"][0, s + m :] = np.inf  # thresholds
    work |= {"bits": as_integers(work["sim"]), "kth_bits": as_integers(work["kth"])}
    return work | {"every": np.arange(d), "rows": np.zeros(np_, np.int64), "vectors": tuple(work["vectors"])}


@fast_part
def _coefficients(a, X, XT, slope, share, scale, d_degree, m, np_, c, alpha, pair, out):
    """Row a of dL/dG + (dL/dG)' into out: the weight of each point in the anchor's gradient."""
    i = m + a
    for j in range(np_):
        pair[j] = 0
    for q in range(c):
        z, adjoint = X[i, q], X[i, c + q]
        for j in range(np_):
            pair[j] += adjoint * XT[q, j] + z * XT[c + q, j]
    mine, own = alpha * scale[i], d_degree[i]
    for j in range(np_):
        out[j] = share[a, j] * slope[a, j] * (mine * scale[j] * pair[j] + (own + d_degree[j]))


@fast_part
def _move(points, m, gradient, mean, square, floats, adam, rate, correction):
    """One optimiser step on the anchors, as in optimizers.py."""
    b1, b2, eps = floats[BETA1], floats[BETA2], floats[EPS]
    one, zero = points.dtype.type(1), points.dtype.type(0)
    for a in range(len(gradient)):
        for j in range(gradient.shape[1]):
            g = gradient[a, j]
            move = rate * g
            if adam:
                mu = b1 * mean[a, j] + (one - b1) * g
                nu = b2 * square[a, j] + (one - b2) * g * g
                mean[a, j] = mu
                square[a, j] = nu
                denominator = math.sqrt(nu) * correction + eps
                move = rate * mu / denominator if denominator > zero else zero
            points[m + a, j] -= move


@fast_part
def _finish_gradient(V, gradient, s, d, project):
    """The gradient's largest entry; with ``project``, after its part along each unit anchor is subtracted."""
    top = V.dtype.type(0)
    for a in range(s):
        radial = V.dtype.type(0)
        if project:
            for j in range(d):  # without slices, which take longer to compile
                radial += gradient[a, j] * V[a, j]
        for j in range(d):
            gradient[a, j] -= radial * V[a, j]
            top = max(top, abs(gradient[a, j]))
    return top


@fast_part
def _to_sphere(V, s, d):
    for a in range(s):
        length = V.dtype.type(0)
        for j in range(d):
            length += V[a, j] * V[a, j]
        if length > 0:
            length = math.sqrt(length)
            for j in range(d):
                V[a, j] /= length


@compiled(no_cfunc_wrapper=True)
def solve_task(floats, integers, codes, order, rates, losses, work, rare):
    """Algorithm 1 for one task; returns the steps taken and whether a tolerance stopped it.

    floats, integers: the settings; codes (s,): the anchors' classes, sorted; order (n,): points in the caller's order,
    for ties; rates (steps, 2): ``Adam.rates``; losses (steps,): filled up to the last step; work: the arrays of
    ``make_workspace`` with the task in them, where ``X`` receives Z, rest first, and ``points`` the anchors; rare:
    scratch (m,) and (c,), the latter float32, for a loss on the other points, the official numerics, ``renormalize``
    and ``grad_tol``; else None, and then none of that is compiled: the first call takes a quarter less.
    """
    (points, across, sim, power, U, slope, share, X, adjoint, XT, H, coefficient, packed, gradient, mean, square, kth,
     vectors, bits, kth_bits, every, rows) = work  # fmt: skip
    threshold, degree, d_degree, scale, inverse, pair, count, mean_p, d_p = vectors
    s, n, d = len(codes), len(order), len(across)
    m = n - s
    k, steps, updates, c = integers[NEIGHBORS], integers[STEPS], integers[UPDATES], integers[CLASSES]
    gamma, alpha = floats[GAMMA], floats[ALPHA]
    dp, np_, cp = points.shape[1], U.shape[1], X.shape[1]
    sp, nr, first = len(gradient), len(U), m // ROWS * ROWS
    none = np.int64(0)  # typed: numba compiles a function anew for each literal
    zero, one, half = points.dtype.type(0), points.dtype.type(1), points.dtype.type(0.5)
    read = first  # the loss needs Z from here on
    if rare is not None:
        tails, softmax = rare
        if integers[QUERIES] != NO_QUERIES:
            read = none

    taken, converged = steps, False
    moved = none  # points from here on are new: all of them in the first step, then the anchors
    for step in range(steps + 1):
        for i0 in range(moved, m + sp, ROWS):
            _multiply(points, across, every, none, d, sim, i0, none)
        for i0 in range(m, m + sp, ROWS):
            for j0 in range(m, i0 + 1, ROWS):
                dot_block(points, i0 * dp, points, j0 * dp, dp, dp, sim, i0 * np_ + j0, np_)
        for i in range(m, n):
            for j in range(m, i):
                sim[j, i] = sim[i, j]
        for i in range(moved, n):
            powers(sim, power, slope, i, max(i - m, none), n, gamma)
            sim[i, i] = -one
            power[i, i] = zero
        moved = m
        for i in range(m):
            for j in range(m, n):
                sim[i, j] = sim[j, i]
                power[i, j] = power[j, i]
        normalised_system(
            sim, bits, power, kth, kth_bits, floats[SLACK], order, n, m, k, alpha, U, share, threshold, degree, scale,
            count,
        )  # fmt: skip
        factor(U, inverse)

        for i in range(nr):
            for q in range(cp):
                X[i, q] = zero
                adjoint[i, q] = zero
        for a in range(s):
            X[m + a, codes[a]] = one
        forward(U, inverse, X, first)
        backward(U, inverse, X, read, nr)
        last = step >= updates
        if step < steps:
            losses[step] = exact_loss(integers[LOSS], X, m, s, c, codes, floats[TAU], floats[SCALE], H)
            if rare is not None:
                if integers[LOSS] not in (EXACT, OTHERS):
                    losses[step] = official_loss(
                        integers[LOSS], X, m, s, c, codes, floats[TAU], floats[SCALE], H, softmax
                    )  # fmt: skip
                if integers[QUERIES] != NO_QUERIES:
                    losses[step] += query_loss(
                        integers[QUERIES], X, m, c, floats[TAU], floats[ENTROPY], floats[MARGINAL],
                        adjoint, c, mean_p, d_p, tails,
                    )  # fmt: skip
            if losses[step] <= floats[LOSS_TOL]:
                taken, converged, last = step, True, True
            for a in range(s):
                for q in range(c):
                    adjoint[m + a, c + q] = H[a, q]
            forward(U, inverse, adjoint, read)
            backward(U, inverse, adjoint, read, nr)
            for i in range(read, n):
                for q in range(c, cp):
                    X[i, q] = adjoint[i, q]
        backward(U, inverse, X, none, read)
        # a run that only propagates, or ends here, needs no gradient
        if step == steps or (last and (converged or floats[GRAD_TOL] < 0)):
            break

        for i in range(n):
            for q in range(2 * c):
                XT[q, i] = X[i, q]
            d_degree[i] = zero
        for q in range(c):
            for i in range(np_):
                d_degree[i] -= scale[i] * XT[q, i] * (scale[i] * XT[c + q, i])
        for a in range(s):
            tail = X[m + a, c + codes[a]]
            for q in range(c):
                tail += X[m + a, q] * H[a, q]
            d_degree[m + a] += half * tail / degree[m + a]
        if rare is not None and integers[QUERIES] != NO_QUERIES:
            for i in range(m):
                d_degree[i] += half * tails[i] / degree[i]
        for a0 in range(0, sp, ROWS):
            for a in range(ROWS):
                _coefficients(
                    a0 + a, X, XT, slope, share, scale, d_degree, m, np_, c, alpha, pair, coefficient[a]
                )  # fmt: skip
            kept = none
            for j in range(n):
                used = False
                for a in range(ROWS):
                    packed[a, kept] = coefficient[a, j]
                    used = used or coefficient[a, j] != 0
                rows[kept] = j
                kept += used
            _multiply(packed, points, rows, none, kept, gradient[a0:], none, none)
        if rare is not None and (floats[GRAD_TOL] >= 0 or integers[RENORMALIZE]):
            top = _finish_gradient(points[m:], gradient, s, d, integers[RENORMALIZE])
            if top <= floats[GRAD_TOL]:
                taken, converged = step, True
                break
        if last:
            break
        _move(points, m, gradient, mean, square, floats, integers[ADAM], rates[step, 0], rates[step, 1])
        if rare is not None and integers[RENORMALIZE]:
            _to_sphere(points[m:], s, d)
    return taken, converged
