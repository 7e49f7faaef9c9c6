"""Engines of LP and A2LP, and the contract and the selection that all inner loops share."""
