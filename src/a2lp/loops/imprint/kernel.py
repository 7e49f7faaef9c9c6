"""Fine-tuning of one task's class weights as compiled code: all steps in one call, with the task in a core's cache.

A step reads the weights twice: for the logits, and then, a block of columns at a time, for the gradient and Adam.
Rows of matrices are padded with zeros to whole blocks, and the padding stays zero.

Sizes: s support vectors, c classes, d dimensions; ``*p`` are padded sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from a2lp.kernels.compiler import compiled
from a2lp.kernels.elementary import adam, dot
from a2lp.kernels.losses import EXACT, exact_loss, official_loss
from a2lp.kernels.simd import BLOCK, ROWS, VECTOR_BYTES, allocate, dot_block, make_product, round_up

_product = make_product(BLOCK, subtract=False, indexed=False)

TAU, SCALE = range(2)  # indices into the vector of parameters, before Adam's


def make_workspace(s: int, d: int, c: int, dtype: Any) -> dict[str, Any]:
    """Memory for tasks of s support vectors, d dimensions and c classes."""
    columns = BLOCK * (VECTOR_BYTES // np.dtype(dtype).itemsize)
    sp, cp, dp = round_up(s, ROWS), round_up(c, ROWS), round_up(d, columns)
    shapes = {
        "X": (sp, dp),  # support
        "W mean square": (cp, dp),  # of the weights
        "Z H": (sp, cp),  # logits, dL/dlogits
        "gradient": (ROWS, columns),  # of a block
    }
    work = allocate(dtype, shapes)
    # |x|^2, column sums of H, and a softmax for the official numerics
    return work | {"lengths": np.zeros(sp, dtype), "pull": np.zeros(cp, dtype), "softmax": np.zeros(c, np.float32)}


@compiled()
def fine_tune(codes, c, kind, floats, rates, losses, work):
    """All steps of one task, from the X and W in ``work``, whose moments are zero; W is changed.

    codes (s,); kind: the loss, an index into NUMERICS; floats: the parameters; rates: ``Adam.rates``; losses (steps,).
    """
    X, W, mean, square, Z, H, gradient, lengths, pull, softmax = work
    s = len(codes)
    sp, dp = X.shape
    cp, columns = len(W), gradient.shape[1]
    none, unit = np.int64(0), np.int64(1)  # typed: numba compiles a function anew for each literal
    half = X.dtype.type(0.5)
    for i in range(s):
        lengths[i] = dot(X[i], X[i])
    for step in range(len(losses)):
        for q0 in range(0, cp, ROWS):
            for i0 in range(0, sp, ROWS):
                dot_block(X, i0 * dp, W, q0 * dp, dp, dp, Z, i0 * cp + q0, cp)
        for q in range(c):
            length = dot(W[q], W[q])
            for i in range(s):
                Z[i, q] -= half * (lengths[i] + length)
        if kind == EXACT:
            losses[step] = exact_loss(kind, Z, none, s, c, codes, floats[TAU], floats[SCALE], H)
        else:
            losses[step] = official_loss(kind, Z, none, s, c, codes, floats[TAU], floats[SCALE], H, softmax)
        for q in range(c):
            pull[q] = 0
            for i in range(s):
                pull[q] += H[i, q]
        for q0 in range(0, cp, ROWS):
            for start in range(0, dp, columns):
                # codes stand in for row indices, which this product does not read
                _product(H, q0, unit, cp, X, start, dp, codes, none, s, gradient, none, columns)
                stop = start + columns
                for q in range(q0, min(q0 + ROWS, c)):
                    adam(
                        W[q, start:stop], mean[q, start:stop], square[q, start:stop], gradient[q - q0], pull[q],
                        floats, rates[step, 0], rates[step, 1],
                    )  # fmt: skip
