"""The whole run of one task as compiled code: all steps in one call, everything of the task in a core's cache.

Points are ordered rest first, anchors (by class) last: the labels, and the gradient of a loss on the anchors, are
then zero in all but the last rows, so forward substitution starts there, and one backward substitution serves
both right-hand sides. Rows of matrices are padded with zeros to whole vectors.

Sizes: m rest + s anchors = n points, c classes, d dimensions; ``*p`` are padded sizes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from a2lp.engines._cpu_losses import anchor_loss
from a2lp.engines._simd import ALIGN, BLOCK, ROWS, VECTOR_BYTES, dot_block, make_product
from a2lp.graph import DEGREE_OFFSET

# Sums may be reordered and multiplications fused; NaN, infinities and divisions keep their meaning.
_FAST = {"reassoc", "contract", "nsz"}

_set1, _set2, _set3, _set4, _set5 = (make_product(b, subtract=False, indexed=False) for b in range(1, 6))
_sub1, _sub2, _sub3, _sub4, _sub5 = (make_product(b, subtract=True, indexed=False) for b in range(1, 6))
_row1, _row2, _row3, _row4, _row5 = (make_product(b, subtract=False, indexed=True) for b in range(1, 6))

# places in the vectors of parameters
GAMMA, ALPHA, TAU, SCALE, LR, BETA1, BETA2, EPS, LOSS_TOL, GRAD_TOL = range(10)
NEIGHBORS, STEPS, UPDATES, LOSS, ADAM, RENORMALIZE, CLASSES = range(7)


def _dispatch(one: Any, two: Any, three: Any, four: Any, five: Any) -> Any:
    """A product over any number of vectors, in blocks of at most BLOCK."""

    @njit(nogil=True, fastmath=_FAST)
    def product(x, x0, xr, xk, y, y0, yk, rows, start, count, out, o0, orow, vectors, lanes):
        v = 0
        while v < vectors:
            width = min(vectors - v, BLOCK)
            yv, ov = y0 + v * lanes, o0 + v * lanes
            if width == 5:
                five(x, x0, xr, xk, y, yv, yk, rows, start, count, out, ov, orow)
            elif width == 4:
                four(x, x0, xr, xk, y, yv, yk, rows, start, count, out, ov, orow)
            elif width == 3:
                three(x, x0, xr, xk, y, yv, yk, rows, start, count, out, ov, orow)
            elif width == 2:
                two(x, x0, xr, xk, y, yv, yk, rows, start, count, out, ov, orow)
            else:
                one(x, x0, xr, xk, y, yv, yk, rows, start, count, out, ov, orow)
            v += width

    return product


_multiply = _dispatch(_set1, _set2, _set3, _set4, _set5)
_subtract = _dispatch(_sub1, _sub2, _sub3, _sub4, _sub5)
_multiply_rows = _dispatch(_row1, _row2, _row3, _row4, _row5)


@njit(nogil=True)
def _up(size, to):
    return (size + to - 1) // to * to


@njit(nogil=True)
def _aligned(rows, columns, like):
    """Zeros whose rows start at cache lines: a vector that straddles two lines costs two loads."""
    size = rows * columns
    room = 64 // like.itemsize
    buffer = np.zeros(size + room, like.dtype)
    skip = (-(buffer.ctypes.data // like.itemsize)) % room
    return buffer[skip : skip + size].reshape(rows, columns)


@njit(nogil=True, fastmath=_FAST)
def _kth_largest(row, n, k, best):
    """The k largest of row[:n] into best[:k], descending; returns the last of them."""
    filled = 0
    for j in range(n):
        value = row[j]
        if filled < k:
            at = filled
            filled += 1
        elif value > best[k - 1]:
            at = k - 1
        else:
            continue
        while at > 0 and best[at - 1] < value:
            best[at] = best[at - 1]
            at -= 1
        best[at] = value
    return best[k - 1]


@njit(nogil=True, fastmath=_FAST)
def _merged_kth(best, k, row, m, s, larger):
    """The k-th largest of a sorted list of k and of row[m : m + s], without sorting the latter."""
    count = 0
    least = best[k - 1]
    for j in range(m, m + s):
        value = row[j]
        if value > least:
            at = count
            count += 1
            while at > 0 and larger[at - 1] < value:
                larger[at] = larger[at - 1]
                at -= 1
            larger[at] = value
    taken = 0
    while taken < count and taken < k and larger[taken] > best[k - 1 - taken]:
        taken += 1
    if taken == 0:
        return least
    if taken == k:
        return larger[k - 1]
    return min(larger[taken - 1], best[k - 1 - taken])


@njit(nogil=True, fastmath=_FAST)
def _powers(sim, power, row, start, stop, gamma):
    """[sim]_+^gamma for one stretch of a row; sim becomes non-negative."""
    zero = sim.dtype.type(0)
    if gamma == 3:
        for j in range(start, stop):
            value = max(sim[row, j], zero)
            sim[row, j] = value
            power[row, j] = value * value * value
    else:
        for j in range(start, stop):
            value = max(sim[row, j], zero)
            sim[row, j] = value
            power[row, j] = value**gamma if value > 0 else zero


@njit(nogil=True, fastmath=_FAST)
def _weigh(sim, power, threshold, n, np_, m, k, W, degree, share):
    """W and its degrees from thresholds; returns whether some row has a tie at its k-th place."""
    half, zero = sim.dtype.type(0.5), sim.dtype.type(0)
    ties = False
    for i in range(n):
        mine = threshold[i]
        total = zero
        chosen = zero
        for j in range(np_):
            value = sim[i, j]
            a = half if value >= mine else zero
            b = half if value >= threshold[j] else zero
            weight = (a + b) * power[i, j]
            W[i, j] = weight
            total += weight
            chosen += a
        degree[i] = total
        ties = ties or (mine > 0 and chosen > half * k)
        if i >= m:
            for j in range(np_):
                value = sim[i, j]
                share[i - m, j] = (half if value >= mine else zero) + (half if value >= threshold[j] else zero)
    return ties


@njit(nogil=True)
def _weigh_ties(sim, power, threshold, order, n, np_, m, k, W, degree, share):
    """The same where values are equal at the k-th place: of those, the first in the caller's order are chosen."""
    half = sim.dtype.type(0.5)
    chosen = np.zeros((n, np_), sim.dtype)
    for i in range(n):
        room = k
        for j in range(n):
            if sim[i, j] > threshold[i]:
                chosen[i, j] = half
                room -= 1
        for j in order:
            if room > 0 and sim[i, j] == threshold[i]:
                chosen[i, j] = half
                room -= 1
    for i in range(n):
        degree[i] = 0
        for j in range(n):
            both = chosen[i, j] + chosen[j, i]
            W[i, j] = both * power[i, j]
            degree[i] += W[i, j]
            if i >= m:
                share[i - m, j] = both


