"""The base of all methods: checked parameters, preprocessing, bounded memory, and the prediction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from a2lp import cores
from a2lp.arrays import Array, chunks, collect, device, is_numpy, namespace, on_host, softmax, to_numpy
from a2lp.checks import check_fields, choice, number, require_name, shown
from a2lp.engines import select
from a2lp.engines.contract import Callback, Loop
from a2lp.engines.contract import Points as Points
from a2lp.errors import InputError
from a2lp.preprocess import NAMES as PREPROCESS_NAMES
from a2lp.preprocess import USES_BASE, in_range, preprocess, preprocess_names
from a2lp.tasks.batch import Prediction, TaskBatch

# Bytes of vectors that are preprocessed at a time, which bounds memory. On a CPU a block should fit the caches and give
# every core some tasks; on a GPU it must be large enough to fill it.
_BLOCK_BYTES = 16 << 20
_TASKS_PER_CORE = 8
_DEVICE_BLOCK_BYTES = 1 << 30
_SHARED_FACTOR = 5  # larger blocks for whitening, where a vector that several tasks of a block share is whitened once


class Outcome(NamedTuple):
    """The results of a method for a block of tasks; see ``Prediction``."""

    scores: Array  # (b, q, c)
    codes: Array  # (b, q)
    reached: Array  # (b, q)
    steps: Array  # (b,)
    converged: Array  # (b,)
    losses: Array | None = None
    anchors: Array | None = None
    engine: str = "direct"
    reason: str = "array operations on all tasks at once; there is nothing to choose"


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A method with its parameters; a subclass adds its own and solves a block of tasks.

    Parameters
    ----------
    preprocess : {"l2", "plc", "cl2n", "whiten", "bpa", "none"}
        Preprocessing of the vectors of a task; each method's default is that of its authors.
    base : BaseStatistics, optional
        Statistics of the base classes, for ``cl2n``, ``whiten`` and methods that need them.
    tau : float
        Probabilities are softmax(tau * scores).

    Examples
    --------
    >>> import a2lp
    >>> method = a2lp.create("tim_gd")
    >>> isinstance(method, a2lp.Method), method.uniform, method.reads_statistics
    (True, True, False)
    """

    assumes_uniform: ClassVar[bool] = False
    uses_names: ClassVar[str] = "no"  # whether vectors of class names are used: "no", "optional" or "required"
    needs_base: ClassVar[bool] = False
    loop: ClassVar[Loop | None] = None

    preprocess: str = choice("l2", PREPROCESS_NAMES)
    base: Any = field(default=None, repr=False, compare=False)
    tau: float = number(15.0, "positive", "The paper uses 15.")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def uniform(self) -> bool:
        """Whether the method, with these parameters, assumes or prefers equally many queries of every class."""
        return self.assumes_uniform or getattr(self, "marginal", None) == "uniform"

    @property
    def reads_statistics(self) -> bool:
        """Whether the method, with these parameters, reads ``base``, the statistics of base classes."""
        return self.needs_base or self.preprocess in USES_BASE

    @property
    def uses_base(self) -> bool:
        """Whether the method, with these parameters, uses base classes in any way; tables list those apart."""
        return self.reads_statistics

    @property
    def shows_steps(self) -> bool:
        """Whether ``predict`` takes a callback: the method has steps, and an engine that calls back."""
        return self.loop is not None and self.loop.shows_steps and hasattr(self, "steps")

    def predict(self, batch: TaskBatch, callback: Callback | None = None) -> Prediction:
        """Label the queries of every task of a batch.

        Parameters
        ----------
        batch : TaskBatch
        callback : callable, optional
            Called with a ``Step`` before each optimisation step. Methods without steps raise an error.

        Returns
        -------
        Prediction

        Raises
        ------
        InputError
            If scores are not finite: a prediction never contains NaN.
        """
        if not isinstance(batch, TaskBatch):
            raise InputError(
                f"predict takes a TaskBatch, not {type(batch).__name__}. Wrap the arrays: "
                "a2lp.TaskBatch(support, support_labels, query)."
            )
        if callback is not None and not self.shows_steps:
            raise InputError(f"{type(self).__name__} has no steps to show to a callback. Call predict without one.")
        self._check(batch)
        whitens = self.needs_base or self.preprocess == "whiten"
        larger = _SHARED_FACTOR if whitens and is_numpy(namespace(batch.support)) else 1
        blocks = chunks(batch.n_tasks, larger * _block_size(batch))
        outcome: Outcome = collect(batch.n_tasks, (self._solve_block(batch, block, callback) for block in blocks))
        fields = outcome._asdict()
        labels = batch.decode(fields.pop("codes"))
        probabilities = softmax(self.tau * outcome.scores)
        classes = batch._labels_like(batch.classes)
        return Prediction(probabilities=probabilities, labels=labels, classes=classes, **fields)

    def _check(self, batch: TaskBatch) -> None:
        """Raise InputError where the method needs names or shots that the tasks do not have."""
        name = type(self).__name__
        if self.uses_names == "required" and batch.prototypes is None:
            raise InputError(
                f"{name} labels by class names, and prototypes is None. Give the batch prototypes=, one text vector "
                "for each class, or choose a method that works from labelled vectors alone, such as a2lp_em."
            )
        if self.uses_names == "no" and batch.prototypes is not None:
            shots = to_numpy(batch.codes)[:, :, None] == np.arange(batch.n_classes)
            for task, code in np.argwhere(~shots.any(axis=1)).tolist():
                raise InputError(
                    f"task {task} has no support vector of class {shown(batch.classes[task, code])}; {name} does not "
                    "use names and needs one of every class. Label some, or choose a method that uses names, such as "
                    "a2lp_em or zero_shot."
                )

    @abstractmethod
    def _solve(self, points: Points) -> Outcome:
        """Solve a block of tasks; a method with a loop also takes a callback, which may be None."""

    def _solve_block(self, batch: TaskBatch, block: slice, callback: Callback | None) -> Outcome:
        """Solve some tasks of a batch; raise an error where the scores are not finite."""
        solve: Callable[..., Outcome] = self._solve
        try:
            points = self._points(batch[block])
            outcome = solve(points) if callback is None else solve(points, _shifted(callback, block.start))
        except Exception as error:  # every array library has a LinAlgError of its own
            if "LinAlgError" not in type(error).__name__:
                raise
            raise self._no_answer("a system of equations has no solution", batch.support.dtype) from error
        finite = namespace(outcome.scores).isfinite(outcome.scores)
        if not bool(namespace(finite).all(finite)):
            task = block.start + int(np.argmin(to_numpy(finite).all(axis=(1, 2))))
            raise self._no_answer(f"the scores of task {task} are not finite", outcome.scores.dtype)
        return outcome

    def _no_answer(self, what: str, dtype: Any) -> InputError:
        return InputError(
            f"{self!r}: {what} in {dtype}. Use float64 vectors, parameters closer to the defaults, or "
            "preprocess='l2', and look for vectors of an extreme scale."
        )

    def _points(self, batch: TaskBatch) -> Points:
        vectors = batch.points
        if batch.has_large_values:
            vectors = in_range(vectors)
        names = None if self.uses_names == "no" else batch.prototypes
        if names is not None:
            names = in_range(names) if batch.has_large_values else names
            names = preprocess_names(self.preprocess, names, vectors, self.base)
        vectors = preprocess(self.preprocess, vectors, self.base, overwrite=True)
        return Points(vectors, batch.codes, batch.n_classes, batch.n_query, names)


