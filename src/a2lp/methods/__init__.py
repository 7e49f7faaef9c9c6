"""Methods: each a frozen set of parameters with ``predict(batch)``. ``create`` makes one by name."""
