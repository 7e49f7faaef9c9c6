"""The adaptive manifold of one task as compiled code: all rounds in one call, with the task in a core's cache.

The same steps as ``am.value_and_gradient``, each a pass over rows. For the losses, Z and the adjoint are transposed to
(classes, nodes), so that all loops run along whole vectors. Padding is zero.

Sizes: m points, the first s of them support, and c centroids make n nodes of d dimensions; ``*p`` are padded sizes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from a2lp.graph import DEGREE_OFFSET
from a2lp.kernels.compiler import compiled, fast_part
from a2lp.kernels.elementary import adam, dot, exp
from a2lp.kernels.graph import identity_minus, kth_largest
from a2lp.kernels.information import SUPPORT, TAU, probabilities, query_gradient, support_gradient
from a2lp.kernels.linear import backward, forward, matmul, multiply
from a2lp.kernels.simd import ALIGN, ROWS, VECTOR_BYTES, allocate, as_integers, round_up
from a2lp.loops.am.linear import factor


def make_workspace(s: int, m: int, d: int, c: int, dtype: Any) -> dict[str, Any]:
    """Memory for tasks of m points, s of them support, d dimensions and c classes."""
    lanes = VECTOR_BYTES // np.dtype(dtype).itemsize
    n = m + c
    nr, cp, dp, mp = round_up(n, ROWS), round_up(c, ROWS), round_up(d, lanes), round_up(m, lanes)
    np_ = round_up(nr, lanes)
    shapes = {
        "nodes": (m + cp, dp),  # points, then centroids
        "across": (d, mp),  # points, transposed
        "cross": (cp, mp),  # inner products of centroids and points
        "distance scales scales_mean scales_square edges edges_mean edges_square": (n, np_),
        "near mutual": (n, np_),  # affinities of chosen neighbours, and these symmetrised
        "system turned": (nr, np_),  # then the factor U; a matrix transposed: the system's, then the factor L'
        "solution": (nr, round_up(c, ALIGN)),  # Z, then the adjoint
        "Z adjoint": (cp, np_),
        "L P H": (cp, np_),  # logits, then log-probabilities; probabilities; dL/dZ
        "pull": (cp, np_),  # dL/ddistance of the centroids, over the distance
        "gradient mean square": (cp, dp),
        "kth": (1, np_),  # each row's k-th largest affinity
        "vectors": (10, np_),
    }
    work = allocate(dtype, shapes)
    is_query, ones = work["vectors"][:2]
    is_query[s:m] = 1
    ones[:] = 1
    work |= {"bits": as_integers(work["near"]), "kth_bits": as_integers(work["kth"])}
    return work | {"codes": np.zeros(s, np.int64), "vectors": tuple(work["vectors"])}


@fast_part
def _from_products(products, distance, length, own, same):
    """|v - v_j| of one node from its inner products with others; their sum and that of their squares."""
    kind = distance.dtype.type
    total, squares = kind(0), kind(0)
    for j in range(len(products)):
        lengths = own + length[j]
        square = lengths - kind(2) * products[j]
        square = square if square > same * lengths else kind(0)
        value = math.sqrt(square)
        distance[j] = value
        total += value
        squares += square
    return total, squares


@fast_part
def _keep(near, threshold):
    """Set all below the threshold to zero; how many are left."""
    zero = near.dtype.type(0)
    kept = zero
    for j in range(len(near)):
        chosen = near[j] >= threshold
        near[j] = near[j] if chosen else zero
        kept += near.dtype.type(1) if chosen else zero
    return kept


@fast_part
def _drop_ties(near, low, slack, k):
    """Of equal affinities at the k-th place, the first stay."""
    high = low * (1 + 2 * slack)
    room = k
    for j in range(len(near)):
        if near[j] > high:
            room -= 1
    for j in range(len(near)):
        if low <= near[j] <= high:
            room -= 1
            if room < 0:
                near[j] = 0


@fast_part
def _turn(matrix, turned, n):
    for i in range(n):
        for j in range(n):
            turned[j, i] = matrix[i, j]


@fast_part
def _weigh(near, turned, edges, mutual, weights):
    """Symmetric affinities, times the edges' weights; their sum."""
    half, total = near.dtype.type(0.5), near.dtype.type(0)
    for j in range(len(near)):
        value = half * (near[j] + turned[j])
        mutual[j] = value
        weights[j] = value * edges[j]
        total += weights[j]
    return total