@dataclass(frozen=True, kw_only=True)
class LoopMethod(Method):
    """A method with an inner loop, which engines run.

    Parameters
    ----------
    engine : str
        ``"auto"``, or an engine by name.
    """

    loop: ClassVar[Loop]

    engine: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_name("engine", self.engine, self.loop.names)

    def _run(self, points: Points, settings: Any, callback: Callback | None) -> select.LoopRun:
        """Run the loop with the chosen engine."""
        return select.run(self.loop, self.engine, points, settings, callback)


def scored(scores: Array, *, steps: int | Array = 0, ran: select.LoopRun | None = None, **computed: Any) -> Outcome:
    """The outcome of a method with scores (b, q, c); ``computed`` replaces the defaults of other fields."""
    xp = namespace(scores)
    b, q, _ = scores.shape
    where = device(scores)
    engine = {} if ran is None else {"engine": ran.engine, "reason": ran.reason}
    given = {
        "codes": xp.argmax(scores, axis=-1),
        "reached": xp.ones((b, q), dtype=xp.bool, device=where),
        "steps": xp.full((b,), steps, dtype=xp.int64, device=where) if isinstance(steps, int) else steps,
        "converged": xp.zeros((b,), dtype=xp.bool, device=where),
    }
    return Outcome(scores, **given | engine | computed)


def _block_size(batch: TaskBatch) -> int:
    """How many tasks make a block."""
    task_bytes = 8 * (batch.n_support + batch.n_query + batch.n_unlabelled) * batch.n_dims
    if not on_host(batch.support):
        return max(1, _DEVICE_BLOCK_BYTES // task_bytes)
    return max(_TASKS_PER_CORE * cores.count(), _BLOCK_BYTES // task_bytes)


def _shifted(callback: Callback, start: int) -> Callback:
    """A callback with the tasks' indices in the batch, not in the block."""
    return lambda step: callback(step._replace(tasks=slice(step.tasks.start + start, step.tasks.stop + start)))
