"""One large task: all points of a pool, a few of them labelled, on a sparse graph.

``session.Pool`` is the entry. ``neighbours``, ``graph`` and ``whiten`` prepare the points; ``propagate`` and ``adapt``
spread labels on the graph; ``methods`` and ``solve`` label a pool; ``confidence``, ``open_set`` and ``suggest`` judge
the result and choose the next points to label.
"""
