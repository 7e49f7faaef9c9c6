"""Methods with parts that are trained on base classes; they need torch."""
