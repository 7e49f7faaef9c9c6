"""Products, Cholesky factors and substitutions as compiled code, in blocks of ``ROWS`` rows that stay in registers.

A block of a factor is one product with the blocks before it, then a small triangle of scalars and rows of vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from a2lp.kernels import simd
from a2lp.kernels.compiler import part
from a2lp.kernels.simd import BLOCK, ROWS, VECTOR_BYTES, data_of, entry, int64, make_product, simd_type


def product(*, subtract: bool = False, transposed: bool = False, indexed: bool = False) -> Any:
    """Products over any number of columns, in register blocks, as a compiled function."""
    wide, two, one = (make_product(width, subtract=subtract, indexed=indexed) for width in (BLOCK, 2, 1))

    @part
    def blocks(X, Y, rows, start, stop, out, i0, j0):
        """Rows i0 to i0 + ROWS of X Y, or of X' Y, over k from ``start`` to ``stop``, into ``out`` from column j0 on.

        Y's rows are ``rows[k]`` if indexed; else ``rows`` can be any array.
        """
        x_row, x_k, y_k, o_row = X.shape[1], np.int64(1), Y.shape[1], out.shape[1]
        x0 = i0 * x_row
        if transposed:
            x0, x_row, x_k = i0, x_k, x_row
        lanes = VECTOR_BYTES // out.itemsize
        v, vectors = j0 // lanes, y_k // lanes
        while v < vectors:
            j, o = v * lanes, i0 * o_row + v * lanes
            if vectors - v >= BLOCK:
                wide(X, x0, x_row, x_k, Y, j, y_k, rows, start, stop, out, o, o_row)
                v += BLOCK
            elif vectors - v >= 2:
                two(X, x0, x_row, x_k, Y, j, y_k, rows, start, stop, out, o, o_row)
                v += 2
            else:
                one(X, x0, x_row, x_k, Y, j, y_k, rows, start, stop, out, o, o_row)
                v += 1

    return blocks


multiply = product()
multiply_transposed = product(transposed=True)
subtract_transposed = product(transposed=True, subtract=True)
_subtract_vector = make_product(1, subtract=True, indexed=False)


@part
def matmul(X, Y, k, out):
    """X[:, :k] Y[:k] into ``out``, whose rows are a multiple of ROWS."""
    none = np.int64(0)  # typed: numba compiles a function anew for each literal
    for i0 in range(0, len(out), ROWS):
        multiply(X, Y, X, none, k, out, i0, none)


def _triangle(builder: Any, base: Any, corner: Any, row: Any) -> dict[tuple[int, int], Any]:
    """The entries on and above the diagonal of the block whose corner is at this place."""
    return {(a, b): entry(builder, base, corner, row, a, b) for a in range(ROWS) for b in range(a, ROWS)}


def solve_rows(builder, vector, base, first, row, vectors, factor_at, pivots, order):
    """Rows of a block, in this order: each minus its factors times the rows before it, times its pivot."""
    loop = simd.Loop(builder, int64(0), vectors, int64(1), [])
    at = builder.add(first, builder.mul(loop.index, int64(vector.count)))
    places = [builder.add(at, builder.mul(row, int64(a))) for a in range(ROWS)]
    values = [simd.load(builder, vector, base, place) for place in places]
    for done, a in enumerate(order):
        for b in order[:done]:
            values[a] = simd.fma(
                builder, simd.splat(builder, vector, builder.fneg(factor_at(a, b))), values[b], values[a]
            )
        values[a] = builder.fmul(values[a], simd.splat(builder, vector, pivots[a]))
        simd.store(builder, vector, base, places[a], values[a])
    loop.close([])


@intrinsic
def _factor_block(typingctx, U, corner, row, first, vectors, inverse, i0):
    """Cholesky of one block at ``corner``, and its rows from ``first`` on; reciprocal pivots go to ``inverse``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        U, corner, row, first, vectors, inverse, i0 = args
        scalar, vector, _ = simd_type(signature.args[0])
        base = data_of(context, builder, signature.args[0], U)
        out = data_of(context, builder, signature.args[5], inverse)
        root = builder.module.declare_intrinsic("llvm.sqrt", [scalar])
        u = _triangle(builder, base, corner, row)
        pivots = []
        for a in range(ROWS):
            pivot = builder.fdiv(ir.Constant(scalar, 1.0), builder.call(root, [u[a, a]]))
            pivots.append(pivot)
            builder.store(pivot, builder.gep(out, [builder.add(i0, int64(a))]))
            for b in range(a + 1, ROWS):
                u[a, b] = builder.fmul(u[a, b], pivot)
            for b in range(a + 1, ROWS):
                for c in range(b, ROWS):
                    u[b, c] = builder.fma(builder.fneg(u[a, b]), u[a, c], u[b, c])
        solve_rows(builder, vector, base, first, row, vectors, lambda a, b: u[b, a], pivots, range(ROWS))
        return context.get_dummy_value()

    n = types.int64
    return types.void(U, n, n, n, n, inverse, n), codegen


