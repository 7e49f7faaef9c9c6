"""Compiled parts of propagation: products with a sparse graph, the steps of conjugate gradients, and the order of rows.

Rows are divided into blocks of ``ROWS``, whatever the number of cores; a call works on some of the blocks. Sums over
points are taken within a block, and a caller adds those of the blocks in their order. No sum is reassociated, and none
runs over classes: the result for a class depends neither on the other classes nor on the number of cores.
"""

from __future__ import annotations

import numpy as np

from a2lp.kernels.compiler import compiled

ROWS = 1024  # of a block: few enough that sums in float32 keep five digits
_exact = compiled(fastmath=False, _nrt=True)


@_exact
def multiply(indptr, indices, data, alpha, p, mp, sums, first, last):
    """M P = (I - alpha S) P (n, w) in the rows of some blocks, and the sums (blocks, w) of P M P."""
    n, w = p.shape
    total = np.empty(w, p.dtype)
    for block in range(first, last):
        part = sums[block]
        part[:] = 0
        for i in range(block * ROWS, min(n, (block + 1) * ROWS)):
            total[:] = 0
            e = indptr[i]
            stop = indptr[i + 1]
            while e + 4 <= stop:  # four rows at a time, so that the processor fetches them together
                a, b, c, d = indices[e], indices[e + 1], indices[e + 2], indices[e + 3]
                wa, wb, wc, wd = data[e], data[e + 1], data[e + 2], data[e + 3]
                for q in range(w):
                    total[q] += wa * p[a, q] + wb * p[b, q] + wc * p[c, q] + wd * p[d, q]
                e += 4
            while e < stop:
                a, wa = indices[e], data[e]
                for q in range(w):
                    total[q] += wa * p[a, q]
                e += 1
            for q in range(w):
                value = p[i, q] - alpha * total[q]
                mp[i, q] = value
                part[q] += p[i, q] * value


@_exact
def advance(z, r, p, mp, step, sums, peaks, first, last):
    """Z + step P and R - step M P in the rows of some blocks; of the latter the sums of squares and the largest values.

    Both of them are (blocks, w).
    """
    n, w = z.shape
    for block in range(first, last):
        part = sums[block]
        part[:] = 0
        peak = peaks[block]
        peak[:] = 0
        for i in range(block * ROWS, min(n, (block + 1) * ROWS)):
            for q in range(w):
                z[i, q] += step[q] * p[i, q]
                value = r[i, q] - step[q] * mp[i, q]
                r[i, q] = value
                part[q] += value * value
                peak[q] = max(peak[q], abs(value))


@_exact
def squares(r, sums, first, last):
    """The sums (blocks, w) of the squares of R in the rows of some blocks."""
    n, w = r.shape
    for block in range(first, last):
        part = sums[block]
        part[:] = 0
        for i in range(block * ROWS, min(n, (block + 1) * ROWS)):
            for q in range(w):
                part[q] += r[i, q] * r[i, q]


@_exact
def turn(r, p, share, first, last):
    """The next direction P = R + share P in the rows of some blocks."""
    n, w = r.shape
    for i in range(first * ROWS, min(n, last * ROWS)):
        for q in range(w):
            p[i, q] = r[i, q] + share[q] * p[i, q]


@_exact
def row_sums(indptr, data, power, sums):
    """The sum of the entries of each row, or of their squares, in float64."""
    for i in range(len(sums)):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[e]) ** power
        sums[i] = total


@_exact
def multiply_vector(indptr, indices, data, vector, product):
    """The product with a vector (n,), in float64."""
    for i in range(len(product)):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += data[e] * vector[indices[e]]
        product[i] = total


@_exact
def scaled(indptr, indices, weights, scale, data):
    """The entries of S = D^-1/2 W D^-1/2; ``scale`` is D^-1/2."""
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            data[e] = weights[e] * scale[i] * scale[indices[e]]


@_exact
def arrange(indptr, indices, weights, scale, order, place, starts, columns, data):
    """S = D^-1/2 W D^-1/2 with rows and columns in another order; ``scale`` is D^-1/2, ``place`` undoes ``order``."""
    e = 0
    for row in range(len(order)):
        i = order[row]
        starts[row] = e
        for old in range(indptr[i], indptr[i + 1]):
            j = indices[old]
            columns[e] = place[j]
            data[e] = weights[old] * scale[i] * scale[j]
            e += 1
    starts[len(order)] = e


@_exact
def _fill(indptr, indices, queue, length, part):
    """Give every point that a path connects with the first ``length`` of the queue the part of the nearest of them."""
    first = 0
    while first < length:
        i = queue[first]
        first += 1
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if part[j] == -1:
                part[j] = part[i]
                queue[length] = j
                length += 1


@_exact
def nearest_seed(indptr, indices, seeds, cell):
    """For each point the number of the seed that is fewest edges away; -1 if no path leads to one."""
    n = len(indptr) - 1
    cell[:] = -1
    queue = np.empty(n, np.int64)
    length = 0
    for number in range(len(seeds)):
        cell[seeds[number]] = number
        queue[length] = seeds[number]
        length += 1
    _fill(indptr, indices, queue, length, cell)


@_exact
def components(indptr, indices, part):
    """The component of each point (n,), numbered in the order of their first points; returns how many there are."""
    n = len(part)
    part[:] = -1
    queue = np.empty(n, np.int32)
    count = 0
    for seed in range(n):
        if part[seed] >= 0:
            continue
        part[seed] = count
        queue[0] = seed
        _fill(indptr, indices, queue, 1, part)
        count += 1
    return count


@_exact
def heaviest(indptr, indices, weights, group, n_groups):
    """For each point the group that its edges lead to with the largest sum of weights; its own without edges."""
    found = group.copy()
    total = np.zeros(n_groups)
    for i in range(len(group)):
        best = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total[group[indices[e]]] += weights[e]
        for e in range(indptr[i], indptr[i + 1]):
            g = group[indices[e]]
            if total[g] > best:
                best = total[g]
                found[i] = g
        for e in range(indptr[i], indptr[i + 1]):
            total[group[indices[e]]] = 0
    return found
