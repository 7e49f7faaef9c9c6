"""Inner loops of methods other than LP and A2LP, one package each.

A package's top level is its contract: the settings, and ``LOOP``, the ways to run it. ``engines.select`` chooses among
them. Kernels are private to their package.
"""