def _substitution(*, backward: bool) -> Any:
    @intrinsic
    def block(typingctx, U, corner, row, inverse, i0, X, first, x_row, vectors):
        """Solve the rows of X with one block of the factor."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            U, corner, row, inverse, i0, X, first, x_row, vectors = args
            _, vector, _ = simd_type(signature.args[5])
            u = _triangle(builder, data_of(context, builder, signature.args[0], U), corner, row)
            inverse = data_of(context, builder, signature.args[3], inverse)
            pivots = [builder.load(builder.gep(inverse, [builder.add(i0, int64(a))])) for a in range(ROWS)]
            base = data_of(context, builder, signature.args[5], X)
            order = range(ROWS - 1, -1, -1) if backward else range(ROWS)
            solve_rows(
                builder, vector, base, first, x_row, vectors, lambda a, b: u[min(a, b), max(a, b)], pivots, order
            )
            return context.get_dummy_value()

        n = types.int64
        return types.void(U, n, n, inverse, n, X, n, n, n), codegen

    return block


_forward_block = _substitution(backward=False)
_backward_block = _substitution(backward=True)


@part
def factor(U, inverse):
    """Cholesky factor M = U' U in place; garbage stays below the diagonal."""
    nr, np_ = U.shape
    lanes, none = VECTOR_BYTES // U.itemsize, np.int64(0)
    for i0 in range(0, nr, ROWS):
        j0 = i0 // lanes * lanes
        subtract_transposed(U, U, U, none, i0, U, i0, j0)
        _factor_block(U, i0 * np_ + i0, np_, i0 * np_ + j0, (np_ - j0) // lanes, inverse, i0)


@part
def forward(U, inverse, X, start):
    """Forward substitution from row ``start``, a multiple of ROWS, on; X is zero before it."""
    (nr, np_), cp, lanes, unit = U.shape, X.shape[1], VECTOR_BYTES // U.itemsize, np.int64(1)
    for i0 in range(start, nr, ROWS):
        for v in range(0, cp, lanes):
            _subtract_vector(U, i0, unit, np_, X, v, cp, X, start, i0, X, i0 * cp + v, cp)
        _forward_block(U, i0 * np_ + i0, np_, inverse, i0, X, i0 * cp, cp, cp // lanes)


@part
def backward(U, inverse, X, start, stop):
    """Backward substitution in rows ``start`` to ``stop``, multiples of ROWS; the rows after them are solved."""
    (nr, np_), cp, lanes, unit = U.shape, X.shape[1], VECTOR_BYTES // U.itemsize, np.int64(1)
    i0 = stop
    while i0 > start:
        i0 -= ROWS
        for v in range(0, cp, lanes):
            _subtract_vector(U, i0 * np_, np_, unit, X, v, cp, X, i0 + ROWS, nr, X, i0 * cp + v, cp)
        _backward_block(U, i0 * np_ + i0, np_, inverse, i0, X, i0 * cp, cp, cp // lanes)
