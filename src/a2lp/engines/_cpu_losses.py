"""The losses of losses.py as compiled code on the anchors' rows of Z; the kernel does not know which one it serves."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from a2lp.losses import NUMERICS

# No fast-math here: in the official numerics, rounding is the point.
_part = njit(nogil=True, error_model="numpy", _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)

EXACT, OFFICIAL = NUMERICS.index("exact"), NUMERICS.index("official")


@_part
def anchor_loss(kind, Z, m, s, c, codes, tau, scale, H, scratch):
    """The loss of the anchors, rows m to m + s of Z; its gradient goes into H (s, c); scratch (c,) is float32.

    One function, since each that stands alone compiles for itself and again inside its caller.
    """
    zero = Z.dtype.type(0)
    total = zero
    if kind == EXACT:
        # log(1 + sum_{j != y} exp(tau (z_j - z_y))): the small remainder is summed up, never 1 - p_y
        for a in range(s):
            z, h, y = Z[m + a], H[a], codes[a]
            shift = zero
            for j in range(c):
                shift = max(shift, tau * (z[j] - z[y]))
            mass = zero
            for j in range(c):
                h[j] = zero if j == y else math.exp(tau * (z[j] - z[y]) - shift)
                mass += h[j]
            factor = tau * scale / (math.exp(-shift) + mass)
            wrong = zero
            for j in range(c):
                h[j] *= factor
                wrong += h[j]
            h[y] = -wrong
            total += scale * (shift + math.log1p(math.expm1(-shift) + mass))
        return total
    # -log(softmax(tau z) + 1e-12) in float32, every operation rounded as PyTorch rounds it
    tau32, scale32, e = np.float32(tau), np.float32(scale), scratch
    warp = kind == OFFICIAL
    width = 1
    while warp and width < c and width < 32:
        width *= 2
    for a in range(s):
        z, h, y = Z[m + a], H[a], codes[a]
        top = tau32 * np.float32(z[0])
        for j in range(c):
            e[j] = tau32 * np.float32(z[j])
            top = max(top, e[j])
        for j in range(c):
            e[j] = math.exp(e[j] - top)
            h[j] = e[j]
        lanes = width
        for j in range(lanes, c):  # strided over the lanes, then halves onto halves; one lane is a running sum
            h[j % lanes] = np.float32(h[j % lanes]) + e[j]
        filled = min(lanes, c)
        while lanes > 1:
            lanes //= 2
            for j in range(lanes, filled):
                h[j - lanes] = np.float32(h[j - lanes]) + np.float32(h[j])
            filled = min(filled, lanes)
        mass32 = np.float32(h[0])
        right = e[y] / mass32
        g = -scale32 / (right + np.float32(1e-12))
        weighted = g * right
        twice = np.float64(weighted)  # float() would leave it in float32
        for j in range(c):
            p = e[j] / mass32
            if warp:  # one rounding, as of a fused multiply-add: float64 holds the product of two float32
                h[j] = tau32 * np.float32((twice if j == y else 0.0) - np.float64(p) * twice)
            else:
                h[j] = tau32 * (((g if j == y else np.float32(0)) - weighted) * p)
        total += -scale32 * math.log(right + np.float32(1e-12))
    return total
