"""What an engine takes and gives. All engines solve the same problem; ``reference`` says what is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from a2lp import optimizers
from a2lp.arrays import Array
from a2lp.losses import CROSS_ENTROPY, LossValue, Terms, evaluate


class Problem(NamedTuple):
    """Preprocessed tasks: unit vectors, the support first.

    Attributes
    ----------
    support : array (b, s, d)
        The anchors, where they start.
    rest : array (b, m, d)
        Queries and unlabelled vectors; they never move.
    codes : array (b, s)
        Each anchor's class, 0 to n_classes - 1.
    n_classes : int
    """

    support: Array
    rest: Array
    codes: Array
    n_classes: int


@dataclass(frozen=True)
class Settings:
    """The constants of a run, checked by the method that makes them; ``steps=0`` is plain label propagation."""

    n_neighbors: int
    gamma: float
    alpha: float
    tau: float = 15.0
    steps: int = 0
    lr: float = 1e-4
    numerics: str = "exact"
    optimizer: str = "adam"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    reduction: str = "mean"
    renormalize: bool = False
    final_forward: bool = False
    loss_tol: float | None = None
    grad_tol: float | None = None
    terms: Terms = CROSS_ENTROPY

    @property
    def updates(self) -> int:
        """How often the anchors move: the authors' last update comes after the last Z, so it decides nothing."""
        return self.steps if self.final_forward else max(self.steps - 1, 0)

    def scale(self, n_support: int) -> float:
        """What the sum over anchors is multiplied with: the paper sums, the authors' code takes the mean."""
        return 1.0 / n_support if self.reduction == "mean" else 1.0

    def make_optimizer(self) -> optimizers.Optimizer:
        """The optimiser that these settings name."""
        return optimizers.make(self.optimizer, self.lr, self.betas, self.eps)

    def loss(self, anchors: Array, rest: Array, labels: Array) -> LossValue:
        """The loss that these settings name, at Z."""
        scale = self.scale(int(anchors.shape[-2]))
        return evaluate(self.terms, self.numerics, anchors, rest, labels, tau=self.tau, scale=scale)


class Result(NamedTuple):
    """What an engine found.

    Attributes
    ----------
    z : array (b, s + m, c)
        Manifold similarities (eq. 5) of all points.
    anchors : array (b, s, d)
        The anchors that ``z`` was computed from.
    losses : array (b, steps)
        The loss before each step; a task that has stopped repeats its last value.
    steps : array (b,)
        Steps that each task took.
    converged : array (b,)
        Whether a tolerance stopped it.
    """

    z: Array
    anchors: Array
    losses: Array
    steps: Array
    converged: Array


class Step(NamedTuple):
    """What a callback is shown before each step: which tasks of the batch, and how they stand."""

    number: int
    tasks: slice
    anchors: Array
    losses: Array
    z: Array


Callback = Callable[[Step], object]


class Engine(Protocol):
    """A way to run the loop."""

    @property
    def name(self) -> str:
        """What the user asks for it by."""
        ...

    def run(self, problem: Problem, settings: Settings, callback: Callback | None = None) -> Result:
        """Solve a batch of tasks."""
        ...
