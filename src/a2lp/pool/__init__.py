"""One large task: all points of a pool, a few of them labelled, on a sparse graph.

``graph`` makes the graph and ``neighbours`` finds who is near whom, ``whiten`` brings the points into a space where
near means more, ``propagate`` spreads labels, ``adapt`` moves the labelled points as A2LP does. ``solve`` labels a
pool by one of the ``methods``, ``confidence`` says how far to believe it, ``open_set`` which points may belong to no
class.
"""
