"""TIM's descent on one task's class weights as compiled code: all steps in one call, with the task in a core's cache.

The points are stored by rows and by columns: logits are (classes, points), so that softmax, entropies and their
gradient are loops over whole vectors, and the gradient has the layout of the weights. Padding is zero.

Sizes: s support vectors, n points in all (support first), c classes, d dimensions; ``*p`` are padded sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from a2lp.kernels.compiler import compiled, fast_part
from a2lp.kernels.elementary import adam, dot
from a2lp.kernels.information import SUPPORT, TAU, probabilities, query_gradient, support_gradient
from a2lp.kernels.linear import matmul
from a2lp.kernels.simd import ROWS, VECTOR_BYTES, allocate, round_up


def make_workspace(s: int, n: int, d: int, c: int, dtype: Any) -> dict[str, Any]:
    """Memory for tasks of n points, s of them support, d dimensions and c classes."""
    lanes = VECTOR_BYTES // np.dtype(dtype).itemsize
    cp, dp, np_ = round_up(c, ROWS), round_up(d, lanes), round_up(n, lanes)
    shapes = {
        "X": (n, dp),  # points
        "XT": (d, np_),  # points, transposed
        "W mean square gradient": (cp, dp),  # of the weights
        "L P H": (cp, np_),  # logits, then log-probabilities; probabilities; dL/dlogits
        "rows": (3, np_),  # two for scratch, and 1 for queries
    }
    work = allocate(dtype, shapes)
    work["rows"][2, s:n] = 1
    return work | {"codes": np.zeros(s, np.int64)}


@fast_part
def _logits(W, L, c, tau):
    """Turn the inner products in L into tau (x . w - |w|^2 / 2); |x|^2 is the same for all classes."""
    half = W.dtype.type(0.5)
    for q in range(c):
        length = dot(W[q], W[q])
        for i in range(L.shape[1]):
            L[q, i] = tau * (L[q, i] - half * length)


@fast_part
def _finish_gradient(gradient, w, h, tau):
    """Turn sum_i h_i x_i of one class in ``gradient`` into tau sum_i h_i (x_i - w)."""
    pull = w.dtype.type(0)
    for i in range(len(h)):
        pull += h[i]
    for j in range(len(w)):
        gradient[j] = tau * (gradient[j] - pull * w[j])


@compiled()
def descend(c, floats, rates, work):
    """All steps of one task, from the points, codes and W in ``work``, whose moments are zero; W is changed.

    floats: tau, the objective and ``Adam.constants``; rates: ``Adam.rates``.
    """
    X, XT, W, mean, square, gradient, L, P, H, rows, codes = work
    n, d = len(X), len(XT)
    tau, one = floats[TAU], X.dtype.type(1)
    share = one / X.dtype.type(n - len(codes))
    scale = floats[SUPPORT] / X.dtype.type(len(codes))
    for step in range(len(rates)):
        matmul(W, XT, d, L)
        _logits(W, L, c, tau)
        probabilities(L, P, rows[0], rows[1], c)
        query_gradient(P, L, H, rows[0], rows[2], c, share, floats)
        support_gradient(P, H, codes, c, scale)
        matmul(H, X, n, gradient)
        for q in range(c):
            _finish_gradient(gradient[q], W[q], H[q], tau)
            adam(W[q], mean[q], square[q], gradient[q], None, floats, rates[step, 0], rates[step, 1])
