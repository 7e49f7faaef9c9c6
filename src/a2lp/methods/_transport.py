"""The common part of PT-MAP, EASE and protoLP: class centres in turn with a balanced transport plan."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from a2lp.arrays import Array, namespace
from a2lp.checks import choice, number, whole
from a2lp.methods._maths import distances_to_sums, log_scores, transport
from a2lp.methods.base import Method, Outcome, Points, scored
from a2lp.preprocess import POWERS, rooted, unit_gram


@dataclass(frozen=True, kw_only=True)
class TransportMethod(Method):
    """A method that assigns equally many queries to every class.

    All steps work on inner products of the points: centres are weighted sums of points.

    Parameters
    ----------
    power : {"clamp", "sign", "none"}
        Square roots of the entries, where negative ones become zero or keep their sign, or no roots. Only used with
        ``preprocess="none"``, the default: this is the method's own preprocessing.
    lam : float
        How strongly transport prefers the nearest centres.
    rate : float
        How far centres move in a step towards the means under the current labels.
    steps : int
        Rounds of transport and update.
    """

    assumes_uniform: ClassVar[bool] = True
    _tolerance: ClassVar[float] = 1e-3  # of the plan

    preprocess: str = "none"
    power: str = choice("clamp", POWERS)
    lam: float = number(10.0, "positive", "The authors use 10.")
    rate: float = number(0.2, "above 0 and at most 1", "The authors use 0.2.")
    steps: int = whole(20, 0, "0 transports once to the support's means.")

    def _solve(self, points: Points) -> Outcome:
        xp = namespace(points.vectors)
        x = rooted(points.vectors, self.power) if self.preprocess == "none" else points.vectors
        gram = self._prepared(unit_gram(x @ xp.matrix_transpose(x)), points)  # (b, n, n)
        labels = xp.matrix_transpose(points.labels)  # (b, c, s)
        centres = self._first_centres(points.memberships, gram)  # weights of the points (b, c, n)
        plan = self._plan(gram, centres, labels)  # (b, c, m)
        for _ in range(self.steps):
            centres = centres + self.rate * (self._means(labels, plan) - centres)
            plan = self._plan(gram, centres, labels)
        scores = log_scores(xp.matrix_transpose(plan)[:, : points.n_query, :], self.tau)
        return scored(scores, steps=self.steps)

    @abstractmethod
    def _prepared(self, gram: Array, points: Points) -> Array:
        """Inner products of the points as the method takes them, from those of unit points."""

    def _first_centres(self, memberships: Array, gram: Array) -> Array:
        return memberships / namespace(gram).sum(memberships, axis=-1, keepdims=True)

    def _means(self, labels: Array, plan: Array) -> Array:
        """Weights of all points (b, c, n) in the class means under the plan."""
        xp = namespace(plan)
        mass = xp.concat([labels, plan], axis=-1)
        return mass / xp.sum(mass, axis=-1, keepdims=True)

    def _plan(self, gram: Array, centres: Array, labels: Array) -> Array:
        """The share of each unlabelled point in each class (b, c, m)."""
        energies = self.lam * distances_to_sums(gram, centres)[:, :, labels.shape[-1] :]
        return self._transport(energies, namespace(gram).sum(labels, axis=-1))

    def _transport(self, energies: Array, counts: Array) -> Array:
        """The plan for these energies, with the classes' counts in the support (b, c)."""
        _, c, m = energies.shape
        return transport(energies, namespace(energies).full_like(counts, m / c), self._tolerance)
