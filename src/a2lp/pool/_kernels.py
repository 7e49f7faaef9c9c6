"""Compiled parts of the pool: lists of nearest neighbours, residual push and conjugate gradients on a sparse graph.

A list of neighbours is a row of similarities and one of indices, best first, of equal ones the lower index. Its
unused end holds ``TINY`` and ``NOBODY``. Since that order is total, a list does not depend on the order in which
candidates came.

No sum is reassociated here, and sums over points run per class: the result for a class depends neither on the other
classes nor on the number of cores.
"""

from __future__ import annotations

import numpy as np

from a2lp.kernels.compiler import compiled

NOBODY = np.int32(2**31 - 1)
TINY = np.float32(1e-37)  # a similarity must be larger to count
_exact = compiled(fastmath=False, _nrt=True)
_CHUNK = 64  # similarities that are checked together; most chunks hold none that is large enough


@_exact
def _insert(sims, indices, value, index):
    """Insert a candidate in order; the last of the list is dropped."""
    place = len(sims) - 1
    if value == sims[place] and index > indices[place]:
        return
    while place > 0 and (sims[place - 1] < value or (sims[place - 1] == value and indices[place - 1] > index)):
        sims[place] = sims[place - 1]
        indices[place] = indices[place - 1]
        place -= 1
    sims[place] = value
    indices[place] = index


@_exact
def merge_rows(block, first, sims, indices):
    """Update r lists with similarities (r, m) to m points, the first of which has index ``first``."""
    rows, columns = block.shape
    last = sims.shape[1] - 1
    for i in range(rows):
        for start in range(0, columns, _CHUNK):
            stop = min(start + _CHUNK, columns)
            worst = sims[i, last]
            found = False
            for j in range(start, stop):
                found |= block[i, j] >= worst
            if found:
                for j in range(start, stop):
                    if block[i, j] >= sims[i, last]:
                        _insert(sims[i], indices[i], block[i, j], np.int32(first + j))


@_exact
def merge_columns(block, first, sims, indices):
    """Update r lists with similarities (m, r) to m points, the first of which has index ``first``."""
    rows, columns = block.shape
    last = sims.shape[1] - 1
    worst = sims[:, last].copy()
    for start in range(0, columns, _CHUNK):
        stop = min(start + _CHUNK, columns)
        for i in range(rows):
            found = False
            for j in range(start, stop):
                found |= block[i, j] >= worst[j]
            if found:
                for j in range(start, stop):
                    if block[i, j] >= worst[j]:
                        _insert(sims[j], indices[j], block[i, j], np.int32(first + i))
                        worst[j] = sims[j, last]


@_exact
def choose(sims, indices, k, slack, chosen):
    """The k neighbours of each list, as ``chosen`` (n, length); and which lists end in a tie (n,).

    As in ``a2lp.graph.neighbours``: similarities within ``slack`` of the k-th are equal, and of these the lower
    indices are taken.
    """
    n, length = sims.shape
    cut = np.zeros(n, np.bool_)
    for i in range(n):
        if indices[i, k - 1] == NOBODY:  # fewer than k have a positive similarity: all of them
            for j in range(k):
                chosen[i, j] = indices[i, j] != NOBODY
            continue
        low = sims[i, k - 1] * (1 - slack)
        high = low * (1 + 2 * slack)
        room = k
        tied = 0
        for j in range(length):
            if sims[i, j] > high:
                chosen[i, j] = True
                room -= 1
            elif sims[i, j] >= low and indices[i, j] != NOBODY:
                tied += 1
        cut[i] = indices[i, length - 1] != NOBODY and sims[i, length - 1] >= low
        first = k - room
        for j in range(first, first + tied):
            lower = 0
            for other in range(first, first + tied):
                lower += indices[i, other] < indices[i, j]
            chosen[i, j] = lower < room
    return cut


@_exact
def push(indptr, indices, data, alpha, rows, weights, least, column, touched):
    """Solve (I - alpha S) z = e, where e has ``weights`` in ``rows``, until no residual is larger than ``least``.

    ``column`` (n,), zero before, gets z, and ``touched`` the points where it is not zero; their number is returned.
    Work is done only where residuals are: near the rows.
    """
    n = len(column)
    left = np.zeros(n)
    state = np.zeros(n, np.uint8)  # 1: in the queue, 2: touched
    queue = np.empty(n, np.int64)
    first, length, found = 0, 0, 0
    for place in range(len(rows)):
        i = rows[place]
        left[i] += weights[place]
        if state[i] & 1 == 0:
            state[i] |= 1
            queue[(first + length) % n] = i
            length += 1
    while length > 0:
        i = queue[first]
        first = (first + 1) % n
        length -= 1
        state[i] &= 2
        value = left[i]
        left[i] = 0
        column[i] += value
        if state[i] & 2 == 0:
            state[i] |= 2
            touched[found] = i
            found += 1
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            left[j] += alpha * data[e] * value
            if abs(left[j]) > least and state[j] & 1 == 0:
                state[j] |= 1
                queue[(first + length) % n] = j
                length += 1
    return found


@_exact
def residual(indptr, indices, data, alpha, z, y, r):
    """R = Y - (I - alpha S) Z, and the squared length of its columns; all (n, w), contiguous."""
    n, w = z.shape
    squares = np.zeros(w)
    total = np.empty(w)
    for i in range(n):
        total[:] = 0
        for e in range(indptr[i], indptr[i + 1]):
            weight = data[e]
            j = indices[e]
            for q in range(w):
                total[q] += weight * z[j, q]
        for q in range(w):
            value = y[i, q] - z[i, q] + alpha * total[q]
            r[i, q] = value
            squares[q] += value * value
    return squares


@_exact
def conjugate_gradients(indptr, indices, data, alpha, z, r, squares, enough, limit):
    """Solve (I - alpha S) Z = Y for all columns of a block, from Z with its residual R, until |R_q|^2 <= enough_q.

    ``z``, ``r`` and ``squares`` are changed. Returns the number of rounds, at most ``limit``.
    """
    n, w = z.shape
    p = r.copy()
    mp = np.empty((n, w))
    total = np.empty(w)
    curvature = np.empty(w)
    step = np.empty(w)
    before = np.empty(w)
    for rounds in range(limit):
        if np.all(squares <= enough):
            return rounds
        curvature[:] = 0
        for i in range(n):
            total[:] = 0
            for e in range(indptr[i], indptr[i + 1]):
                weight = data[e]
                j = indices[e]
                for q in range(w):
                    total[q] += weight * p[j, q]
            for q in range(w):
                value = p[i, q] - alpha * total[q]
                mp[i, q] = value
                curvature[q] += p[i, q] * value
        for q in range(w):
            # a column that is done does not change
            step[q] = squares[q] / curvature[q] if squares[q] > enough[q] and curvature[q] > 0 else 0.0
            before[q] = squares[q]
            if step[q] > 0:
                squares[q] = 0
        for i in range(n):
            for q in range(w):
                z[i, q] += step[q] * p[i, q]
                r[i, q] -= step[q] * mp[i, q]
                squares[q] += r[i, q] * r[i, q] if step[q] > 0 else 0.0
        for q in range(w):
            total[q] = squares[q] / before[q] if step[q] > 0 else 0.0
        for i in range(n):
            for q in range(w):
                p[i, q] = r[i, q] + total[q] * p[i, q]
    return limit
