"""The labelling page: a local server, its append-only log, and the process that keeps all labels up to date.

``log`` and ``state`` hold what the user has said; ``solver`` computes predictions in a process of its own; ``board``
joins the two into what the page shows; ``app`` and ``gate`` put it on a local address; ``run`` starts everything.
"""
