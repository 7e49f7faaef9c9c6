"""What all methods share: parameters that are checked once, preprocessing, bounded memory, and the answer."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from array_api_compat import device

from a2lp.arrays import Array, chunks, collect, is_numpy, namespace, on_host, softmax
from a2lp.errors import InputError, UnknownNameError
from a2lp.preprocess import NAMES as PREPROCESS_NAMES
from a2lp.preprocess import USES_BASE, preprocess
from a2lp.tasks.batch import Prediction, TaskBatch

# How much of a batch's vectors is preprocessed at a time: memory stays bounded however many tasks come. On the host a
# block should fit the caches, and give every core some tasks; on a device it must be large enough to fill it.
_BLOCK_BYTES = 16 << 20
_TASKS_PER_CORE = 8
_DEVICE_BLOCK_BYTES = 1 << 30
_TOGETHER = 5  # times as many tasks in a block where each vector is multiplied once: the more, the more they share


class Points(NamedTuple):
    """A block of preprocessed tasks."""

    vectors: Array  # (b, s + q + u, d)  support first, then queries
    codes: Array  # (b, s)
    n_classes: int
    n_query: int

    @property
    def support(self) -> Array:
        """Labelled vectors (b, s, d)."""
        return self.vectors[:, : self.codes.shape[1], :]

    @property
    def rest(self) -> Array:
        """Vectors that are not labelled (b, q + u, d), queries first."""
        return self.vectors[:, self.codes.shape[1] :, :]


class Outcome(NamedTuple):
    """What a method found for a block of tasks; see ``Prediction``."""

    scores: Array  # (b, q, c)
    codes: Array  # (b, q)
    reached: Array  # (b, q)
    steps: Array  # (b,)
    converged: Array  # (b,)
    losses: Array | None = None
    anchors: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A method with its parameters; a subclass adds its own and says how to solve a block of tasks.

    Parameters
    ----------
    preprocess : {"l2", "plc", "cl2n", "whiten", "none"}
        What is done to the vectors of a task first; each method's default is what its authors do.
    base : BaseStatistics, optional
        What is known of the base classes, for ``cl2n``, ``whiten`` and methods that need it themselves.
    tau : float
        Probabilities are softmax(tau * scores).
    """

    assumes_uniform: ClassVar[bool] = False
    needs_base: ClassVar[bool] = False

    preprocess: str = "l2"
    base: Any = field(default=None, repr=False, compare=False)
    tau: float = 15.0

    def __post_init__(self) -> None:
        require_name("preprocess", self.preprocess, PREPROCESS_NAMES)
        require_number("tau", self.tau, "positive", lambda v: v > 0, "The paper uses 15.")

    @property
    def uniform(self) -> bool:
        """Whether this method, as it is set, takes every class to have equally many queries."""
        return self.assumes_uniform or getattr(self, "marginal", None) == "uniform"

    @property
    def reads_statistics(self) -> bool:
        """Whether this method, as it is set, reads ``base``, the statistics of base classes."""
        return self.needs_base or self.preprocess in USES_BASE

    @property
    def uses_base(self) -> bool:
        """Whether this method, as it is set, owes something to base classes: tables keep those apart."""
        return self.reads_statistics

    def predict(self, batch: TaskBatch, callback: Callable[[Any], object] | None = None) -> Prediction:
        """Label the queries of every task of a batch.

        Parameters
        ----------
        batch : TaskBatch
        callback : callable, optional
            Called with a ``Step`` before each optimisation step, where the method has steps.
        """
        if not isinstance(batch, TaskBatch):
            raise InputError(
                f"predict takes a TaskBatch, not {type(batch).__name__}. Wrap the arrays: "
                "a2lp.TaskBatch(support, support_labels, query)."
            )
        self._check(batch)
        engine = "", ""

        def solved() -> Iterator[Outcome]:
            nonlocal engine
            for part in chunks(batch.n_tasks, self._tasks_at_once(batch)):
                outcome, engine = self._solve(self._points(batch[part]), _shifted(callback, part.start))
                yield outcome

        found = collect(batch.n_tasks, solved())
        return Prediction(
            scores=found.scores,
            probabilities=softmax(self.tau * found.scores),
            labels=batch.decode(found.codes),
            classes=batch._labels_like(batch.classes),
            reached=found.reached,
            steps=found.steps,
            converged=found.converged,
            losses=found.losses,
            anchors=found.anchors,
            engine=engine[0],
            reason=engine[1],
        )

    def _check(self, batch: TaskBatch) -> None:  # noqa: B027
        """Warn of what does not fit this batch, once."""

    @abstractmethod
    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        """Solve a block of tasks; also which engine ran, and why."""

    def _tasks_at_once(self, batch: TaskBatch) -> int:
        """How many tasks make a block."""
        together = _TOGETHER if self._multiplies_once and is_numpy(namespace(batch.support)) else 1
        return together * _block_size(batch)

    @property
    def _multiplies_once(self) -> bool:
        """Whether a vector that several tasks of a block have is multiplied by a large matrix once."""
        return self.preprocess == "whiten"

    def _points(self, batch: TaskBatch) -> Points:
        vectors = preprocess(self.preprocess, batch.points, self.base, overwrite=True)
        return Points(vectors, batch.codes, batch.n_classes, batch.n_query)


