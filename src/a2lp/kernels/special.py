"""Special functions that the array API does not have."""

from __future__ import annotations

from array_api_compat import device

from a2lp.arrays import Array, namespace

SHIFT = 8  # recurrences until the asymptotic series has 1e-11 left


def digamma(x: Array) -> Array:
    """The derivative of log gamma, for x > 0."""
    xp = namespace(x)
    below = xp.sum(1.0 / (x[..., None] + xp.arange(SHIFT, dtype=x.dtype, device=device(x))), axis=-1)
    x = x + SHIFT
    inverse = 1.0 / (x * x)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    return xp.log(x) - 0.5 / x - series - below
