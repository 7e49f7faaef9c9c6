"""Gradient steps as pure functions: (state, gradient) -> (state, step); the caller adds the step."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from a2lp.arrays import Array, NDArray, namespace


class Moments(NamedTuple):
    """Adam's running means of the gradient and of its square, and the number of steps."""

    mean: Array
    square: Array
    steps: int


class Adam(NamedTuple):
    """Adam (Kingma and Ba), with bias corrections and eps as in PyTorch."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def init(self, parameters: Array) -> Moments:
        """Zero moments."""
        zeros = namespace(parameters).zeros_like(parameters)
        return Moments(zeros, zeros, 0)

    def update(self, state: Moments | None, gradient: Array) -> tuple[Moments, Array]:
        """One step; eps is added after the square root, so it acts as a threshold on the gradient's size."""
        assert state is not None
        xp = namespace(gradient)
        b1, b2 = self.betas
        count = state.steps + 1
        mean = b1 * state.mean + (1 - b1) * gradient
        square = b2 * state.square + (1 - b2) * (gradient * gradient)
        denominator = xp.sqrt(square) / math.sqrt(1 - b2**count) + self.eps
        # with eps = 0 a zero gradient gives no step, not 0/0
        denominator = xp.where(denominator > 0, denominator, xp.ones_like(denominator))
        return Moments(mean, square, count), (-self.lr / (1 - b1**count)) * (mean / denominator)

    @property
    def constants(self) -> list[float]:
        """The last parameters of compiled loops: b1, 1 - b1, b2, 1 - b2, eps."""
        b1, b2 = self.betas
        return [b1, 1 - b1, b2, 1 - b2, self.eps]

    def rates(self, steps: int) -> NDArray:
        """For compiled loops (steps, 2): each step's rate, and the factor of the root in the denominator."""
        b1, b2 = self.betas
        counts = np.arange(1, steps + 1)
        return np.stack([self.lr / (1 - b1**counts), 1 / np.sqrt(1 - b2**counts)], axis=1)


class GradientDescent(NamedTuple):
    """Plain gradient descent."""

    lr: float

    def init(self, parameters: Array) -> None:
        """No state."""

    def update(self, state: Moments | None, gradient: Array) -> tuple[None, Array]:
        """One step against the gradient."""
        return None, -self.lr * gradient


Optimizer = Adam | GradientDescent
NAMES = ("adam", "gd")
