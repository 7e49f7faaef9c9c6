"""Which points to label next: those that represent most of the points that still need a label.

Each unlabelled point i has a need: 1 while there is hardly more than one label per class, then (1 - margin) ** p, where
the margin is between the two most likely classes, and p grows with the labels per class b as 0.15 (b - 1), up to 1. The
similarity of two points is K = I + 0.8 S + 0.64 S², scaled to a diagonal of 1: paths of up to two edges of the graph. A
set of labelled points covers i by the largest K between them and i. Suggestions are chosen greedily: each is the point
that adds most to the sum of need times cover (facility location). Need brings in uncertainty, the sum over neighbours
density, and the cover diversity: a point near a label or an earlier suggestion adds little. Without labels all needs
are 1, and the typical points of clusters come first. Names of classes give an answer without labels.

Chosen on CUB ResNet-12 val and CLIP DTD val, following suggestions ten at a time with the method ``auto``. Tried
without gain: margins from the first label on (points of classes without a label look certain), clusters by k-means, K
from paths of any length, cosines in place of K. ``benchmarks/suggest.py`` compares suggested with random labels on
other pools; docs/suggest.md shows the result.

**Audits.** A share of the suggestions can be points drawn at random from all that are unlabelled, at random places
among the others: the only labels that are a fair sample whatever the model believes. They are drawn first, and the
others are chosen beside them. Without labels and names there are none, since there is no answer to check.

**The forecast.** Two things raise the accuracy on unlabelled points: classes that had no label, and fewer errors
between those that had one. The share u of points of unknown classes falls to u exp(-m / 20) after m suggestions, and to
u exp(-m / 60) where the labels so far were suggested as well: classes that these missed are harder to find. Errors
among the known classes fall with the power -0.08 of the labels, where labels that were not suggested count a tenth:
suggestions are worth about ten of them. And the suggested points, which are wrong more often than others, are no longer
counted. Without any label there is no forecast.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from a2lp.checks import RULES, counted, require_number, require_whole
from a2lp.errors import InputError
from a2lp.pool.calibrate import need_power
from a2lp.pool.confidence import Assessment
from a2lp.pool.kinship import Kinship
from a2lp.pool.neighbours import NdArray
from a2lp.pool.rows import by_rows
from a2lp.pool.solve import PoolAnswer

_TIED = 0.01  # gains that differ by less than this share are tied, and the seed decides
_FOUND = 20  # suggestions after which 1 / e of the points of unknown classes is left
_FOUND_LATER = 60  # likewise, after labels that were suggested
_LEARNING = 0.08  # errors fall with this power of the suggested labels
_WORTH = 0.1  # of a suggested label, for any other
_BATCH = 8192  # points whose gains are computed together, those of the largest bounds first
_CLOSE = 0.5  # margin below which a suggestion is described as lying between two classes


@dataclass(frozen=True, eq=False, repr=False)
class Suggestion:
    """Points to label next.

    Attributes
    ----------
    rows : array (m,)
        The points, the most valuable first, with audits anywhere between them.
    how : tuple of str
        How each was chosen: "suggested", or "audit" for those drawn at random. ``Pool.label`` takes it.
    why : tuple of str
        What each of them stands for.
    gains : array (m,)
        How much each adds to the covered need, after those before it; 0 for audits.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from a2lp import Pool
    >>> x, y = load_digits(return_X_y=True)
    >>> pool = Pool(x[:300])
    >>> found = pool.suggest(5)
    >>> pool.label(found.rows, y[found.rows], found.how)
    >>> pool.given.sum().item()
    5
    """

    rows: NdArray
    how: tuple[str, ...]
    why: tuple[str, ...]
    gains: NdArray
    _forecast: Callable[[NdArray], float] | None = field(default=None, repr=False)

    @cached_property
    def expected(self) -> float | None:
        """By how much the accuracy on unlabelled points should rise when all of them are labelled, as a share.

        None without labels, also where there are names. It is computed when it is asked for, since it needs the
        assessment of the answer.
        """
        return None if self._forecast is None else self._forecast(self.rows)

    def __repr__(self) -> str:
        first = ", ".join(map(str, self.rows[:3])) + (", ..." if len(self.rows) > 3 else "")
        return f"Suggestion({len(self.rows)} points: rows {first})"


def suggest(
    near: Kinship,
    given: NdArray,
    answer: PoolAnswer | None,
    n: int = 20,
    *,
    audits: float = 0.0,
    forecast: Callable[[NdArray], float] | None = None,
    seed: int = 0,
) -> Suggestion:
    """Choose the points to label next.

    Parameters
    ----------
    near : Kinship
    given : array (n,)
        Which points are labelled.
    answer : PoolAnswer, optional
        The predictions from these labels, or from names; None without both.
    n : int
        How many points; fewer if not so many are unlabelled.
    audits : float
        The share of them that is drawn at random, unless there is no answer.
    forecast : callable, optional
        Gives the gain to expect from labels on some rows, as ``expected_gain``.
    seed : int
        Decides between points of equal gain, and draws the audits.
    """
    check_amounts(n, audits)
    if given.all():
        raise InputError(f"all {len(given)} points are labelled, so there is nothing to suggest. Add points.")
    rng = np.random.default_rng([seed, int(given.sum())])  # others after each turn
    drawn = np.zeros(0, np.int64) if answer is None else _audits(given, n, audits, rng)
    need = _needs(answer) if answer is not None else np.ones(len(given))
    covered = given.copy()
    covered[drawn] = True
    chosen, gains = _choose(near, need, covered, n - len(drawn), np.random.default_rng(seed))
    why = (*_reasons(near, chosen, covered, answer), *["drawn at random, to check the accuracy"] * len(drawn))
    how = ["suggested"] * len(chosen) + ["audit"] * len(drawn)
    rows, gains = np.append(chosen, drawn), np.append(gains, np.zeros(len(drawn)))
    # each audit gets a random place between the others, which keep their order
    order = np.argsort(np.append(np.arange(len(chosen)), rng.random(len(drawn)) * len(chosen) - 0.5), kind="stable")
    return Suggestion(rows[order], tuple(how[i] for i in order), tuple(why[i] for i in order), gains[order], forecast)


def check_amounts(n: int, audits: float) -> None:
    """Refuse impossible numbers of suggestions."""
    require_whole("n", n, 1, "Ask for 20, say.")
    rule = "from 0 to 1"
    require_number("audits", audits, rule, RULES[rule], "0.1 draws every tenth point at random.")


def _audits(given: NdArray, n: int, share: float, rng: np.random.Generator) -> NdArray:
    """Unlabelled points drawn at random: a share of n, rounded at random so that small n have their share too."""
    unlabelled = np.flatnonzero(~given)
    count = int(min(n, len(unlabelled)) * share + rng.random())
    return rng.choice(unlabelled, count, replace=False)


def expected_gain(answer: PoolAnswer, worth: Assessment, how: NdArray, rows: NdArray) -> float:
    """The share by which the accuracy on unlabelled points should rise when ``rows`` are labelled."""
    new, m = ~answer.given, len(rows)
    confidence = worth.probabilities.max(axis=1)
    named = 1 - worth.unseen
    right = worth.accuracy / named if named else 0.0  # among points of known classes
    suggested = (how[answer.given] == "suggested").mean()
    labels = int(answer.given.sum()) * float(suggested + _WORTH * (1 - suggested))
    found = worth.unseen * (1 - np.exp(-m * (suggested / _FOUND_LATER + (1 - suggested) / _FOUND))) * right
    fewer_errors = named * (1 - right) * (1 - (labels / (labels + m)) ** _LEARNING)
    left_out = m * (worth.accuracy - float(confidence[rows].mean())) / int(new.sum())
    return float(np.clip(found + fewer_errors + left_out, 0, 1 - worth.accuracy))


def _needs(answer: PoolAnswer) -> NdArray:
    """How much each point needs a label (n,)."""
    p = answer.probabilities
    return np.where(answer.given, 0, (1 - _margins(p)) ** need_power(answer.task.labels_per_class))


def _margins(p: NdArray) -> NdArray:
    if p.shape[1] == 1:  # one class is known, and nothing about the others
        return np.zeros(len(p))

    def margin(part: slice) -> NdArray:
        top = np.partition(p[part], -2, axis=1).astype(np.float64)
        return np.clip(top[:, -1] - top[:, -2], 0, 1)

    found: NdArray = by_rows(margin, np.empty(len(p)))
    return found


def _choose(near: Kinship, need: NdArray, given: NdArray, n: int, rng: np.random.Generator) -> tuple[NdArray, NdArray]:
    """The points (m,) that add most, one after the other, and how much they add (m,)."""
    covered = np.zeros(len(need))
    for row in np.flatnonzero(given).tolist():
        columns, values = near.row(row)
        covered[columns] = np.maximum(covered[columns], values)
    tied = 1 + _TIED * rng.random(len(need))
    bounds = near.bounds(need, covered) * tied
    waiting = np.argsort(-bounds, kind="stable")
    waiting = waiting[~given[waiting]]
    heap: list[tuple[float, int]] = []
    entered = 0
    rows: list[int] = []
    gains: list[float] = []
    while len(rows) < min(n, len(waiting)):
        while entered < len(waiting) and (not heap or bounds[waiting[entered]] >= -heap[0][0]):
            batch = waiting[entered : entered + _BATCH]
            for row, gain in zip(
                batch.tolist(), (near.gains(batch, need, covered) * tied[batch]).tolist(), strict=True
            ):
                heapq.heappush(heap, (-gain, row))
            entered += len(batch)
        _, row = heap[0]
        columns, values = near.row(row)
        gain = float(need[columns] @ np.maximum(values - covered[columns], 0))
        # gains only shrink, so one that stays on top of the others' old ones is the largest
        heapq.heapreplace(heap, (-gain * tied[row], row))
        after = bounds[waiting[entered]] if entered < len(waiting) else -1.0
        if heap[0][1] == row and gain * tied[row] >= after:
            heapq.heappop(heap)
            rows.append(row)
            gains.append(gain)
            covered[columns] = np.maximum(covered[columns], values)
    return np.array(rows, dtype=np.int64), np.array(gains)


def _reasons(near: Kinship, rows: NdArray, given: NdArray, answer: PoolAnswer | None) -> tuple[str, ...]:
    """What each suggestion stands for: how many unlabelled points are nearest to it, and their likely class."""
    covered = np.zeros(len(given))
    closest = np.full(len(given), -1)
    for row in [*np.flatnonzero(given).tolist(), *rows.tolist()]:
        columns, values = near.row(row)
        closer = values > covered[columns]
        covered[columns[closer]] = values[closer]
        closest[columns[closer]] = row
    counts = np.bincount(closest[~given & (closest >= 0)], minlength=len(given)) - 1  # without the point itself
    margins = None if answer is None else _margins(answer.probabilities[rows])
    reasons = []
    for place, row in enumerate(rows.tolist()):
        reason = f"typical of {counted(counts[row], 'point')} near it" if counts[row] > 0 else "apart from all others"
        if answer is not None and margins is not None:
            reason += f", {_doubt(answer, row, float(margins[place]))}"
        reasons.append(reason)
    return tuple(reasons)


def _doubt(answer: PoolAnswer, row: int, margin: float) -> str:
    first = answer.labels[row]
    if not answer.given.any() and margin >= _CLOSE:
        return f"perhaps {first}"
    if len(answer.classes) == 1 or margin >= _CLOSE:
        return f"far from the labels; perhaps {first}"
    others = np.where(answer.classes == first, -1, answer.probabilities[row])
    return f"between {first} and {answer.classes[others.argmax()]}"
