"""LU without pivots as compiled code, for systems I - alpha D^-1/2 W D^-1/2 that are not symmetric.

Such a system is similar to I - alpha D^-1 W, which has a dominant diagonal, so no pivot is small. Both factors are
stored as upper triangles, L transposed, so that the substitutions of ``kernels.linear`` serve both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from a2lp.kernels.compiler import part
from a2lp.kernels.linear import solve_rows, subtract_transposed
from a2lp.kernels.simd import ROWS, VECTOR_BYTES, data_of, entry, int64, simd_type


@intrinsic
def _factor_block(typingctx, U, T, corner, row, first, vectors, inverse, i0):
    """LU of the block at ``corner``, and both factors' rows from ``first`` on; reciprocal pivots go to ``inverse``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        U, T, corner, row, first, vectors, inverse, i0 = args
        scalar, vector, _ = simd_type(signature.args[0])
        arrays = (0, U), (1, T), (6, inverse)
        upper, lower, out = (data_of(context, builder, signature.args[i], array) for i, array in arrays)
        m = {(a, b): entry(builder, upper, corner, row, a, b) for a in range(ROWS) for b in range(ROWS)}
        pivots = []
        for a in range(ROWS):
            pivot = builder.fdiv(ir.Constant(scalar, 1.0), m[a, a])
            pivots.append(pivot)
            builder.store(pivot, builder.gep(out, [builder.add(i0, int64(a))]))
            for b in range(a + 1, ROWS):
                m[b, a] = builder.fmul(m[b, a], pivot)
                for c in range(a + 1, ROWS):
                    m[b, c] = builder.fma(builder.fneg(m[b, a]), m[a, c], m[b, c])
        ones = [ir.Constant(scalar, 1.0)] * ROWS
        solve_rows(builder, vector, upper, first, row, vectors, lambda a, b: m[a, b], ones, range(ROWS))
        solve_rows(builder, vector, lower, first, row, vectors, lambda a, b: m[b, a], pivots, range(ROWS))
        return context.get_dummy_value()

    n = types.int64
    return types.void(U, T, n, n, n, n, inverse, n), codegen


@part
def factor(U, T, inverse):
    """From M in U and M' in T to M = L U: U, and L' with a diagonal of ones in T; garbage stays below diagonals.

    ``inverse`` takes the reciprocals of U's diagonal.
    """
    nr, np_ = U.shape
    lanes, none = VECTOR_BYTES // U.itemsize, np.int64(0)
    for i0 in range(0, nr, ROWS):
        j0 = i0 // lanes * lanes
        subtract_transposed(T, U, U, none, i0, U, i0, j0)
        subtract_transposed(U, T, U, none, i0, T, i0, j0)
        _factor_block(U, T, i0 * np_ + i0, np_, i0 * np_ + j0, (np_ - j0) // lanes, inverse, i0)
