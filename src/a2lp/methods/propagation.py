"""Label propagation, and with adapted anchors.

``lp``: Zhou, Bousquet, Lal, Weston and Schoelkopf, "Learning with local and global consistency", NIPS 2003, on
the nearest-neighbour graph of Lazarou et al. 2021. ``a2lp``: Lazarou, Avrithis, Ren and Stathaki, "Adaptive
anchor label propagation for transductive few-shot learning", ICIP 2023: the labelled points are moved by
gradient descent until propagation labels them well, then propagation labels the queries.

``a2lp_plus`` is ours: ``a2lp`` with a loss that reads the queries too.

``lp`` and ``a2lp`` assume nothing about how many queries a class has, ``a2lp_plus`` does softly; none uses base
data. ``a2lp`` with ``steps=0`` is ``lp``. Its defaults are the paper's where its code agrees, and the code's where
it does not, since the published numbers came from the code; docs/paper-vs-code.md has the list, and an option for
each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from a2lp.arrays import Array, namespace, one_hot
from a2lp.engines import select
from a2lp.engines.contract import Engine, Problem, Result, Settings
from a2lp.errors import A2LPWarning, InputError
from a2lp.losses import CROSS_ENTROPY, Terms, by_numerics, make_terms
from a2lp.methods.base import (
    Method,
    Outcome,
    Points,
    require_adam,
    require_flag,
    require_name,
    require_number,
    require_whole,
)
from a2lp.optimizers import NAMES as OPTIMIZER_NAMES
from a2lp.preprocess import l2
from a2lp.tasks.batch import TaskBatch


@dataclass(frozen=True, kw_only=True)
class LP(Method):
    """Label propagation; scores are Z of eq. 5.

    Parameters
    ----------
    n_neighbors : int
        Neighbours that each point chooses, k.
    gamma : float
        Power of the similarities.
    alpha : float
        How far labels travel, from 0 (nowhere) to below 1.
    engine : str
        ``"auto"``, or an engine by name.
    """

    n_neighbors: int = 20
    gamma: float = 3
    alpha: float = 0.8
    engine: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("n_neighbors", self.n_neighbors, 1, "The paper uses 20.")
        require_number("gamma", self.gamma, "positive", lambda v: v > 0, "The paper uses 3.")
        remedy = "At 1 the propagation has no unique solution; the paper uses 0.8."
        require_number("alpha", self.alpha, "at least 0 and below 1", lambda v: 0 <= v < 1, remedy)
        require_name("engine", self.engine, select.NAMES)

    def _settings(self, n_neighbors: int) -> Settings:
        return Settings(n_neighbors=n_neighbors, gamma=float(self.gamma), alpha=float(self.alpha), tau=float(self.tau))

    def _vectors(self, points: Points) -> tuple[Array, Array]:
        """Unit vectors: eq. 1 is about cosines, whatever the preprocessing was."""
        if self.preprocess == "none":
            return l2(points.support), l2(points.rest)
        return points.support, points.rest

    def _check(self, batch: TaskBatch) -> None:
        n = batch.n_support + batch.n_query + batch.n_unlabelled
        if self.n_neighbors >= n:
            warnings.warn(
                f"n_neighbors={self.n_neighbors}, but a task has {n} points, so each has {n - 1} neighbours at most; "
                f"using {n - 1}.",
                A2LPWarning,
                stacklevel=3,
            )

    def _run(self, engine: Engine, problem: Problem, settings: Settings, callback: Any) -> Result:
        """The engine's result, if the arithmetic could hold it."""
        xp = namespace(problem.support)
        try:
            found = engine.run(problem, settings, callback)
        except Exception as error:
            if "LinAlgError" not in type(error).__name__:
                raise
            raise self._no_answer(problem) from error
        if not bool(xp.all(xp.isfinite(found.z))):
            raise self._no_answer(problem)
        return found

    def _no_answer(self, problem: Problem) -> InputError:
        return InputError(
            f"alpha={self.alpha} and lr={getattr(self, 'lr', None)} leave the range of {problem.support.dtype}: the "
            "system has no finite solution. Take alpha further from 1, a smaller lr, or float64 vectors."
        )

    def _solve(self, points: Points, callback: Callable[[Any], object] | None) -> tuple[Outcome, tuple[str, str]]:
        support, rest = self._vectors(points)
        problem = Problem(support, rest, points.codes, points.n_classes)
        settings = self._settings(min(int(self.n_neighbors), support.shape[1] + rest.shape[1] - 1))
        engine, reason = select.choose(self.engine, problem, settings, calls_back=callback is not None)
        found = self._run(engine, problem, settings, callback)
        xp = namespace(support)
        s, q = support.shape[1], points.n_query
        scores = found.z[:, s : s + q, :]
        reached = xp.max(scores, axis=-1) > 0
        codes = xp.where(reached, xp.argmax(scores, axis=-1), _nearest(support, rest[:, :q, :], points))
        outcome = Outcome(scores, codes, reached, found.steps, found.converged, found.losses, found.anchors)
        return outcome, (engine.name, reason)