@fast_part
def _edge_gradient(i, c, Z, adjoint, scale, alpha, d_degree, mutual, edges, d_edges, d_mutual):
    """Row i of the gradient by the edges' weights, and by the symmetric affinities."""
    np_ = len(d_edges)
    for j in range(np_):
        d_edges[j] = 0
    for q in range(c):
        a = adjoint[q, i]
        for j in range(np_):
            d_edges[j] += a * Z[q, j]
    f = alpha * scale[i]
    for j in range(np_):
        d_weight = f * scale[j] * d_edges[j] + d_degree
        d_mutual[j] = d_weight * edges[j]
        d_edges[j] = d_weight * mutual[j]


@fast_part
def _scale_gradient(near, d_mutual, turned, distance, scales, per_spread, d_scales, d_far):
    """A row of the gradient by the scales, and by the distances in units of their spread; its part in d_spread."""
    half, total = near.dtype.type(0.5), near.dtype.type(0)
    for j in range(len(near)):
        d_exponent = -half * (d_mutual[j] + turned[j]) * near[j]
        far = distance[j] * per_spread
        d_scales[j] = d_exponent * far
        d_far[j] = d_exponent * scales[j]
        total += d_far[j] * far
    return total


@fast_part
def _pull(pull, distance, per_spread, mean, d_spread):
    """Turn dL/dfar in ``pull`` into the weight of each node in one centroid's gradient; their sum."""
    kind = pull.dtype.type
    total = kind(0)
    for j in range(len(pull)):
        slope = per_spread * (pull[j] + kind(2) * d_spread * (distance[j] - mean))
        value = slope / distance[j] if distance[j] > kind(0) else kind(0)
        pull[j] = value
        total += value
    return total


