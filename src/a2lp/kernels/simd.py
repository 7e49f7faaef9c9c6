"""Register-blocked matrix products for numba kernels, written as LLVM vector code.

A loop vectoriser decides in every loop whether a product stays in registers. Here that is explicit: a block of ``ROWS``
rows by up to ``BLOCK`` vectors is accumulated in registers and written once. The vectors' length and ``BLOCK`` are
chosen so that the accumulators fit the registers of this machine; LLVM splits vectors that are too long for it.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

ROWS = 5  # few-shot tasks come in fives; other sizes are padded


def round_up(size: int, to: int) -> int:
    """The next multiple."""
    return -(-size // to) * to


def aligned(shape: tuple[int, int], dtype: Any) -> Any:
    """Zeros whose rows start at cache lines: a vector that straddles two lines costs two loads."""
    size, itemsize = shape[0] * shape[1], np.dtype(dtype).itemsize
    buffer = np.zeros(size + 64 // itemsize, dtype)
    skip = -(buffer.ctypes.data // itemsize) % (64 // itemsize)
    return buffer[skip : skip + size].reshape(shape)


def allocate(dtype: Any, shapes: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Aligned zeros by name; the names in one key have the same shape."""
    return {name: aligned(shape, dtype) for names, shape in shapes.items() for name in names.split()}


def as_integers(array: Any) -> Any:
    """A view of floats as the integers with the same bits."""
    return array.view(np.int32 if array.itemsize == 4 else np.int64)


def cpu_features() -> str:
    """The processor's features as LLVM names them, or those set for numba."""
    if config.CPU_FEATURES is not None:
        return str(config.CPU_FEATURES)
    return str(llvm.get_host_cpu_features().flatten())


HAS_AVX512 = "+avx512f" in cpu_features()
VECTOR_BYTES = 64 if HAS_AVX512 else 32
# accumulators + one row of operands + one broadcast: 25 + 5 + 1 of 32 registers, or 10 + 2 + 1 of 16
BLOCK = 5 if HAS_AVX512 else 2
ALIGN = 16  # rows of matrices are padded to this many numbers


def data_of(context: Any, builder: Any, array_type: Any, value: Any) -> Any:
    """The pointer to an array's first number."""
    return context.make_array(array_type)(context, builder, value).data


def simd_type(array_type: Any) -> tuple[Any, Any, int]:
    """LLVM's types of an array's numbers and of vectors of them, and the numbers in a vector."""
    scalar = ir.FloatType() if array_type.dtype == types.float32 else ir.DoubleType()
    lanes = VECTOR_BYTES // (array_type.dtype.bitwidth // 8)
    return scalar, ir.VectorType(scalar, lanes), lanes


def int64(value: int) -> Any:
    """A constant of type int64."""
    return ir.Constant(ir.IntType(64), value)


def offset(builder: Any, start: Any, row: Any, a: int, b: int) -> Any:
    """Index of entry (a, b) of a matrix in memory: its first entry is at ``start``, and its rows are ``row`` apart."""
    return builder.add(start, builder.add(builder.mul(row, int64(a)), int64(b)))


def entry(builder: Any, base: Any, start: Any, row: Any, a: int, b: int) -> Any:
    """Entry (a, b) of such a matrix in the array at ``base``."""
    return builder.load(builder.gep(base, [offset(builder, start, row, a, b)]))


def splat(builder: Any, vector: Any, value: Any) -> Any:
    """A vector that holds one number everywhere."""
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)


_LAYOUT = llvm.create_target_data("e-m:e-i64:64-f80:128-n8:16:32:64-S128")


def load(builder: Any, vector: Any, base: Any, index: Any) -> Any:
    """The vector at ``base[index]``, which need not be aligned."""
    pointer = builder.bitcast(builder.gep(base, [index]), vector.as_pointer())
    return builder.load(pointer, align=vector.element.get_abi_size(_LAYOUT))


def store(builder: Any, vector: Any, base: Any, index: Any, value: Any) -> None:
    """Write a vector to ``base[index]``, which need not be aligned."""
    pointer = builder.bitcast(builder.gep(base, [index]), vector.as_pointer())
    builder.store(value, pointer, align=vector.element.get_abi_size(_LAYOUT))


def call(builder: Any, name: str, result: Any, arguments: list[Any], **options: Any) -> Any:
    """Call one of LLVM's functions of vectors, whose name ends in the type of its last argument."""
    vector = arguments[-1].type
    function_type = ir.FunctionType(result, [argument.type for argument in arguments])
    name = f"llvm.{name}.v{vector.count}{vector.element.intrinsic_name}"
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), arguments, **options)


def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """A b + c of vectors, rounded once."""
    return call(builder, "fma", a.type, [a, b, c])


