"""Compiled parts of the search by cells, and of graphs that are made of lists.

Lists are as in ``_kernels``. Neighbours of neighbours are offered to each point: a call reads the links of all points
and changes the lists of its own rows alone, so the result does not depend on the number of cores.
"""

from __future__ import annotations

import numpy as np

from a2lp.kernels.compiler import FAST, compiled
from a2lp.pool._kernels import NOBODY, _insert

_exact = compiled(fastmath=False, _nrt=True)


@_exact
def add_reverse(indices, k, links, counts):
    """Links (n, width) of each point: its k neighbours, then, while there is room, points whose neighbour it is."""
    n, width = links.shape
    for i in range(n):
        count = 0
        for place in range(k):
            if indices[i, place] != NOBODY:
                links[i, count] = indices[i, place]
                count += 1
        counts[i] = count
    for place in range(k):  # the nearest first
        for i in range(n):
            j = indices[i, place]
            if j == NOBODY or counts[j] == width:
                continue
            known = False
            for other in range(counts[j]):
                known |= links[j, other] == i
            if not known:
                links[j, counts[j]] = i
                counts[j] += 1


@_exact
def mark_new(links, counts, before, counts_before, new):
    """Which links (n, width) were not there before; a point has few of them, so each is compared with all."""
    for i in range(len(links)):
        for one in range(counts[i]):
            known = False
            for other in range(counts_before[i]):
                known |= before[i, other] == links[i, one]
            new[i, one] = not known


@_exact
def candidates(first, last, indices, links, counts, new, cell, compared, met, slot, starts, places, names):
    """Neighbours of neighbours of the points from ``first`` to ``last`` by paths with a new link.

    Those that were compared already, with their cells, are left out. ``starts`` says where the candidates of a point
    begin in ``places``, which are places in ``names``: every candidate has one name. ``met`` (2, n) tells which points
    a point and a call have met, ``slot`` (n,) the place of a name. Returns the numbers of places and names; the former
    is -1 if there is no room for more.
    """
    length, count = 0, 0
    for i in range(first, last):
        starts[i - first] = length
        met[0, i] = i
        for place in range(indices.shape[1]):
            if indices[i, place] != NOBODY:
                met[0, indices[i, place]] = i
        for one in range(counts[i]):
            j = links[i, one]
            for other in range(counts[j]):
                c = links[j, other]
                if met[0, c] == i or not (new[i, one] or new[j, other]):
                    continue
                met[0, c] = i
                if compared[cell[i], cell[c]]:
                    continue
                if length == len(places) or count == len(names):
                    return -1, 0
                if met[1, c] != first:
                    met[1, c] = first
                    slot[c] = count
                    names[count] = c
                    count += 1
                places[length] = slot[c]
                length += 1
    starts[last - first] = length
    return length, count


@_exact
def offer(first, mine, others, names, places, starts, sims, indices):
    """Enter candidates in the lists of some points.

    ``mine`` (m, d) are the vectors of the points from ``first`` on; ``others`` (u, d) those of the candidates, with
    their ``names``; ``places`` says which of them are offered to each point, from ``starts`` on.
    """
    last = sims.shape[1] - 1
    for i in range(len(mine)):
        for e in range(starts[i], starts[i + 1]):
            value = _dot(mine[i], others[places[e]])
            if value >= sims[first + i, last]:
                _insert(sims[first + i], indices[first + i], value, names[places[e]])


@compiled(fastmath=FAST, _nrt=True)
def _dot(a, b):
    total = a[0] * b[0]
    for q in range(1, len(a)):
        total += a[q] * b[q]
    return total


@_exact
def _place_in(indices, chosen, row, point):
    """The place of a point among the chosen ones of a list, or -1."""
    for place in range(indices.shape[1]):
        if indices[row, place] == point and chosen[row, place]:
            return place
    return -1


@_exact
def symmetric_lengths(indices, chosen, lengths):
    """How many entries each row of (A + A') / 2 has, where A has those of the lists that were chosen."""
    for i in range(len(indices)):
        for place in range(indices.shape[1]):
            if chosen[i, place]:
                j = indices[i, place]
                lengths[i] += 1
                if _place_in(indices, chosen, j, i) < 0:
                    lengths[j] += 1


@_exact
def symmetric(sims, indices, chosen, gamma, ends, columns, data):
    """Rows of (A + A') / 2 without order, where A has the powers of chosen similarities.

    ``ends`` says where each row begins, and is moved to where it ends.
    """
    for i in range(len(indices)):
        for place in range(indices.shape[1]):
            if not chosen[i, place]:
                continue
            j = indices[i, place]
            weight = _power(sims[i, place], gamma) / 2
            back = _place_in(indices, chosen, j, i)
            if back < 0:
                columns[ends[j]] = i
                data[ends[j]] = weight
                ends[j] += 1
            else:
                weight += _power(sims[j, back], gamma) / 2
            columns[ends[i]] = j
            data[ends[i]] = weight
            ends[i] += 1


@_exact
def _power(value, gamma):
    if gamma == 3:
        return value * value * value
    return value**gamma


@_exact
def sort_rows(starts, first, last, columns, data):
    """Put the columns of some rows in order."""
    for i in range(first, last):
        order = np.argsort(columns[starts[i] : starts[i + 1]])
        columns[starts[i] : starts[i + 1]] = columns[starts[i] : starts[i + 1]][order]
        data[starts[i] : starts[i + 1]] = data[starts[i] : starts[i + 1]][order]
