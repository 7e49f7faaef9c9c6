"""The graph of a task as compiled code: k-th largest similarities, weights, degrees, and the system of eq. 5."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from a2lp.graph import DEGREE_OFFSET
from a2lp.kernels.compiler import fast_part, part
from a2lp.kernels.simd import VECTOR_BYTES, Loop, call, data_of, int64, load, splat

_WALK = 6  # values to try one by one, since the k-th place moves little from step to step; then bisection is faster


@intrinsic
def _scan(typingctx, bits, start, length, limit):
    """Of ``length`` integers from ``start`` on: how many reach the limit, the least of those, the largest other."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, start, length, limit = args
        width = signature.args[0].dtype.bitwidth
        integer, lanes = ir.IntType(width), VECTOR_BYTES // (width // 8)
        vector = ir.VectorType(integer, lanes)
        base = data_of(context, builder, signature.args[0], array)
        extremes = 0, 2 ** (width - 1) - 1, -(2 ** (width - 1))
        zero, most, least = (ir.Constant(vector, [v] * lanes) for v in extremes)
        wide = splat(builder, vector, builder.trunc(limit, integer) if width < 64 else limit)
        loop = Loop(builder, int64(0), length, int64(lanes), [zero, most, least])
        count, low, high = loop.carried
        values = load(builder, vector, base, builder.add(start, loop.index))
        reached = builder.icmp_signed(">=", values, wide)
        kept, other = builder.select(reached, values, most), builder.select(reached, least, values)
        count = builder.sub(count, builder.sext(reached, vector))
        low = builder.select(builder.icmp_signed("<", kept, low), kept, low)
        high = builder.select(builder.icmp_signed(">", other, high), other, high)
        found = []
        for name, total in zip(("add", "smin", "smax"), loop.close([count, low, high]), strict=True):
            value = call(builder, f"vector.reduce.{name}", integer, [total])
            found.append(builder.sext(value, ir.IntType(64)) if width < 64 else value)
        return context.make_tuple(builder, signature.return_type, found)

    n = types.int64
    return types.UniTuple(n, 3)(bits, n, n, n), codegen


@part
def kth_largest(bits, start, length, k, guess):
    """The k-th largest of a row of floats, as the integer with the same bits; only padding may be negative.

    Integers and floats of one sign have the same order. ``guess`` is where to begin, best the result of the last step.
    """
    count, low, high = _scan(bits, start, length, guess)
    walked = 0
    while count != k and walked < _WALK:
        walked += 1
        if count > k:
            above, next_low, _ = _scan(bits, start, length, low + 1)
            if above < k:  # equal values at the k-th place
                return low
            count, low = above, next_low
        else:
            low = high
            count, _, high = _scan(bits, start, length, low)
            if count >= k:
                return low
    if count == k:
        return low
    left, right = np.int64(0), np.int64(0x7F800000 if bits.itemsize == 4 else 0x7FF0000000000000)
    while left < right:
        middle = left + (right - left + 1) // 2
        count, low, high = _scan(bits, start, length, middle)
        if count >= k:
            left = middle
        else:
            right = middle - 1
    return left


@fast_part
def powers(sim, power, slope, i, a, stop, gamma):
    """[sim]_+^gamma for the start of row i, and its slope in row a; sim becomes non-negative."""
    zero = sim.dtype.type(0)
    if gamma == 3:
        for j in range(stop):
            value = max(sim[i, j], zero)
            sim[i, j] = value
            slope[a, j] = gamma * (value * value)
            power[i, j] = value * (value * value)
    else:
        for j in range(stop):
            value = max(sim[i, j], zero)
            sim[i, j] = value
            power[i, j] = value**gamma if value > 0 else zero
            slope[a, j] = gamma * power[i, j] / value if value > 0 else zero


@fast_part
def whole_powers(sim, power, squares, i, stop, gamma):
    """[sim]_+^gamma for the start of row i by repeated squaring, where gamma is whole; sim becomes non-negative.

    It is not a part of ``powers``, whose callers would all take longer to compile.
    """
    left = np.int64(gamma)
    for j in range(stop):
        sim[i, j] = max(sim[i, j], sim.dtype.type(0))
        squares[j] = sim[i, j]
        power[i, j] = sim.dtype.type(1)
    while left > 0:
        if left % 2 == 1:
            for j in range(stop):
                power[i, j] *= squares[j]
        for j in range(stop):
            squares[j] *= squares[j]
        left //= 2


@fast_part
def _weigh(sim, power, threshold, n, np_, m, W, degree, share, count):
    """W and its degrees from thresholds, and how many columns each row chose: more than k where some are tied."""
    half, zero = sim.dtype.type(0.5), sim.dtype.type(0)
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
        count[i] = chosen + chosen
        if i >= m:
            for j in range(np_):
                value = sim[i, j]
                share[i - m, j] = (half if value >= mine else zero) + (half if value >= threshold[j] else zero)


@fast_part
def _drop_ties(i, sim, power, threshold, slack, order, n, m, k, W, degree, share):
    """Drop what row i chose beyond k: of equal values at its k-th place, the first in the caller's order stay."""
    half = sim.dtype.type(0.5)
    low = threshold[i]
    high = low * (1 + 2 * slack)
    room = k
    for j in range(n):
        if sim[i, j] > high:
            room -= 1
    for j in order:
        if low <= sim[i, j] <= high:
            room -= 1
            if room < 0:
                weight = half * power[i, j]
                W[i, j] -= weight
                W[j, i] -= weight
                degree[i] -= weight
                degree[j] -= weight
                if i >= m:
                    share[i - m, j] -= half
                if j >= m:
                    share[j - m, i] -= half


@fast_part
def identity_minus(W, alpha, scale, n):
    """The first n rows of W become those of I - alpha D^-1/2 W D^-1/2, where ``scale`` is D^-1/2."""
    one = W.dtype.type(1)
    for i in range(n):
        f = -alpha * scale[i]
        for j in range(W.shape[1]):
            W[i, j] *= f * scale[j]
        W[i, i] = one


@fast_part
def normalised_system(
    sim, bits, power, kth, kth_bits, slack, order, n, m, k, alpha, U, share, threshold, degree, scale, count
):
    """U = I - alpha S, S the normalised graph (eq. 2); ``share`` is filled for the points from m on."""
    one, np_ = U.dtype.type(1), U.shape[1]
    for i in range(n):
        kth_bits[0, i] = kth_largest(bits, i * np_, np_, k, kth_bits[0, i])
        threshold[i] = (one - slack) * kth[0, i]
    _weigh(sim, power, threshold, n, np_, m, U, degree, share, count)
    for i in range(n):
        if count[i] > k and threshold[i] > 0:
            _drop_ties(i, sim, power, threshold, slack, order, n, m, k, U, degree, share)
    for i in range(n):
        degree[i] += U.dtype.type(DEGREE_OFFSET)
        scale[i] = one / math.sqrt(degree[i])
    identity_minus(U, alpha, scale, n)
