"""Methods: each a frozen dataclass of parameters with ``predict(batch)``; ``registry`` has them by name."""
