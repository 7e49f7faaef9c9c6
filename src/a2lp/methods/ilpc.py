"""iLPC: Lazarou, Stathaki and Avrithis, "Iterative label cleaning for transductive and semi-supervised few-shot
learning", ICCV 2021.

Labels are propagated to the queries and balanced over the classes. A linear classifier is then trained on all of
them, and the queries with the smallest loss, a few per class, join the support; this repeats with the remaining ones.
Assumes that every class has equally many queries. No base data.

Differences from the authors' code (its ResNet-12 path): the classifier's bias starts at zero, not at random, so there
is no seed. The propagation is solved exactly, not by 20 steps of conjugate gradients. Negative similarities count as
zero: in the code they can make a degree negative, and all labels NaN. The remaining mass of a class that received more
queries than its share is zero, not negative; a query shared equally by two classes goes to the nearer one. The numbers
of neighbours that the authors tuned are not in their code; the defaults are those of its README and its program. The
classifier's logits are trained directly, which is the same in plain descent and costs less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from a2lp.arrays import Array, device, kth_largest, namespace, one_hot
from a2lp.checks import number, whole
from a2lp.engines.contract import NO_SOLUTION
from a2lp.graph import affinity, normalise
from a2lp.methods._maths import descent_losses, log_scores, sinkhorn
from a2lp.methods.base import Method, Outcome, Points, scored
from a2lp.preprocess import l2

_TOLERANCE = 1e-6
_LEAST_KERNEL = 1e-26  # of a point's best class; a class that no label reaches could not be filled
_RATES = 0.1, 0.9, 5e-4  # of the classifier: learning rate, momentum and weight decay


class _State(NamedTuple):
    """Tasks in progress."""

    tasks: Array  # (b,)  indices in the block
    gram: Array  # (b, n, n)  inner products
    spread: Array  # (b, n, n)  (I - alpha W)^-1
    labels: Array  # (b, c, n)  one-hot for points labelled so far, else zero
    rest: Array  # (b, n)  1 for the other points
    owed: Array  # (b, c)  how many of them each class should get
    plan: Array  # (b, c, n)  each query's shares when it was labelled, or the last ones
    steps: Array  # (b,)


@dataclass(frozen=True, kw_only=True)
class ILPC(Method):
    """Iterative label propagation and cleaning; scores are the logarithms of balanced labels over tau.

    Parameters
    ----------
    n_neighbors : int, optional
        Neighbours of each point, at most all others; by default 15 with one shot per class and 20 with more.
    gamma, alpha : float
        As for ``lp``.
    sharpness : float
        Power of the propagated labels before they are balanced.
    n_best : int
        Queries of each class that join the support in a round.
    steps : int
        Descent steps of the classifier in a round.
    """

    assumes_uniform: ClassVar[bool] = True

    n_neighbors: int | None = whole(None, 1, "None chooses by the number of shots.")
    gamma: float = number(3.0, "positive", "The authors use 3.")
    alpha: float = number(0.8, "at least 0 and below 1", f"{NO_SOLUTION} the authors use 0.8.")
    sharpness: float = number(3.0, "positive", "The authors use 3.")
    n_best: int = whole(3, 1, "The authors use 3.")
    steps: int = whole(1000, 1, "The authors use 1000.")

    def _solve(self, points: Points) -> Outcome:
        xp, s = namespace(points.vectors), points.codes.shape[1]
        state, done = self._start(points), []
        while state.tasks.shape[0] > 0:  # every round labels a query of each task, or is its last round
            state, going = self._round(state)
            # a device is asked once in a round, which is a thousand steps: who is left
            ended, left = (xp.nonzero(mask)[0] for mask in (~going, going))
            done.append(tuple(xp.take(x, ended, axis=0) for x in (state.tasks, state.plan, state.steps)))
            state = _State(*(xp.take(x, left, axis=0) for x in state))
        tasks, plan, steps = (xp.concat(list(parts), axis=0) for parts in zip(*done, strict=True))
        order = xp.argsort(tasks)
        plan = xp.matrix_transpose(xp.take(plan, order, axis=0))  # (b, n, c)
        scores = log_scores(plan[:, s : s + points.n_query, :], self.tau)
        return scored(scores, steps=xp.take(steps, order, axis=0))

    def _start(self, points: Points) -> _State:
        # the graph is built from cosines
        x = l2(points.vectors) if self.preprocess == "none" else points.vectors  # (b, n, d)
        xp, where = namespace(x), device(x)
        (b, n, _), s, c = x.shape, points.codes.shape[1], points.n_classes
        n_neighbors = self.n_neighbors or (15 if s == c else 20)
        weights = normalise(affinity(x, min(n_neighbors, n - 1), self.gamma))
        labels = points.memberships
        return _State(
            tasks=xp.arange(b, device=where),
            gram=x @ xp.matrix_transpose(x),
            spread=xp.linalg.inv(xp.eye(n, dtype=x.dtype, device=where) - self.alpha * weights),
            labels=labels,
            rest=1 - xp.sum(labels, axis=1),
            owed=xp.full((b, c), (n - s) / c, dtype=x.dtype, device=where),
            plan=labels,
            steps=xp.zeros((b,), dtype=xp.int64, device=where),
        )

    def _round(self, state: _State) -> tuple[_State, Array]:
        """Propagate, balance, clean; also which tasks continue (b,)."""
        xp = namespace(state.gram)
        _, c, n = state.labels.shape
        reach = xp.clip(state.labels @ state.spread, min=0.0)  # (b, c, n)
        best = xp.max(reach, axis=1, keepdims=True)
        kernel = (reach / xp.where(best > 0, best, xp.ones_like(best))) ** self.sharpness
        owed = xp.clip(state.owed, min=0.0)
        plan = sinkhorn(xp.clip(kernel, min=_LEAST_KERNEL), owed, _TOLERANCE, rows=state.rest)
        # the last query is shared in proportion to ``owed``, often equally: the nearer class gets it
        cosines = (state.labels @ state.gram) / xp.sum(state.labels, axis=-1, keepdims=True)
        plan = plan * (1.0 + _TOLERANCE * cosines)
        is_rest = state.rest[:, None, :] > 0  # (b, 1, n)
        found = one_hot(xp.argmax(plan, axis=1), c, plan.dtype, axis=1) * state.rest[:, None, :]
        losses = _cleaning_losses(state.gram, state.labels, state.labels + found, self.steps)[:, None, :]
        ease = xp.where(found > 0, -losses, -xp.inf)  # (b, c, n)
        easiest = (found > 0) & (ease >= kth_largest(ease, min(self.n_best, n)))
        joining = xp.astype(easiest, plan.dtype)
        labels, rest = state.labels + joining, state.rest - xp.sum(joining, axis=1)
        going = (xp.sum(joining, axis=(1, 2)) >= c) & (xp.sum(rest, axis=-1) > 0)
        after = state._replace(
            labels=labels,
            rest=rest,
            owed=state.owed - xp.sum(joining, axis=-1),
            plan=xp.where(is_rest, plan, state.plan),
            steps=state.steps + self.steps,
        )
        return after, going


def _cleaning_losses(gram: Array, labels: Array, target: Array, steps: int) -> Array:
    """Each point's cross-entropy (b, n), averaged over the training of a linear classifier.

    It starts from the unit mean of each class's labelled points and a bias of zero. Its weights stay sums of the
    points, and momentum and decay are linear, so the logits can be trained directly: a gradient moves them by inner
    products, plus one for the bias. One-hot ``labels`` (b, c, n) are of the labelled points, ``target`` of all.
    """
    products, logits = _first_logits(gram, labels)
    return descent_losses(products, target, logits, _RATES, steps)


def _first_logits(gram: Array, labels: Array) -> tuple[Array, Array]:
    """What the logits' gradient is multiplied by (b, n, n), and the logits at the start (b, c, n)."""
    xp = namespace(gram)
    logits = labels @ gram  # (b, c, n)  by sums of labelled points, which are then normalised
    squares = xp.sum(logits * labels, axis=-1, keepdims=True)
    logits = logits / xp.sqrt(xp.where(squares > 0, squares, xp.ones_like(squares)))
    return (gram + 1.0) / gram.shape[-1], logits
