"""Tasks: batches of vectors, samplers that draw them, and lists that keep them."""
