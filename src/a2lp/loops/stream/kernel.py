"""Label propagation on a graph that grows by one point at a time; see ``methods.ecalp``.

Sizes: n points, k neighbours, a fixed nodes (names and shots), c classes.
"""

from __future__ import annotations

import numpy as np

from a2lp.kernels.compiler import compiled, fast_part

_CARRIED = 0.2  # share of a point's largest score that it starts the next step with


@fast_part
def _add(near, sims, place, sim, count):
    """Insert a neighbour into a list that is sorted from the nearest on; the number of entries then."""
    k = len(near)
    if count == k and not sim > sims[k - 1]:
        return count
    count = min(count + 1, k)
    j = count - 1
    while j > 0 and sim > sims[j - 1]:
        sims[j] = sims[j - 1]
        near[j] = near[j - 1]
        j -= 1
    sims[j] = sim
    near[j] = place
    return count


@compiled()
def propagate_stream(similarity, fixed, fixed_weights, labels, gamma, rounds, arrival, final, work):
    """Let the points of one task arrive in order; fill their scores (n, c) at arrival, and those on the last graph."""
    near, sims, counts, list_near, list_sims, start, scores, new, degrees = work
    n, k = near.shape
    f, c = fixed.shape[1], labels.shape[1]
    a = len(labels)
    for last in range(n):
        # the newest point is there twice, as in the authors' code: its copy, m - 1, gets the label
        m = last + 2
        for i in range(last):
            counts[i] = _add(near[i], sims[i], last, similarity[i, last], counts[i])
        counts[last] = 0
        for j in range(last + 1):
            counts[last] = _add(near[last], sims[last], j, similarity[j, last], counts[last])
        for node in range(a + m):
            degrees[node] = 0
        for i in range(m):
            source = min(i, last)
            size = 0
            for j in range(counts[source]):
                size = _add(list_near[i], list_sims[i], near[source, j], sims[source, j], size)
            size = _add(list_near[i], list_sims[i], m - 1, similarity[source, last], size)
            for j in range(size, k):
                list_near[i, j] = -1
            for j in range(size):
                list_sims[i, j] = max(list_sims[i, j], list_sims.dtype.type(0)) ** gamma
                degrees[a + i] += list_sims[i, j]
                degrees[a + list_near[i, j]] += list_sims[i, j]
            for j in range(f):
                degrees[a + i] += fixed_weights[source, j]
                degrees[fixed[source, j]] += fixed_weights[source, j]
        for node in range(a + m):
            degrees[node] = 1 / (np.sqrt(degrees[node]) + 1e-6)
        for i in range(m):
            for q in range(c):
                scores[i, q] = start[i, q] if i < last else 0
        for _ in range(rounds):
            for i in range(m):
                for q in range(c):
                    new[i, q] = 0
            for i in range(m):
                source = min(i, last)
                for j in range(f):
                    node = fixed[source, j]
                    weight = fixed_weights[source, j] * degrees[node] * degrees[a + i]
                    for q in range(c):
                        new[i, q] += weight * labels[node, q]
                for j in range(k):
                    other = list_near[i, j]
                    if other >= 0:
                        weight = list_sims[i, j] * degrees[a + i] * degrees[a + other]
                        for q in range(c):
                            new[i, q] += weight * scores[other, q]
                            new[other, q] += weight * scores[i, q]
            for i in range(m):
                for q in range(c):
                    scores[i, q] = new[i, q]
        for i in range(last + 1):
            best = np.argmax(scores[i])
            for q in range(c):
                start[i, q] = 0
            start[i, best] = _CARRIED * scores[i, best]
        for q in range(c):
            arrival[last, q] = scores[m - 1, q]
    for i in range(n):
        for q in range(c):
            final[i, q] = scores[i, q]