@compiled()
def adapt(c, k, alpha, same, slack, floats, rates, work):
    """All rounds of one task, from the nodes, scales and edges in ``work``, whose moments are zero.

    k neighbours; alpha: how far labels spread; same: squared distances up to this share of the lengths are zero;
    slack: affinities closer than this are equal; floats: tau, the objective and ``Adam.constants``; rates:
    ``Adam.rates``, one fewer than rounds. ``work`` receives Z, and the centroids among its nodes.
    """
    (nodes, across, cross, distance, scales, scales_mean, scales_square, edges, edges_mean, edges_square, near, mutual,
     system, turned, solution, Z, adjoint, L, P, H, pull, gradient, mean, square, kth, vectors, bits, kth_bits,
     codes) = work  # fmt: skip
    is_query, ones, length, degree, scale, d_degree, row, inverse, shift, sums = vectors
    n, np_ = distance.shape
    m, d, s = n - c, len(across), len(codes)
    nr, xp = solution.shape
    none = np.int64(0)  # typed: numba compiles a function anew for each literal
    kind = nodes.dtype.type
    zero, one, half = kind(0), kind(1), kind(0.5)
    V = nodes[m:]
    tau, support_scale, share = floats[TAU], floats[SUPPORT] / kind(s), one / kind(m - s)

    # constants of the run: distances of points that do not move, and their sums
    fixed_sum, fixed_squares = 0.0, 0.0
    for i in range(m):
        length[i] = dot(nodes[i], nodes[i])
    for i0 in range(0, m, ROWS):
        multiply(nodes[i0:], across, codes, none, d, cross, none, none)
        for i in range(i0, min(i0 + ROWS, m)):
            _from_products(cross[i - i0, :m], distance[i], length, length[i], same)
            distance[i, i] = zero
            for j in range(m):
                fixed_sum += distance[i, j]
                fixed_squares += distance[i, j] * distance[i, j]

    for step in range(len(rates) + 1):
        total, squares = fixed_sum, fixed_squares
        matmul(V, across, d, cross)
        for a in range(c):
            length[m + a] = dot(V[a], V[a])
        for a in range(c):
            part, part_squares = _from_products(cross[a, :m], distance[m + a], length, length[m + a], same)
            total += 2 * part
            squares += 2 * part_squares
            for b in range(a):
                row[b] = dot(V[a], V[b])
            part, part_squares = _from_products(row[:a], distance[m + a, m:], length[m:], length[m + a], same)
            total += 2 * part
            squares += 2 * part_squares
            for j in range(m + a):
                distance[j, m + a] = distance[m + a, j]
        pairs = float(n * n)
        average = total / pairs
        variance = (squares - total * average) / (pairs - 1)
        spread = math.sqrt(variance) if variance > 1e-30 else 1.0
        per_spread = kind(1 / spread)

        for i in range(m):
            for j in range(np_):
                near[i, j] = exp(-(distance[i, j] * per_spread) * scales[i, j])
            near[i, i] = -one
            for j in range(n, np_):
                near[i, j] = -one
            kth_bits[0, i] = kth_largest(bits, i * np_, np_, k, kth_bits[0, i])
            threshold = (one - slack) * kth[0, i]
            if _keep(near[i], threshold) > k:
                _drop_ties(near[i], threshold, slack, k)
        _turn(near, turned, n)
        for i in range(n):
            degree[i] = _weigh(near[i], turned[i], edges[i], mutual[i], system[i]) + kind(DEGREE_OFFSET)
            scale[i] = one / math.sqrt(degree[i])
        identity_minus(system, alpha, scale, n)
        for i in range(n, nr):
            for j in range(np_):
                system[i, j] = zero
            system[i, i] = one
        _turn(system, turned, nr)
        factor(system, turned, inverse)
        for i in range(nr):
            for q in range(xp):
                solution[i, q] = zero
        for q in range(c):
            solution[m + q, q] = one
        forward(turned, ones, solution, m // ROWS * ROWS)
        backward(system, inverse, solution, none, nr)
        for i in range(n):
            for q in range(c):
                Z[q, i] = solution[i, q]
        if step == len(rates):
            break

        for q in range(c):
            for j in range(np_):
                L[q, j] = tau * Z[q, j]
        probabilities(L, P, shift, sums, c)
        query_gradient(P, L, H, shift, is_query, c, share, floats)
        support_gradient(P, H, codes, c, support_scale)
        for j in range(np_):
            d_degree[j] = zero
        for q in range(c):
            for j in range(np_):
                H[q, j] *= tau
        for i in range(n):
            for q in range(c):
                solution[i, q] = H[q, i]
        forward(system, inverse, solution, none)
        backward(turned, ones, solution, none, nr)
        for i in range(n):
            for q in range(c):
                adjoint[q, i] = solution[i, q]
        for q in range(c):
            for j in range(np_):
                d_degree[j] += adjoint[q, j] * Z[q, j] + Z[q, j] * (adjoint[q, j] - H[q, j])
            d_degree[m + q] -= adjoint[q, m + q]

        for i in range(n):
            # the system is no longer needed: its memory takes the gradient by the symmetric affinities
            _edge_gradient(
                i, c, Z, adjoint, scale, alpha, -half * d_degree[i] / degree[i], mutual[i], edges[i], row, system[i]
            )  # fmt: skip
            adam(edges[i], edges_mean[i], edges_square[i], row, None, floats, rates[step, 0], rates[step, 1])
        _turn(system, turned, n)
        d_spread = zero
        for i in range(m):
            d_spread -= _scale_gradient(
                near[i], system[i], turned[i], distance[i], scales[i], per_spread, row, mutual[i]
            )
            for a in range(c):
                pull[a, i] = mutual[i, m + a]  # now dL/dfar
            adam(scales[i], scales_mean[i], scales_square[i], row, None, floats, rates[step, 0], rates[step, 1])
        d_spread *= per_spread * kind(1 / (pairs - 1))
        for a in range(c):
            for j in range(m, np_):
                pull[a, j] = zero
            length[m + a] = _pull(pull[a, :n], distance[m + a, :n], per_spread, kind(average), d_spread)
        matmul(pull, nodes, n, gradient)
        for a in range(c):
            for j in range(nodes.shape[1]):
                gradient[a, j] = length[m + a] * V[a, j] - gradient[a, j]
            adam(V[a], mean[a], square[a], gradient[a], None, floats, rates[step, 0], rates[step, 1])
