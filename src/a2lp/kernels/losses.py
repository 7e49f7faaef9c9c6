"""The losses of losses.py as compiled code. No fast-math: in the official numerics, rounding is the point."""

from __future__ import annotations

import math

import numpy as np

from a2lp.kernels.compiler import part
from a2lp.losses import NUMERICS, QUERY_TERMS

EXACT, OFFICIAL = NUMERICS.index("exact"), NUMERICS.index("official")
OTHERS = len(NUMERICS)
SOFT, NO_QUERIES = QUERY_TERMS.index("soft"), len(QUERY_TERMS)


@part
def exact_loss(kind, Z, m, s, c, codes, tau, scale, H):
    """The loss of the anchors, rows m to m + s of Z, as ``losses.cross_entropy``; its gradient goes into H (s, c)."""
    zero = Z.dtype.type(0)
    total = zero
    label = Z.dtype.type(kind == OTHERS)  # taken out of z_y
    for a in range(s):
        z, h, y = Z[m + a], H[a], codes[a]
        own = z[y] - label
        shift = zero
        for j in range(c):
            shift = shift if j == y else max(shift, tau * (z[j] - own))
        mass = zero
        for j in range(c):
            h[j] = zero if j == y else math.exp(tau * (z[j] - own) - shift)
            mass += h[j]
        factor = tau * scale / (math.exp(-shift) + mass)
        wrong = zero
        for j in range(c):
            h[j] *= factor
            wrong += h[j]
        h[y] = -wrong
        total += scale * (shift + math.log1p(math.expm1(-shift) + mass))
    return total


@part
def official_loss(kind, Z, m, s, c, codes, tau, scale, H, scratch):
    """The same as ``losses.cross_entropy_official``, rounded as PyTorch rounds it; scratch (c,) is float32."""
    total = Z.dtype.type(0)
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


@part
def query_loss(kind, Z, m, c, tau, entropy, marginal, out, first, mean, d_p, tail):
    """The terms on the other points, rows 0 to m of Z; their gradient goes into columns from ``first`` of ``out``.

    z . dL/dz of each point goes into ``tail`` (m,); mean (c,) and d_p (c,) are scratch.
    """
    zero, one = Z.dtype.type(0), Z.dtype.type(1)
    each = one / Z.dtype.type(m)
    spread = zero
    for j in range(c):
        mean[j] = zero
    for i in range(m):  # distributions, and their mean
        z, p = Z[i], out[i, first:]
        top = z[0]
        for j in range(c):
            top = max(top, z[j])
        mass = zero
        if kind == SOFT:
            for j in range(c):
                p[j] = math.exp(tau * (z[j] - top))
                mass += p[j]
        else:  # relative to the largest: squares of small numbers would underflow
            share = one / top if top > 0 else zero
            for j in range(c):
                p[j] = (share * z[j]) * (share * z[j])
                mass += p[j]
        share = one / mass if mass > 0 else zero
        for j in range(c):
            p[j] *= share
            mean[j] += p[j]
    balance = zero
    for j in range(c):
        mean[j] *= each
        log_mean = math.log(mean[j]) if mean[j] > 0 else zero
        balance -= mean[j] * log_mean
        mean[j] = marginal * each * log_mean
    for i in range(m):
        z, p = Z[i], out[i, first:]
        average, tail[i] = zero, zero
        for j in range(c):
            log_p = math.log(p[j]) if p[j] > 0 else zero
            spread -= p[j] * log_p
            d_p[j] = mean[j] - entropy * each * log_p
            average += p[j] * d_p[j]
        for j in range(c):
            slope = tau * p[j] if kind == SOFT else (p[j] + p[j]) / z[j] if z[j] > 0 else zero
            p[j] = slope * (d_p[j] - average)
            tail[i] += z[j] * p[j]
    return entropy * each * spread - marginal * balance