@njit(nogil=True, fastmath=_FAST)
def _factor(U, inverse, nr, np_, lanes, rows):
    """Cholesky factor M = U' U in place, ROWS rows at a time; garbage stays below the diagonal."""
    for i0 in range(0, nr, ROWS):
        first = i0 // lanes
        left = first * lanes
        _subtract(U, i0, 1, np_, U, left, np_, rows, 0, i0, U, i0 * np_ + left, np_, np_ // lanes - first, lanes)
        for a in range(ROWS):
            i = i0 + a
            for b in range(a):
                f = U[i0 + b, i]
                for j in range(left, np_):
                    U[i, j] -= f * U[i0 + b, j]
            pivot = U.dtype.type(1) / np.sqrt(U[i, i])
            inverse[i] = pivot
            for j in range(left, np_):
                U[i, j] *= pivot


@njit(nogil=True, fastmath=_FAST)
def _solve_anchors(U, inverse, X, m, n, start, stop):
    """Forward, then backward substitution in the anchors' rows of the columns start to stop of X."""
    for i in range(m, n):
        for k in range(m, i):
            f = U[k, i]
            for q in range(start, stop):
                X[i, q] -= f * X[k, q]
        for q in range(start, stop):
            X[i, q] *= inverse[i]
    for i in range(n - 1, m - 1, -1):
        for k in range(i + 1, n):
            f = U[i, k]
            for q in range(start, stop):
                X[i, q] -= f * X[k, q]
        for q in range(start, stop):
            X[i, q] *= inverse[i]


@njit(nogil=True, fastmath=_FAST)
def _solve_rest(U, inverse, X, m, n, np_, cp, lanes, rows):
    """Backward substitution in the other rows, whose right-hand side is zero."""
    for i in range(m):
        for q in range(cp):
            X[i, q] = 0
    i0 = m
    while i0 > 0:
        size = ROWS if i0 >= ROWS else i0
        i0 -= size
        if size == ROWS:
            _subtract(U, i0 * np_, np_, 1, X, 0, cp, rows, i0 + ROWS, n, X, i0 * cp, cp, cp // lanes, lanes)
        stop = i0 + size
        for i in range(stop - 1, i0 - 1, -1):
            for k in range(i + 1, stop if size == ROWS else n):
                f = U[i, k]
                for q in range(cp):
                    X[i, q] -= f * X[k, q]
            for q in range(cp):
                X[i, q] *= inverse[i]


@njit(nogil=True, fastmath=_FAST)
def _coefficients(
    a, X, XT, H, codes, sim, power, share, scale, degree, d_degree, m, n, np_, c, gamma, alpha, pair, out
):
    """Row a of dL/dG + (dL/dG)' into out: what each point adds to the anchor's gradient."""
    i = m + a
    zero = sim.dtype.type(0)
    for j in range(np_):
        pair[j] = zero
    for q in range(c):
        z, adjoint = X[i, q], X[i, c + q]
        for j in range(np_):
            pair[j] += adjoint * XT[q, j] + z * XT[c + q, j]
    mine = alpha * scale[i]
    if gamma == 3:
        for j in range(np_):
            value = sim[i, j]
            out[j] = share[a, j] * gamma * value * value * (mine * scale[j] * pair[j] + d_degree[i] + d_degree[j])
    else:
        for j in range(n):
            slope = gamma * power[i, j] / sim[i, j] if sim[i, j] > 0 else zero
            out[j] = share[a, j] * slope * (mine * scale[j] * pair[j] + d_degree[i] + d_degree[j])


@njit(nogil=True, fastmath=_FAST)
def _move(V, gradient, mean, square, size, floats, integers, step):
    """One optimiser step on the anchors, as in optimizers.py."""
    kind = V.dtype.type
    lr = floats[LR]
    if not integers[ADAM]:
        for i in range(size):
            V[i] -= lr * gradient[i]
        return
    b1, b2, eps, one, zero = floats[BETA1], floats[BETA2], floats[EPS], kind(1), kind(0)
    rate = kind(float(lr) / (1.0 - float(b1) ** (step + 1)))
    correction = kind(1.0 / math.sqrt(1.0 - float(b2) ** (step + 1)))
    for i in range(size):
        g = gradient[i]
        mu = b1 * mean[i] + (one - b1) * g
        nu = b2 * square[i] + (one - b2) * g * g
        mean[i] = mu
        square[i] = nu
        denominator = np.sqrt(nu) * correction + eps
        V[i] -= rate * mu / denominator if denominator > zero else zero


@njit(nogil=True, fastmath=_FAST)
def _project(V, gradient, s, d):
    """Take the radial part out of the gradient of unit anchors."""
    for a in range(s):
        radial = V.dtype.type(0)
        for j in range(d):
            radial += gradient[a, j] * V[a, j]
        for j in range(d):
            gradient[a, j] -= radial * V[a, j]


@njit(nogil=True, fastmath=_FAST)
def _to_sphere(V, s, d):
    for a in range(s):
        length = V.dtype.type(0)
        for j in range(d):
            length += V[a, j] * V[a, j]
        if length > 0:
            length = np.sqrt(length)
            for j in range(d):
                V[a, j] /= length


@njit(nogil=True, fastmath=_FAST)
def _largest(x, size):
    top = x.dtype.type(0)
    for i in range(size):
        top = max(top, abs(x[i]))
    return top


@njit(nogil=True, cache=True, fastmath=_FAST)
def solve_task(support, rest, codes, order, floats, integers, z_out, anchors_out, losses):
    """Algorithm 1 for one task; returns the steps taken and whether a tolerance stopped it.

    support (s, d) sorted by class; rest (m, d); codes (s,); order (n,): points in the caller's order, for ties;
    floats, integers: the settings; z_out (n, c), rest first; anchors_out (s, d); losses (steps,).
    """
    s, d = support.shape
    m = len(rest)
    n = m + s
    k, steps, updates, c = integers[NEIGHBORS], integers[STEPS], integers[UPDATES], integers[CLASSES]
    gamma, alpha = floats[GAMMA], floats[ALPHA]
    lanes = VECTOR_BYTES // support.itemsize
    sp, nr = _up(s, ROWS), _up(n, ROWS)
    dp, np_, mp, cp = _up(d, ALIGN), _up(nr, ALIGN), _up(m, ALIGN), _up(2 * c, ALIGN)
    zero, one = support.dtype.type(0), support.dtype.type(1)

    points = _aligned(m + sp, dp, support)
    points[:m, :d] = rest
    points[m:n, :d] = support
    V = points[m:]
    across = _aligned(d, mp, support)  # rest, transposed
    for i in range(m):
        for j in range(d):
            across[j, i] = rest[i, j]
    sim, power = _aligned(m + sp + ROWS, np_, support), _aligned(m + sp + ROWS, np_, support)
    within = _aligned(sp, sp, support)
    U, share = _aligned(nr, np_, support), _aligned(sp, np_, support)
    X, XT, H = _aligned(nr, cp, support), _aligned(2 * c, np_, support), _aligned(sp, c, support)
    coefficient, packed, pair = _aligned(ROWS, np_, support), _aligned(ROWS, np_, support), _aligned(1, np_, support)[0]
    gradient, mean, square = _aligned(sp, dp, support), _aligned(sp, dp, support), _aligned(sp, dp, support)
    flat = (V.reshape(-1), gradient.reshape(-1), mean.reshape(-1), square.reshape(-1))
    threshold = np.full(np_, np.inf, support.dtype)
    degree, d_degree, scale = np.zeros(np_, support.dtype), np.zeros(np_, support.dtype), np.zeros(np_, support.dtype)
    inverse, larger = np.zeros(nr, support.dtype), np.zeros(s, support.dtype)
    best, anchor_best = np.full((m, k), -one, support.dtype), np.zeros(k, support.dtype)
    rows = np.arange(np_)

    # what no step changes: similarities of points that stay, and each one's best
    for i0 in range(0, m, ROWS):
        _multiply(points, i0 * dp, dp, 1, across, 0, mp, rows, 0, d, sim, i0 * np_, np_, mp // lanes, lanes)
    for i in range(m):
        _powers(sim, power, i, 0, m, gamma)
        sim[i, i] = -one
        power[i, i] = zero
        _kth_largest(sim[i], m, min(k, m), best[i])

    taken, converged = steps, False
    for step in range(steps + 1):
        for i0 in range(0, sp, ROWS):
            _multiply(V, i0 * dp, dp, 1, across, 0, mp, rows, 0, d, sim, (m + i0) * np_, np_, mp // lanes, lanes)
            for j0 in range(i0, sp, ROWS):
                dot_block(V, i0 * dp, V, j0 * dp, dp, dp, within, i0 * sp + j0, sp)
        for a in range(s):
            for b in range(a, s):
                sim[m + a, m + b] = within[a, b]
                sim[m + b, m + a] = within[a, b]
        for a in range(s):
            _powers(sim, power, m + a, 0, n, gamma)
            sim[m + a, m + a] = -one
            power[m + a, m + a] = zero
            for j in range(n, np_):
                sim[m + a, j] = -one
        for i in range(m):
            for a in range(s):
                sim[i, m + a] = sim[m + a, i]
                power[i, m + a] = power[m + a, i]
            threshold[i] = _merged_kth(best[i], k, sim[i], m, s, larger)
        for i in range(m, n):
            threshold[i] = _kth_largest(sim[i], n, k, anchor_best)
        if _weigh(sim, power, threshold, n, np_, m, k, U, degree, share):
            _weigh_ties(sim, power, threshold, order, n, np_, m, k, U, degree, share)
        for i in range(n):
            degree[i] += support.dtype.type(DEGREE_OFFSET)
            scale[i] = one / np.sqrt(degree[i])
        for i in range(n):
            f = -alpha * scale[i]
            for j in range(i // ALIGN * ALIGN, np_):
                U[i, j] *= f * scale[j]
            U[i, i] = one
        for i in range(n, nr):
            U[i, :] = zero
            U[i, i] = one
        _factor(U, inverse, nr, np_, lanes, rows)

        for i in range(m, nr):
            for q in range(cp):
                X[i, q] = zero
        for a in range(s):
            X[m + a, codes[a]] = one
        _solve_anchors(U, inverse, X, m, n, 0, c)
        last = step >= updates
        if step < steps:
            losses[step] = anchor_loss(integers[LOSS], X, m, s, c, codes, floats[TAU], floats[SCALE], H)
            if losses[step] <= floats[LOSS_TOL]:
                taken, converged, last = step, True, True
            for a in range(s):
                for q in range(c):
                    X[m + a, c + q] = H[a, q]
            _solve_anchors(U, inverse, X, m, n, c, 2 * c)
        # a run that only propagates, or ends here, needs no gradient
        if step == steps or (last and (converged or floats[GRAD_TOL] < 0)):
            _solve_rest(U, inverse, X, m, n, np_, cp, lanes, rows)
            break
        _solve_rest(U, inverse, X, m, n, np_, cp, lanes, rows)

        for i in range(n):
            for q in range(2 * c):
                XT[q, i] = X[i, q]
            d_degree[i] = zero
        for q in range(c):
            for i in range(np_):
                d_degree[i] -= XT[q, i] * XT[c + q, i]
        for a in range(s):
            tail = X[m + a, c + codes[a]]
            for q in range(c):
                tail += X[m + a, q] * H[a, q]
            d_degree[m + a] += support.dtype.type(0.5) * tail
        for i in range(n):
            d_degree[i] /= degree[i]
        for a0 in range(0, sp, ROWS):
            for a in range(a0, min(a0 + ROWS, s)):
                _coefficients(
                    a, X, XT, H, codes, sim, power, share, scale, degree, d_degree, m, n, np_, c, gamma, alpha, pair,
                    coefficient[a - a0],
                )  # fmt: skip
            for a in range(s, a0 + ROWS):
                coefficient[a - a0, :] = zero
            count = 0
            for j in range(n):
                used = False
                for a in range(ROWS):
                    packed[a, count] = coefficient[a, j]
                    used = used or coefficient[a, j] != 0
                rows[count] = j
                count += used
            _multiply_rows(packed, 0, np_, 1, points, 0, dp, rows, 0, count, gradient, a0 * dp, dp, dp // lanes, lanes)
        if integers[RENORMALIZE]:
            _project(V, gradient, s, d)
        if floats[GRAD_TOL] >= 0 and _largest(flat[1], s * dp) <= floats[GRAD_TOL]:
            taken, converged = step, True
            break
        if last:
            break
        _move(flat[0], flat[1], flat[2], flat[3], s * dp, floats, integers, step)
        if integers[RENORMALIZE]:
            _to_sphere(V, s, d)

    for later in range(step + 1, steps):
        losses[later] = losses[step]
    z_out[:, :] = X[:n, :c]
    anchors_out[:, :] = V[:s, :d]
    return taken, converged
