"""The losses of losses.py as compiled code on the anchors' rows of Z; the kernel does not know which one it serves."""

from __future__ import annotations

import numpy as np
from numba import njit

# No fast-math here: in the official numerics, rounding is the point.

EXACT, OFFICIAL, OFFICIAL_CPU = range(3)
CODES = {"exact": EXACT, "official": OFFICIAL, "official_cpu": OFFICIAL_CPU}


@njit(nogil=True)
def anchor_loss(kind, Z, m, s, c, codes, tau, scale, H):
    """The loss of the anchors, rows m to m + s of Z; its gradient goes into H (s, c)."""
    total = Z.dtype.type(0)
    for a in range(s):
        if kind == EXACT:
            total += _exact(Z[m + a], codes[a], c, tau, scale, H[a])
        else:
            total += _official(Z[m + a], codes[a], c, np.float32(tau), np.float32(scale), kind == OFFICIAL, H[a])
    return total


@njit(nogil=True)
def _exact(z, y, c, tau, scale, h):
    """log(1 + sum_{j != y} exp(tau (z_j - z_y))): the small remainder is summed up, never 1 - p_y."""
    zero = z.dtype.type(0)
    shift = zero
    for j in range(c):
        shift = max(shift, tau * (z[j] - z[y]))
    mass = zero
    for j in range(c):
        h[j] = zero if j == y else np.exp(tau * (z[j] - z[y]) - shift)
        mass += h[j]
    factor = tau * scale / (np.exp(-shift) + mass)
    wrong = zero
    for j in range(c):
        h[j] *= factor
        wrong += h[j]
    h[y] = -wrong
    return scale * (shift + np.log1p(np.expm1(-shift) + mass))


@njit(nogil=True)
def _official(z, y, c, tau, scale, warp, h):
    """-log(softmax(tau z) + 1e-12) in float32, every operation rounded as PyTorch rounds it."""
    e = np.empty(c, np.float32)
    for j in range(c):
        e[j] = tau * np.float32(z[j])
    top = e[0]
    for j in range(c):
        top = max(top, e[j])
    for j in range(c):
        e[j] = np.exp(e[j] - top)
    total = _warp_sum(e) if warp else _running_sum(e)
    offset = np.float32(1e-12)
    for j in range(c):
        e[j] = e[j] / total
    g = -scale / (e[y] + offset)
    if warp:
        weighted = g * e[y]
        for j in range(c):
            term = float(weighted) if j == y else 0.0
            fused = np.float32(term - float(e[j]) * float(weighted))  # one rounding: a fused multiply-add
            h[j] = tau * fused
    else:
        inner = g * e[y]
        for j in range(c):
            own = g if j == y else np.float32(0)
            h[j] = tau * ((own - inner) * e[j])
    return -scale * np.log(e[y] + offset)


@njit(nogil=True)
def _running_sum(e):
    total = np.float32(0)
    for value in e:
        total += value
    return total


@njit(nogil=True)
def _warp_sum(e):
    """Strided over 32 lanes, then halves onto halves."""
    lanes = 1
    while lanes < len(e) and lanes < 32:
        lanes *= 2
    lane = np.zeros(lanes, np.float32)
    for j in range(len(e)):
        lane[j % lanes] += e[j]
    while lanes > 1:
        lanes //= 2
        for j in range(lanes):
            lane[j] += lane[j + lanes]
    return lane[0]
