"""Inputs and results of inner loops, and what an engine is; ``reference`` defines the results for LP and A2LP."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from a2lp import optimizers
from a2lp.arrays import Array, device, is_numpy, namespace, one_hot
from a2lp.checks import check_fields, checked, choice, flag, number, require_betas, whole
from a2lp.losses import CROSS_ENTROPY, NUMERICS, LossValue, Terms, evaluate, make_terms

NO_SOLUTION = "At 1 the propagation has no unique solution;"


class Points(NamedTuple):
    """A block of preprocessed tasks.

    Attributes
    ----------
    vectors : array (b, s + q + u, d)
        Support first, then queries, then unlabelled vectors.
    codes : array (b, s)
        Each support vector's class, 0 to n_classes - 1.
    n_classes, n_query : int
    prototypes : array (b, c, d) or None
        Preprocessed vectors of the classes' names, for methods that use them.

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.engines.contract import Points
    >>> Points(np.eye(4)[None], np.array([[0, 1]]), 2, 2).vectors.shape
    (1, 4, 4)
    """

    vectors: Array
    codes: Array
    n_classes: int
    n_query: int
    prototypes: Array | None = None

    @property
    def support(self) -> Array:
        """Labelled vectors (b, s, d)."""
        return self.vectors[:, : self.codes.shape[1], :]

    @property
    def rest(self) -> Array:
        """Vectors without a label (b, q + u, d), queries first."""
        return self.vectors[:, self.codes.shape[1] :, :]

    @property
    def query(self) -> Array:
        """Queries (b, q, d)."""
        return self.rest[:, : self.n_query, :]

    @property
    def labels(self) -> Array:
        """One-hot labels of the support (b, s, c)."""
        return one_hot(self.codes, self.n_classes, self.vectors.dtype)

    @property
    def all_labels(self) -> Array:
        """One-hot labels of all points (b, s + q + u, c), zero for those without a label; Y of eq. 4."""
        return one_hot(self._all_codes, self.n_classes, self.vectors.dtype)

    @property
    def memberships(self) -> Array:
        """The same with the classes as rows (b, c, s + q + u)."""
        return one_hot(self._all_codes, self.n_classes, self.vectors.dtype, axis=1)

    @property
    def _all_codes(self) -> Array:
        xp, (b, m, _) = namespace(self.codes), self.rest.shape
        none = xp.full((b, m), -1, dtype=self.codes.dtype, device=device(self.codes))
        return xp.concat([self.codes, none], axis=1)

    @property
    def class_sums(self) -> tuple[Array, Array]:
        """The sum (b, c, d) and the number (b, c, 1) of the support vectors of each class."""
        xp, labels = namespace(self.vectors), self.labels
        return xp.matrix_transpose(labels) @ self.support, xp.sum(labels, axis=1)[:, :, None]

    @property
    def class_means(self) -> Array:
        """Mean support vector of each class (b, c, d)."""
        sums, counts = self.class_sums
        return sums / counts

    def codes_at(self, rows: Array) -> Array:
        """Classes of the support vectors in these rows (b, q)."""
        chosen = one_hot(rows, self.codes.shape[1], self.codes.dtype)  # (b, q, s)
        return namespace(chosen).sum(chosen * self.codes[:, None, :], axis=-1)

    def part(self, tasks: slice) -> Points:
        """Some of the tasks."""
        names = None if self.prototypes is None else self.prototypes[tasks, ...]
        return self._replace(vectors=self.vectors[tasks, ...], codes=self.codes[tasks, ...], prototypes=names)


@dataclass(frozen=True, kw_only=True)
class GraphSettings:
    """The graph of eq. 1-3 and the propagation on it; ``methods.propagation.LP`` documents them."""

    n_neighbors: int = whole(20, 1, "The paper uses 20.")
    gamma: float = number(3, "positive", "The paper uses 3.")
    alpha: float = number(0.8, "at least 0 and below 1", f"{NO_SOLUTION} the paper uses 0.8.")


@dataclass(frozen=True, kw_only=True)
class AdamSettings:
    """Adam's learning rate, decay rates and eps."""

    lr: float = number(1e-4, "positive", "The paper uses 1e-4.")
    betas: tuple[float, float] = checked((0.9, 0.999), require_betas)
    eps: float = number(1e-8, "0 or more", "Adam's default is 1e-8.")

    @property
    def adam(self) -> optimizers.Adam:
        """The optimiser with these parameters."""
        return optimizers.Adam(self.lr, self.betas, self.eps)


