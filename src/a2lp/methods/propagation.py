"""Label propagation, and label propagation with adapted anchors.

``lp``: Zhou, Bousquet, Lal, Weston and Schoelkopf, "Learning with local and global consistency", NIPS 2003, on
the nearest-neighbour graph of Lazarou et al. 2021. ``a2lp``: Lazarou, Avrithis, Ren and Stathaki, "Adaptive
anchor label propagation for transductive few-shot learning", ICIP 2023: the labelled points are moved by
gradient descent until propagation labels them well. ``a2lp_plus`` is ours: ``a2lp`` with a loss on the queries too.

Only ``a2lp_plus`` assumes a uniform marginal, softly. No base data. ``a2lp`` with ``steps=0`` is ``lp``. Where the
paper and its code differ, the defaults are the code's, which the published numbers came from; docs/paper-vs-code.md
lists the differences, with an option for each.
"""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

from a2lp.arrays import namespace
from a2lp.engines.contract import Callback, GraphSettings, Loop, Settings
from a2lp.engines.select import PROPAGATION
from a2lp.errors import A2LPWarning
from a2lp.losses import Terms
from a2lp.methods.base import LoopMethod, Outcome, Points
from a2lp.preprocess import l2
from a2lp.tasks.batch import TaskBatch


@dataclass(frozen=True, kw_only=True)
class LP(GraphSettings, LoopMethod):
    """Label propagation; scores are Z of eq. 5.

    Parameters
    ----------
    n_neighbors : int
        Neighbours of each point, k.
    gamma : float
        Power of the similarities.
    alpha : float
        How far labels propagate, from 0 (nowhere) to below 1.
    engine : str
        ``"auto"``, or an engine by name.

    Examples
    --------
    >>> import a2lp
    >>> batch = a2lp.TaskBatch([[[1.0, 0.1], [0.1, 1.0]]], [[7, 3]], [[[0.9, 0.3], [0.2, 0.8], [0.3, 0.9]]])
    >>> a2lp.create("lp", n_neighbors=2).predict(batch).labels.tolist()
    [[7, 3, 3]]
    """

    loop: ClassVar[Loop] = PROPAGATION

    def _settings(self, n_points: int) -> Settings:
        """The loop's settings for tasks of so many points."""
        return Settings(n_neighbors=self.n_neighbors, gamma=self.gamma, alpha=self.alpha, steps=0, tau=self.tau)

    def _check(self, batch: TaskBatch) -> None:
        super()._check(batch)
        n = batch.n_support + batch.n_query + batch.n_unlabelled
        if self._settings(n).n_neighbors >= n:
            warnings.warn(
                f"n_neighbors={self.n_neighbors}, but a task has {n} points, so each has {n - 1} neighbours at most; "
                f"using {n - 1}.",
                A2LPWarning,
                stacklevel=3,
            )

    def _prepared(self, points: Points) -> Points:
        """Unit vectors, since eq. 1 has cosines, whatever the preprocessing."""
        return points._replace(vectors=l2(points.vectors)) if self.preprocess == "none" else points

    def _solve(self, points: Points, callback: Callback | None = None) -> Outcome:
        points = self._prepared(points)
        (z, anchors, losses, steps, converged), engine, reason = self._run(
            points, self._settings(points.vectors.shape[1]), callback
        )
        xp = namespace(z)
        s, q = points.codes.shape[1], points.n_query
        scores = z[:, s : s + q, :]
        reached = xp.max(scores, axis=-1) > 0
        # a query that no label reaches gets that of the nearest support vector
        cosines = points.query @ xp.matrix_transpose(points.support)  # (b, q, s)
        codes = xp.where(reached, xp.argmax(scores, axis=-1), points.codes_at(xp.argmax(cosines, axis=-1)))
        return Outcome(scores, codes, reached, steps, converged, losses, anchors, engine, reason)


@dataclass(frozen=True, kw_only=True)
class A2LP(LP, Settings):
    """Label propagation with adapted anchors; scores are the final Z.

    Parameters
    ----------
    steps : int
        Rounds of propagation and adaptation; 0 is label propagation.
    lr : float
        Learning rate.
    loss : Terms or mapping
        The loss; by default the paper's cross-entropy of the anchors. A mapping has the entries of ``losses.Terms``
        that differ, such as ``{"entropy": 0.1, "marginal": 0.07}``.
    numerics : {"exact", "official", "official_cpu"}
        ``"exact"`` evaluates the loss without cancellation. ``"official"`` emulates the float32 arithmetic of the
        published numbers: PyTorch on a GPU, where the gradient of a saturated softmax is a few units of rounding.
        ``"official_cpu"`` is the same code on a CPU, which rounds differently.
    optimizer : {"adam", "gd"}
    betas, eps : (float, float), float
        Adam's. ``eps`` matters, since gradients are about as small.
    reduction : {"mean", "sum"}
        Over the anchors of a task: the code's mean, or the paper's sum.
    renormalize : bool
        As in the paper's cosine, normalise anchors after every step and project the gradient; the code does not.
    final_forward : bool
        Propagate once more after the last update. The code does not, so 999 of its 1000 updates count.
    loss_tol, grad_tol : float, optional
        A task stops as soon as its loss, or the largest entry of its gradient, is this small.
    n_neighbors, gamma, alpha, engine
        As for ``lp``.

    Examples
    --------
    >>> import a2lp
    >>> birds = a2lp.load("cub")
    >>> tasks = a2lp.draw("balanced", birds.labels, seed=0, n_way=5, n_shot=1, n_query=15, n_tasks=20)
    >>> answer = a2lp.create("a2lp", steps=100).predict(tasks.batch(birds.features))
    >>> bool((answer.labels == tasks.query_labels).mean() > 0.7)
    True
    """

    def __post_init__(self) -> None:
        LoopMethod.__post_init__(self)
        Settings.__post_init__(self)

    @property
    def uniform(self) -> bool:
        """Whether equally many queries of every class are assumed: softly, by a loss with a marginal term."""
        return super().uniform or self.loss.marginal > 0

    def _settings(self, n_points: int) -> Settings:
        return self

    def _prepared(self, points: Points) -> Points:
        points = super()._prepared(points)
        if self.numerics == "exact":
            return points
        xp = namespace(points.vectors)
        return points._replace(vectors=xp.astype(points.vectors, xp.float32, copy=False))


_USUAL_POINTS = 80  # one shot and 15 queries of five classes
PLUS = Terms(anchors="others", weight=0.1, queries="norm2", entropy=1.0, marginal=0.5)


@dataclass(frozen=True, kw_only=True)
class A2LPPlus(A2LP):
    """A2LP with a loss on the queries too, in a tenth of the steps; scores are the final Z.

    Each query should belong to one class, all together to every class, and each anchor to its own class according to
    its neighbours. One setting for all tasks, chosen on validation classes; see docs/a2lp_plus.md. The parameters are
    those of ``A2LP``, some with other defaults. It assumes a uniform marginal softly, by ``loss.marginal``.

    Tasks of fewer than 80 points have fewer neighbours in proportion: where nearly all points are neighbours, the
    queries are alike, and the terms on them draw all into one class.
    """

    assumes_uniform: ClassVar[bool] = True

    n_neighbors: int = 17
    gamma: float = 1.5
    steps: int = 100
    lr: float = 5e-4
    loss: Terms | Any = PLUS
    reduction: str = "sum"

    def _settings(self, n_points: int) -> Settings:
        near = round(self.n_neighbors * min(1.0, n_points / _USUAL_POINTS))
        return dataclasses.replace(self, n_neighbors=max(1, near))
