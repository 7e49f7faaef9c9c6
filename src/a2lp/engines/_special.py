"""Special functions that the array API does not have."""

from __future__ import annotations

from a2lp.arrays import Array, namespace

SHIFT = 8  # recurrences until the asymptotic series has 1e-11 left


def digamma(x: Array) -> Array:
    """The derivative of log gamma, for x > 0."""
    xp = namespace(x)
    below = xp.zeros_like(x)
    for i in range(SHIFT):
        below = below + 1.0 / (x + i)
    x = x + SHIFT
    inverse = 1.0 / (x * x)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    return xp.log(x) - 0.5 / x - series - below