DIRECT = ("direct", "a closed form; there is nothing to choose")


def direct_outcome(scores: Array, **found: Any) -> Outcome:
    """The outcome of a method whose scores reach every query."""
    xp = namespace(scores)
    b, q, _ = scores.shape
    where = device(scores)
    return Outcome(
        scores=scores,
        codes=xp.argmax(scores, axis=-1),
        reached=xp.ones((b, q), dtype=xp.bool, device=where),
        steps=found.pop("steps", xp.zeros((b,), dtype=xp.int64, device=where)),
        converged=found.pop("converged", xp.zeros((b,), dtype=xp.bool, device=where)),
        **found,
    )


def require_number(name: str, value: Any, rule: str, holds: Callable[[Any], bool], remedy: str) -> None:
    """Raise the house's error unless a parameter is a finite number that keeps its rule."""
    if not (isinstance(value, Real) and math.isfinite(value) and holds(value)):
        raise InputError(f"{name}={value!r} must be {rule}. {remedy}")


def require_whole(name: str, value: Any, least: int, remedy: str) -> None:
    """Raise the house's error unless a parameter is a whole number of at least ``least``."""
    rule = f"a whole number, {least} or more"
    require_number(name, value, rule, lambda v: isinstance(v, Integral) and int(v) >= least, remedy)


def require_name(kind: str, value: Any, known: Iterable[str]) -> None:
    """Raise the house's error unless a parameter is one of some names."""
    if not (isinstance(value, str) and value in known):
        raise UnknownNameError(kind, value, known)


def require_flag(name: str, value: Any, remedy: str) -> None:
    """Raise the house's error unless a parameter is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name}={value!r} must be True or False. {remedy}")


def require_adam(betas: Any, eps: Any) -> None:
    """Raise the house's error unless these are parameters of Adam."""
    remedy = "Adam's own are (0.9, 0.999) and 1e-8."
    if not (isinstance(betas, tuple | list) and len(betas) == 2):
        raise InputError(f"betas={betas!r} must be two numbers. {remedy}")
    for beta in betas:
        require_number("betas", beta, "at least 0 and below 1, each", lambda v: 0 <= v < 1, remedy)
    require_number("eps", eps, "0 or more", lambda v: v >= 0, remedy)


def _block_size(batch: TaskBatch) -> int:
    vectors = batch.n_support + batch.n_query + batch.n_unlabelled
    task = 8 * vectors * batch.n_dims
    if not on_host(batch.support):
        return max(1, _DEVICE_BLOCK_BYTES // task)
    return max(_TASKS_PER_CORE * (os.cpu_count() or 1), _BLOCK_BYTES // task)


def _shifted(callback: Callable[[Any], object] | None, start: int) -> Callable[[Any], object] | None:
    """A callback that is told tasks by their place in the whole batch, not in the block."""
    if callback is None or start == 0:
        return callback

    def shifted(step: Any) -> object:
        tasks = slice(step.tasks.start + start, step.tasks.stop + start)
        return callback(step._replace(tasks=tasks))

    return shifted
