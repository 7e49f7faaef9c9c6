"""A2LP-EM, ours: anchors by expectation-maximisation on the graph; docs/a2lp_em.md has the equations and ablations.

The anchors are the class means under the current soft labels, which need no gradient; the soft labels that they give
are propagated on a graph like that of A2LP, in turn, for a few rounds. By default no uniform marginal is assumed: each
class's share of the queries is estimated, under several hypotheses about how unequal these shares are, which count by
the evidence for them; with ``marginal="uniform"`` they are equal. With more than one shot, a regression of the
support's labels joins the assignment.

By default no base data are used: entries are taken to the power 5/8, vectors are normalised, centred between the mean
of their task and that of its support, and normalised again. With statistics of the base classes,
``preprocess="whiten"`` is better: points are whitened by these, and locally by the deviations of the task's points from
their nearest neighbours. With any other preprocessing the points are centred only.

With vectors of class names (``TaskBatch(..., prototypes=)``), labels are optional. The probabilities that names give
join the assignment, and each anchor is drawn to its name by 1 / (1 + n_c), n_c the points that the class has: a named
class that does not occur keeps its name as its anchor, far from all points, and attracts nothing. Points are whitened
by the differences between neighbours. docs/names.md has the equations.

All parameters were chosen on validation classes of CUB, CIFAR-FS and
miniImageNet, one setting for all shots and samplers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from a2lp.arrays import namespace
from a2lp.checks import choice, flag, number, whole
from a2lp.engines.contract import NO_SOLUTION, Callback, Loop
from a2lp.loops import em
from a2lp.methods import _em_names as names
from a2lp.methods._maths import log_scores
from a2lp.methods.base import LoopMethod, Outcome, Points, scored
from a2lp.preprocess import l2

_DEFAULT = "None takes what was chosen on validation classes."


class _Form(NamedTuple):
    """Constants that were chosen together; those of the support are for many shots, and fade to none at one."""

    temperature: float
    alpha: float
    gamma: float
    mean_prior: float = 0.0
    pull: float = 0.0
    start_weight: float = 0.0
    support_weight: float = 0.0
    support_gamma: float = 0.0
    support_temperature: float = 0.0


_ESTIMATED = _Form(14.0, 0.6, 12.0, mean_prior=2.0, pull=2.0, start_weight=0.3, support_weight=5.0)
_WHITENED = _Form(50.0, 0.8, 3.0)
# equal masses keep classes from merging, so a softer assignment and less propagation suffice
_UNIFORM = _Form(20.0, 0.4, 3.0, support_weight=2.5, support_gamma=2.5, support_temperature=-12.5)
_UNIFORM_WHITENED = _Form(20.0, 0.4, 3.0)


@dataclass(frozen=True, kw_only=True)
class A2LPEM(LoopMethod):
    """Anchors by expectation-maximisation; probabilities are the final soft labels.

    Parameters
    ----------
    marginal : {"estimated", "uniform"}
        Whether the classes' shares among the queries are estimated or equal.
    n_neighbors : int
        The graph's, as for ``lp``; at most all other points are neighbours.
    gamma : float, optional
        The graph's; by default 12 without base data, 3 otherwise, and with a uniform marginal more with more shots.
    alpha : float, optional
        How far soft labels propagate; by default 0.6, 0.8 for whitened points, and 0.4 with a uniform marginal.
    temperature : float, optional
        Of the softmax of negative squared distances from the anchors; by default 14, 50 for whitened points, and with a
        uniform marginal 20, less with more shots.
    rounds : int
        Rounds of new anchors and new soft labels; 0 is label propagation.
    prior : float, optional
        Queries that are added to each class when its share is estimated: the concentration of a Dirichlet prior. By
        default how unequal the classes are is inferred for each task; 2 for whitened points.
    share_weight : float
        Factor of the logarithms of estimated shares.
    local_whitening : bool, optional
        Whether points are whitened by their deviations from their nearest neighbours; by default only with
        ``preprocess="whiten"``, since it does not help otherwise, and with names.
    text_weight : float
        Of the logarithms of the probabilities that names give, against the distances from the anchors; less with
        shots, half of it with four of each class.
    engine : str
        An engine by name, or ``"auto"``. Tasks with names have one of their own.
    """

    loop: ClassVar[Loop] = em.LOOP
    uses_names: ClassVar[str] = "optional"

    preprocess: str = "none"
    marginal: str = choice("estimated", ("estimated", "uniform"))
    n_neighbors: int = whole(20, 1, "20 is the usual number.")
    gamma: float | None = number(None, "positive", _DEFAULT)
    alpha: float | None = number(None, "at least 0 and below 1", f"{NO_SOLUTION} {_DEFAULT}")
    temperature: float | None = number(None, "positive", _DEFAULT)
    rounds: int = whole(10, 0, "0 is label propagation; 10 are enough.")
    prior: float | None = number(None, "positive", "None infers it; 2 is a weak pull towards equal shares.")
    share_weight: float = number(1.0, "finite", "1 is that of the model.")
    local_whitening: bool | None = flag(None, "None is True with preprocess='whiten'.")
    text_weight: float = number(1.5, "0 or more", "1.5 was chosen; 0 leaves the names to start and anchor.")

    def _solve(self, points: Points, callback: Callback | None = None) -> Outcome:
        if points.prototypes is not None:
            return self._solve_named(points)
        local = self.preprocess == "whiten" if self.local_whitening is None else self.local_whitening
        whitened = self.preprocess == "whiten" or local
        form = (_UNIFORM_WHITENED if whitened else _UNIFORM) if self.uniform else _WHITENED if whitened else _ESTIMATED
        shown = 1 - points.n_classes / points.codes.shape[1]  # by the support: 0 at one shot
        settings = em.Settings(
            powered=self.preprocess == "none",
            centred=not whitened,
            local_whitening=local,
            n_neighbors=self.n_neighbors,
            gamma=form.gamma + shown * form.support_gamma if self.gamma is None else self.gamma,
            alpha=form.alpha if self.alpha is None else self.alpha,
            temperature=(
                form.temperature + shown * form.support_temperature if self.temperature is None else self.temperature
            ),
            rounds=self.rounds,
            prior=2.0 if self.prior is None and whitened else self.prior,
            share_weight=self.share_weight,
            mean_prior=form.mean_prior,
            pull=form.pull,
            start_weight=form.start_weight,
            support_weight=shown * form.support_weight,
            uniform=self.uniform,
        )
        ran, s = self._run(points, settings, callback), points.codes.shape[1]
        queries = namespace(points.vectors).matrix_transpose(ran.result.shares[:, :, s : s + points.n_query])
        return scored(log_scores(queries, self.tau), ran=ran, anchors=ran.result.means)

    def _solve_named(self, points: Points) -> Outcome:
        """Tasks with class names."""
        usual, shots = names.Settings(), points.codes.shape[1] / points.n_classes
        settings = names.Settings(
            whitening=self.local_whitening is not False,
            n_neighbors=self.n_neighbors,
            gamma=usual.gamma if self.gamma is None else self.gamma,
            alpha=usual.alpha if self.alpha is None else self.alpha,
            temperature=usual.temperature if self.temperature is None else self.temperature,
            rounds=self.rounds,
            prior=usual.prior if self.prior is None else self.prior,
            share_weight=self.share_weight,
            text_weight=names.with_shots(self.text_weight, shots),
            uniform=self.uniform,
        )
        unit = points._replace(vectors=l2(points.vectors), prototypes=l2(points.prototypes))
        result, s = names.run(unit, settings), points.codes.shape[1]
        queries = namespace(points.vectors).matrix_transpose(result.shares[:, :, s : s + points.n_query])
        ran: dict[str, Any] = {"engine": "batched", "reason": names.REASON}
        return scored(log_scores(queries, self.tau), anchors=result.means, **ran)