@dataclass(frozen=True, kw_only=True)
class A2LP(LP):
    """Label propagation with adapted anchors; scores are the final Z.

    Parameters
    ----------
    steps : int
        Rounds of propagation and adaptation; 0 is label propagation.
    lr : float
        Learning rate.
    loss : Terms or mapping
        What the anchors are adapted by; as it stands, the paper's cross-entropy of the anchors. A mapping names the
        entries of ``losses.Terms`` that differ, such as ``{"entropy": 0.1, "marginal": 0.07}``.
    numerics : {"exact", "official", "official_cpu"}
        ``"exact"`` evaluates the loss without cancellation. ``"official"`` emulates the float32 arithmetic that
        the published numbers came from: PyTorch on a GPU, where the gradient of a saturated softmax is a few
        units of rounding. ``"official_cpu"`` is the same code on a CPU, which rounds otherwise.
    optimizer : {"adam", "gd"}
    betas, eps : (float, float), float
        Adam's own. ``eps`` matters: gradients are about as small.
    reduction : {"mean", "sum"}
        Over the anchors of a task: the code's mean, or the paper's sum.
    renormalize : bool
        Take the paper's cosine literally: anchors go back to unit length after every step, and only the gradient
        along the sphere counts. The code lets their length grow.
    final_forward : bool
        Propagate once more after the last update. The code does not, so of its 1000 updates 999 count.
    loss_tol, grad_tol : float, optional
        A task stops as soon as its loss, or the largest entry of its gradient, is this small.
    """

    steps: int = 1000
    lr: float = 1e-4
    loss: Terms | Mapping[str, Any] = CROSS_ENTROPY
    numerics: str = "exact"
    optimizer: str = "adam"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    reduction: str = "mean"
    renormalize: bool = False
    final_forward: bool = False
    loss_tol: float | None = None
    grad_tol: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("steps", self.steps, 0, "0 is plain label propagation.")
        require_number("lr", self.lr, "positive", lambda v: v > 0, "The paper uses 1e-4.")
        require_adam(self.betas, self.eps)
        object.__setattr__(self, "loss", make_terms(self.loss))
        by_numerics(self.numerics)
        require_name("optimizer", self.optimizer, OPTIMIZER_NAMES)
        require_name("reduction", self.reduction, ("mean", "sum"))
        require_flag("renormalize", self.renormalize, "The code does not.")
        require_flag("final_forward", self.final_forward, "The code does not.")
        for name in ("loss_tol", "grad_tol"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), "0 or more", lambda v: v >= 0, "None never stops early.")

    @property
    def uniform(self) -> bool:
        """Whether classes are taken to have equally many queries: softly, by a loss with a marginal term."""
        return super().uniform or make_terms(self.loss).marginal > 0

    def _settings(self, n_neighbors: int) -> Settings:
        return Settings(
            n_neighbors=n_neighbors,
            gamma=float(self.gamma),
            alpha=float(self.alpha),
            tau=float(self.tau),
            steps=int(self.steps),
            lr=float(self.lr),
            numerics=self.numerics,
            optimizer=self.optimizer,
            betas=(float(self.betas[0]), float(self.betas[1])),
            eps=float(self.eps),
            reduction=self.reduction,
            renormalize=self.renormalize,
            final_forward=self.final_forward,
            loss_tol=self.loss_tol,
            grad_tol=self.grad_tol,
            terms=make_terms(self.loss),
        )

    def _vectors(self, points: Points) -> tuple[Array, Array]:
        support, rest = super()._vectors(points)
        if self.numerics != "exact":
            xp = namespace(support)
            return xp.astype(support, xp.float32, copy=False), xp.astype(rest, xp.float32, copy=False)
        return support, rest


PLUS = Terms(anchors="others", weight=0.1, queries="norm2", entropy=1.0, marginal=0.5)


@dataclass(frozen=True, kw_only=True)
class A2LPPlus(A2LP):
    """A2LP whose loss reads the queries too, in a tenth of the steps; scores are the final Z.

    Each query should belong to one class, all together to every class, and each anchor to its own by what others
    say of it. One setting for all tasks, chosen on validation classes; docs/a2lp_plus.md has the equations and how.
    The parameters are those of ``A2LP``, some with other defaults. It assumes a uniform marginal softly, by the weight
    ``loss.marginal``.
    """

    assumes_uniform: ClassVar[bool] = True

    n_neighbors: int = 17
    gamma: float = 1.5
    steps: int = 100
    lr: float = 5e-4
    loss: Terms | Mapping[str, Any] = PLUS
    reduction: str = "sum"


def _nearest(support: Array, query: Array, points: Points) -> Array:
    """Class of each query's nearest support vector (b, q); ties go to the lower row."""
    xp = namespace(support)
    cosines = query @ xp.matrix_transpose(support)  # (b, q, s)
    row = xp.argmax(cosines, axis=-1)  # (b, q)
    picked = one_hot(row, support.shape[1], points.codes.dtype)  # (b, q, s)
    return xp.sum(picked * points.codes[:, None, :], axis=-1)
