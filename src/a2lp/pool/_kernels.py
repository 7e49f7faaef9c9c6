"""Compiled parts of the pool: lists of nearest neighbours, residual push, and the map.

A list of neighbours is a row of similarities and one of indices, best first, of equal ones the lower index. Its
unused end holds ``TINY`` and ``NOBODY``. Since that order is total, a list does not depend on the order in which
candidates came.

No sum is reassociated here.
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
def widen(half, bits):
    """Bits of float32 numbers that are 2^-112 times finite float16 numbers, given as uint16, both (m, d)."""
    for i in range(half.shape[0]):
        for q in range(half.shape[1]):
            value = np.uint32(half[i, q])
            bits[i, q] = ((value & np.uint32(0x7FFF)) << np.uint32(13)) | ((value & np.uint32(0x8000)) << np.uint32(16))


@_exact
def merge_rows(block, first, sims, indices):
    """Update r lists with similarities (r, m) to m points, the first of which has index ``first``."""
    merge_rows_between(block, 0, block.shape[1], first, sims, indices)


@_exact
def merge_columns(block, first, sims, indices):
    """Update r lists with similarities (m, r) to m points, the first of which has index ``first``."""
    merge_columns_between(block, 0, block.shape[1], first, sims, indices)


@_exact
def merge_rows_between(block, low, high, first, sims, indices):
    """``merge_rows`` with some columns of a block."""
    last = sims.shape[1] - 1
    for i in range(block.shape[0]):
        for start in range(low, high, _CHUNK):
            stop = min(start + _CHUNK, high)
            worst = sims[i, last]
            found = False
            for j in range(start, stop):
                found |= block[i, j] >= worst
            if found:
                for j in range(start, stop):
                    if block[i, j] >= sims[i, last]:
                        _insert(sims[i], indices[i], block[i, j], np.int32(first + j - low))


@_exact
def merge_columns_between(block, low, high, first, sims, indices):
    """``merge_columns`` with some columns of a block."""
    last = sims.shape[1] - 1
    worst = sims[:, last].copy()
    for start in range(low, high, _CHUNK):
        stop = min(start + _CHUNK, high)
        for i in range(block.shape[0]):
            found = False
            for j in range(start, stop):
                found |= block[i, j] >= worst[j - low]
            if found:
                for j in range(start, stop):
                    if block[i, j] >= worst[j - low]:
                        _insert(sims[j - low], indices[j - low], block[i, j], np.int32(first + i))
                        worst[j - low] = sims[j - low, last]


@_exact
def merge_lists(more_sims, more_indices, sims, indices):
    """Enter the candidates of some lists in others of the same points, which hold none of them."""
    last = sims.shape[1] - 1
    for i in range(len(sims)):
        for j in range(more_sims.shape[1]):
            if more_indices[i, j] == NOBODY or more_sims[i, j] < sims[i, last]:
                break
            _insert(sims[i], indices[i], more_sims[i, j], more_indices[i, j])


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
def kin(indptr, indices, data, edge, scale, row, values, touched):
    """A row of K = I + edge S + edge² S², scaled: in ``values`` (n,), zero before, at the places ``touched``.

    Returns their number.
    """
    values[row] = 1
    touched[0] = row
    count = 1
    for e in range(indptr[row], indptr[row + 1]):
        j = indices[e]
        if values[j] == 0:
            touched[count] = j
            count += 1
        values[j] += edge * data[e]
        for f in range(indptr[j], indptr[j + 1]):
            k = indices[f]
            if values[k] == 0:
                touched[count] = k
                count += 1
            values[k] += edge * edge * data[e] * data[f]
    for place in range(count):
        values[touched[place]] *= scale[row] * scale[touched[place]]
    return count


@_exact
def kin_gains(indptr, indices, data, edge, scale, need, covered, rows, values, touched, gains):
    """For some rows i of K the sums over j of need_j [K_ij - covered_j]_+; ``values`` is zero before and after."""
    for number in range(len(rows)):
        count = kin(indptr, indices, data, edge, scale, rows[number], values, touched)
        total = 0.0
        for place in range(count):
            j = touched[place]
            if values[j] > covered[j]:
                total += need[j] * (values[j] - covered[j])
            values[j] = 0
        gains[number] = total


@_exact
def common_neighbours(indptr, indices, data, loop, shared):
    """For each edge, the entry of (loop I + S)² there, divided by the roots of those on the diagonal; S has no loops.

    The columns of each row must be in order. ``shared`` has a place for each edge.
    """
    n = len(indptr) - 1
    length = np.empty(n)
    for i in range(n):
        length[i] = loop * loop
        for e in range(indptr[i], indptr[i + 1]):
            length[i] += data[e] * data[e]
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            total = 2 * loop * data[e]
            mine = indptr[i]
            its = indptr[j]
            while mine < indptr[i + 1] and its < indptr[j + 1]:
                if indices[mine] == indices[its]:
                    total += data[mine] * data[its]
                    mine += 1
                    its += 1
                elif indices[mine] < indices[its]:
                    mine += 1
                else:
                    its += 1
            shared[e] = total / np.sqrt(length[i] * length[j])


@_exact
def move_points(indptr, indices, every, due, places, step, done, n_random, state):
    """One round of a layout: edges that are due attract their ends, and push the first of them from random points.

    ``every`` and ``due`` say after how many rounds each edge is due again, and in which one it is next; ``step`` scales
    the moves, and ``state`` is that of the random numbers, a uint64. ``due`` and ``places`` (n, 2) are changed. Returns
    the state for the next round.
    """
    n = len(places)
    most = 4.0  # the longest move before it is scaled
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            if due[e] > done:
                continue
            due[e] += every[e]
            j = indices[e]
            dx = places[i, 0] - places[j, 0]
            dy = places[i, 1] - places[j, 1]
            pull = 2 / (1 + dx * dx + dy * dy)
            dx = step * min(max(pull * dx, -most), most)
            dy = step * min(max(pull * dy, -most), most)
            places[i, 0] -= dx
            places[i, 1] -= dy
            places[j, 0] += dx
            places[j, 1] += dy
            for _ in range(n_random):
                state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)  # Knuth's MMIX
                k = np.int64(((state >> np.uint64(33)) * np.uint64(n)) >> np.uint64(31))
                if k == i:
                    continue
                dx = places[i, 0] - places[k, 0]
                dy = places[i, 1] - places[k, 1]
                square = dx * dx + dy * dy
                push = 2 / ((0.001 + square) * (1 + square))
                places[i, 0] += step * min(max(push * dx, -most), most)
                places[i, 1] += step * min(max(push * dy, -most), most)
    return state
