"""One large task: all points of a pool, a few of them labelled, on a sparse graph.

``session.Pool`` is the entry. ``neighbours``, ``cells``, ``graph`` and ``whiten`` prepare the points, which ``growth``
adds and removes and ``stages`` keeps in files; ``propagate`` and ``adapt`` spread labels on the graph, in the order of
``ordering``; ``methods`` and ``solve`` label a pool, from what ``memory`` has of the answer before; ``confidence``,
``open_set`` and ``suggest`` judge the result and choose the next points to label. ``forecast`` tells what it will take.
"""