@dataclass(frozen=True, kw_only=True)
class Settings(GraphSettings, AdamSettings):
    """The constants of a run of LP (``steps=0``) or A2LP; ``methods.propagation.A2LP`` documents them.

    Examples
    --------
    >>> from a2lp.engines.contract import Settings
    >>> Settings(steps=0).alpha
    0.8
    """

    steps: int = whole(1000, 0, "0 is plain label propagation.")
    loss: Terms | Any = CROSS_ENTROPY
    numerics: str = choice("exact", NUMERICS)
    optimizer: str = choice("adam", optimizers.NAMES)
    reduction: str = choice("mean", ("mean", "sum"))
    renormalize: bool = flag(False, "The code does not.")
    final_forward: bool = flag(False, "The code does not.")
    loss_tol: float | None = number(None, "0 or more", "None never stops early.")
    grad_tol: float | None = number(None, "0 or more", "None never stops early.")
    tau: float = number(15.0, "positive", "The paper uses 15.")

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "loss", make_terms(self.loss))

    @property
    def updates(self) -> int:
        """How often the anchors move: the authors' last update comes after the last Z, so it has no effect."""
        return self.steps if self.final_forward else max(self.steps - 1, 0)

    @property
    def tolerances(self) -> tuple[float, float]:
        """``loss_tol`` and ``grad_tol``; minus infinity for None, which no value reaches."""
        loss_tol, grad_tol = (-math.inf if tol is None else tol for tol in (self.loss_tol, self.grad_tol))
        return loss_tol, grad_tol

    def scale(self, n_support: int) -> float:
        """The factor of the sum over anchors: the paper has the sum, the authors' code the mean."""
        return 1.0 / n_support if self.reduction == "mean" else 1.0

    def make_optimizer(self) -> optimizers.Optimizer:
        """The optimiser with these settings."""
        return self.adam if self.optimizer == "adam" else optimizers.GradientDescent(self.lr)

    def loss_at(self, anchors: Array, rest: Array, labels: Array) -> LossValue:
        """The loss at Z."""
        scale = self.scale(int(anchors.shape[-2]))
        return evaluate(self.loss, self.numerics, anchors, rest, labels, tau=self.tau, scale=scale)


class Result(NamedTuple):
    """The result of an engine of LP and A2LP.

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

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.engines import select
    >>> from a2lp.engines.contract import Points, Settings
    >>> points = Points(np.eye(3)[None] + 0.1, np.array([[0, 1]]), 2, 1)
    >>> ran = select.run(select.PROPAGATION, "reference", points, Settings(steps=0, n_neighbors=2))
    >>> ran.result.z.shape, ran.engine
    ((1, 3, 2), 'reference')
    """

    z: Array
    anchors: Array
    losses: Array
    steps: Array
    converged: Array


class Step(NamedTuple):
    """The argument of a callback, before each step.

    Attributes
    ----------
    number : int
        Steps taken so far.
    tasks : slice
        Which tasks of the batch.
    anchors : array
        The adapted support vectors (b, s, d) or class weights (b, c, d).
    losses : array (b,) or None
        The loss, for loops that evaluate it.
    z : array (b, n, c)
        Scores of all points of the task, or of the support only where the loss is of the support.

    Examples
    --------
    >>> import a2lp
    >>> batch = a2lp.TaskBatch([[[1.0, 0.1], [0.1, 1.0]]], [[7, 3]], [[[0.9, 0.3], [0.2, 0.8]]])
    >>> numbers = []
    >>> answer = a2lp.create("a2lp", steps=3, n_neighbors=2).predict(batch, lambda step: numbers.append(step.number))
    >>> numbers
    [0, 1, 2]
    """

    number: int
    tasks: slice
    anchors: Array
    losses: Array | None
    z: Array


Callback = Callable[[Step], object]


class Engine(NamedTuple):
    """A way to run a loop.

    Attributes
    ----------
    name : str
        The value of the parameter ``engine``.
    run : callable
        ``run(points, settings)``, or ``run(points, settings, callback)`` where ``shows_steps``.
    reason : str
        Why ``"auto"`` takes it where it can run.
    refusal : callable
        ``refusal(points, settings)``: why it cannot run here, or None.
    shows_steps : bool
        Whether it can call back before each step.

    Examples
    --------
    >>> from a2lp.engines import select
    >>> [engine.name for engine in select.PROPAGATION.engines]
    ['fused_cpu', 'fused_cuda', 'batched', 'reference']
    """

    name: str
    run: Callable[..., Any]
    reason: str
    refusal: Callable[[Points, Any], str | None] = lambda points, settings: None
    shows_steps: bool = False


class Loop(NamedTuple):
    """An inner loop, with its engines in the order in which ``"auto"`` tries them."""

    name: str
    engines: tuple[Engine, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The values of the parameter ``engine``."""
        return ("auto", *(engine.name for engine in self.engines))

    @property
    def shows_steps(self) -> bool:
        """Whether any of its engines can call back."""
        return any(engine.shows_steps for engine in self.engines)


def fused_cpu(run: Callable[[Points, Any], Any], what: str = "steps") -> Engine:
    """An engine of numba code on NumPy arrays."""

    def refusal(points: Points, settings: Any) -> str | None:
        if is_numpy(namespace(points.vectors)):
            return None
        return f"it takes NumPy arrays, and these are {type(points.vectors).__module__} arrays"

    reason = f"NumPy arrays: all {what} of a task in one compiled call, one task per core"
    return Engine("fused_cpu", run, reason, refusal)


def batched(run: Callable[..., Any], *, shows_steps: bool = False) -> Engine:
    """An engine of array-API code, one step of all tasks at a time."""
    return Engine("batched", run, "it runs on any array library", shows_steps=shows_steps)
