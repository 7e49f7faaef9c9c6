"""Small functions for compiled loops. exp is plain arithmetic, so that loops over it become vector code.

exp(x) = 2^k exp(r) with |r| <= log(2) / 2 and a Taylor polynomial for exp(r), accurate to the last place or two.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from a2lp.arrays import DIGAMMA_SHIFT
from a2lp.kernels.compiler import fast_part


@intrinsic
def _power_of_two(typingctx, k, like):
    """2^k of the type of ``like``, made from its bits; k is an exponent of a normal number."""
    single = like == types.float32

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer = ir.IntType(32 if single else 64)
        shift, bias = (23, 127) if single else (52, 1023)
        bits = builder.shl(builder.add(args[0], ir.Constant(integer, bias)), ir.Constant(integer, shift))
        return builder.bitcast(bits, ir.FloatType() if single else ir.DoubleType())

    return like(types.int32 if single else types.int64, like), codegen


def _make(kind: Any, integer: Any, degree: int, least: float, log_2: tuple[float, float]) -> Any:
    high, low = kind(log_2[0]), kind(log_2[1])
    per_log_2, least, half = kind(1 / math.log(2)), kind(least), kind(0.5)
    terms = tuple(kind(1 / math.factorial(i)) for i in range(degree, -1, -1))

    def exponential(x):
        x = max(x, least)
        k = np.floor(x * per_log_2 + half)
        r = (x - k * high) - k * low
        value = kind(0)
        for term in terms:
            value = value * r + term
        return value * _power_of_two(integer(k), value)

    return exponential


# high has so few digits that k * high is exact
_SINGLE = _make(np.float32, np.int32, 7, -87.0, (0.693359375, -2.12194440e-4))
_DOUBLE = _make(np.float64, np.int64, 13, -708.0, (0.6931471803691238, 1.9082149292705877e-10))


def exp(x: Any) -> Any:
    """exp(x) for x up to about 80; far below zero it stays near the smallest normal number."""
    raise NotImplementedError("for compiled code only")


# No reordering: the two parts of log(2) would be added up again. Inlined for the reason given in compiler.py.
@overload(exp, jit_options={"fastmath": {"contract"}, "forceinline": True, "error_model": "numpy"})
def _compiled_exp(x):
    return _SINGLE if x == types.float32 else _DOUBLE


@fast_part
def digamma(x):
    """The derivative of log gamma, for x > 0, as in arrays.py."""
    below = 0.0
    for i in range(DIGAMMA_SHIFT):
        below += 1.0 / (x + i)
    x += DIGAMMA_SHIFT
    inverse = 1.0 / (x * x)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    return math.log(x) - 0.5 / x - series - below


@fast_part
def dot(x, y):
    """Inner product of two vectors."""
    total = x.dtype.type(0)
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@fast_part
def adam(values, mean, square, gradient, pull, floats, rate, correction):
    """One step, as in optimizers.py; the last five of ``floats`` are ``Adam.constants``.

    The gradient is ``gradient - pull values``, or ``gradient`` where ``pull`` is None.
    """
    b1, rest1, b2, rest2, eps = floats[-5], floats[-4], floats[-3], floats[-2], floats[-1]
    zero = values.dtype.type(0)
    for j in range(len(values)):
        g = gradient[j]
        if pull is not None:
            g -= pull * values[j]
        mu = b1 * mean[j] + rest1 * g
        nu = b2 * square[j] + rest2 * g * g
        mean[j] = mu
        square[j] = nu
        denominator = math.sqrt(nu) * correction + eps
        values[j] -= rate * mu / denominator if denominator > zero else zero
