"""Engines: the inner loop of label propagation and A2LP, in several makes under one contract."""
