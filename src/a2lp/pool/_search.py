"""Compiled parts of the search by cells: neighbours of neighbours, which are offered to each point.

Lists are as in ``_kernels``. A call reads the links of all points and changes the lists of its own rows alone, so the
result does not depend on the number of cores.
"""

from __future__ import annotations

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
def candidates(first, last, indices, links, counts, cell, compared, stamp, found, starts):
    """Neighbours of neighbours of the points from ``first`` to ``last``, without those that were compared already.

    ``found`` gets them, ``starts`` where each point's begin; ``stamp`` (n,) tells which a point has met. Returns their
    number, or -1 where ``found`` is too short.
    """
    length = 0
    for i in range(first, last):
        starts[i - first] = length
        stamp[i] = i
        for place in range(indices.shape[1]):
            if indices[i, place] != NOBODY:
                stamp[indices[i, place]] = i
        for one in range(counts[i]):
            j = links[i, one]
            for other in range(counts[j]):
                c = links[j, other]
                if stamp[c] != i:
                    stamp[c] = i
                    if not compared[cell[i], cell[c]]:
                        if length == len(found):
                            return -1
                        found[length] = c
                        length += 1
    starts[last - first] = length
    return length


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
