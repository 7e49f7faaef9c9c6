"""Adam as compiled code."""

from __future__ import annotations

import math

from a2lp.kernels.compiler import fast_part


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