class Loop:
    """A counted loop whose accumulators are phi nodes, so they live in registers."""

    def __init__(self, builder: Any, start: Any, count: Any, step: Any, initial: list[Any]) -> None:
        self.builder, self.step = builder, step
        before = builder.block
        self.head, body, self.exit = (builder.append_basic_block(name) for name in ("head", "body", "exit"))
        builder.branch(self.head)
        builder.position_at_end(self.head)
        self.index, *self.carried = (builder.phi(value.type) for value in (start, *initial))
        for phi, value in zip((self.index, *self.carried), (start, *initial), strict=True):
            phi.add_incoming(value, before)
        builder.cbranch(builder.icmp_signed("<", self.index, count), body, self.exit)
        builder.position_at_end(body)

    def close(self, values: list[Any]) -> list[Any]:
        """End the body; the accumulators after the loop."""
        block = self.builder.block
        values = [self.builder.add(self.index, self.step), *values]
        for phi, value in zip((self.index, *self.carried), values, strict=True):
            phi.add_incoming(value, block)
        self.builder.branch(self.head)
        self.builder.position_at_end(self.exit)
        return self.carried


def make_product(vectors: int, *, subtract: bool, indexed: bool) -> Any:
    """A block of a matrix product as an intrinsic.

    ``f(x, x0, x_row, x_k, y, y0, y_k, rows, start, count, out, o0, o_row)`` computes, for ``ROWS`` rows a and
    ``vectors`` vectors of columns j,

        out[o0 + a o_row + j]  =  sum_k x[x0 + a x_row + k x_k] y[y0 + r(k) y_k + j]      k = start .. count - 1

    with r(k) = k, or ``rows[k]`` if ``indexed``; with ``subtract`` the sum is subtracted from ``out``.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x_type, y_type, rows_type, out_type = (signature.args[i] for i in (0, 4, 7, 10))
        x, x0, x_row, x_k, y, y0, y_k, rows, start, count, out, o0, o_row = args
        _, vector, lanes = simd_type(out_type)
        x, y, out = (data_of(context, builder, t, v) for t, v in ((x_type, x), (y_type, y), (out_type, out)))
        places = [offset(builder, o0, o_row, a, b * lanes) for a in range(ROWS) for b in range(vectors)]
        zero = ir.Constant(vector, [0.0] * lanes)
        initial = [load(builder, vector, out, p) if subtract else zero for p in places]
        x_rows = [builder.add(x0, builder.mul(x_row, int64(a))) for a in range(ROWS)]
        loop = Loop(builder, start, count, int64(1), initial)
        k = loop.index
        row = builder.load(builder.gep(data_of(context, builder, rows_type, rows), [k])) if indexed else k
        y_row = builder.add(y0, builder.mul(row, y_k))
        operands = [load(builder, vector, y, builder.add(y_row, int64(b * lanes))) for b in range(vectors)]
        after = []
        for a in range(ROWS):
            factor = builder.load(builder.gep(x, [builder.add(x_rows[a], builder.mul(k, x_k))]))
            if subtract:
                factor = builder.fneg(factor)
            wide = splat(builder, vector, factor)
            after += [fma(builder, wide, operands[b], loop.carried[a * vectors + b]) for b in range(vectors)]
        for place, value in zip(places, loop.close(after), strict=True):
            store(builder, vector, out, place, value)
        return context.get_dummy_value()

    @intrinsic
    def product(typingctx, x, x0, x_row, x_k, y, y0, y_k, rows, start, count, out, o0, o_row):
        n = types.int64
        return types.void(x, n, n, n, y, n, n, rows, n, n, out, n, n), codegen

    return product


@intrinsic
def dot_block(typingctx, x, x0, y, y0, row, length, out, o0, o_row):
    """All ROWS x ROWS inner products of rows of x and of y, each ``length`` long and ``row`` apart.

    ``length`` is a multiple of the vector's; out[o0 + a o_row + b] = x_a . y_b.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, x0, y, y0, row, length, out, o0, o_row = args
        x_type, y_type, out_type = signature.args[0], signature.args[2], signature.args[6]
        scalar, vector, lanes = simd_type(out_type)
        x, y, out = (data_of(context, builder, t, v) for t, v in ((x_type, x), (y_type, y), (out_type, out)))
        zero = ir.Constant(vector, [0.0] * lanes)
        loop = Loop(builder, int64(0), length, int64(lanes), [zero] * (ROWS * ROWS))

        def operands(base: Any, first: Any) -> list[Any]:
            places = [builder.add(builder.add(first, builder.mul(row, int64(a))), loop.index) for a in range(ROWS)]
            return [load(builder, vector, base, place) for place in places]

        left, right = operands(x, x0), operands(y, y0)
        # column by column: the compiler then keeps more of the sums in registers
        pairs = [(a, b) for b in range(ROWS) for a in range(ROWS)]
        made = {(a, b): fma(builder, left[a], right[b], loop.carried[a * ROWS + b]) for a, b in pairs}
        sums = loop.close([made[pair] for pair in sorted(made)])
        for (a, b), vector_sum in zip(sorted(made), sums, strict=True):
            terms = [ir.Constant(scalar, -0.0), vector_sum]
            total = call(builder, "vector.reduce.fadd", scalar, terms, fastmath=["reassoc"])
            builder.store(total, builder.gep(out, [offset(builder, o0, o_row, a, b)]))
        return context.get_dummy_value()

    n = types.int64
    return types.void(x, n, y, n, n, n, out, n, n), codegen
