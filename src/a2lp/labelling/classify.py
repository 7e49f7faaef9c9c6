"""From a few labels to labels for all points, with a confidence for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from a2lp.checks import RULES, listed, require_name, require_number, shown
from a2lp.errors import InputError, ShapeError
from a2lp.features import FeatureSet
from a2lp.labelling.sources import Progress
from a2lp.pool.confidence import Assessment, Estimate
from a2lp.pool.graph import PoolGraph
from a2lp.pool.methods import METHODS
from a2lp.pool.session import Pool
from a2lp.pool.solve import PoolAnswer

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, repr=False)
class Labelled:
    """Every point with its label.

    Attributes
    ----------
    table : dict of arrays (n,)
        Columns for a data frame, ``pandas.DataFrame(result.table)``: the point's key, then ``label`` (None if it was
        abstained from or rejected), ``confidence`` (the probability that the label is right), ``second`` (the next best
        class), ``margin`` (between the two), ``reached`` (False where no path of the graph leads to a labelled point,
        so that the label is unreliable), ``nearest`` (the key of the closest labelled point), ``given`` (whether the
        label is the caller's own) and ``novelty`` (from 0 to 1: how little the point looks like any of the classes, by
        its rank among the unlabelled ones).
    answer : PoolAnswer
        The predictions.
    assessment : Assessment
        The accuracy to expect with its interval, and given labels that look wrong.
    pool : Pool
        The points with their labels; add labels to it and pass it to ``label`` again.
    """

    table: dict[str, NDArray]
    answer: PoolAnswer
    assessment: Assessment
    pool: Pool

    def __len__(self) -> int:
        return len(self.table["label"])

    def __repr__(self) -> str:
        given = int(self.table["given"].sum())
        return (
            f"Labelled({len(self)} points, {given} of them given: {len(self.classes)} classes; method {self.method!r})"
        )

    @property
    def classes(self) -> NDArray:
        """The classes (c,), sorted."""
        return self.answer.classes

    @property
    def probabilities(self) -> NDArray:
        """Calibrated probabilities (n, c); rows sum to one."""
        return self.assessment.probabilities

    @property
    def key(self) -> str:
        """The name of the first column, which holds the points' keys."""
        return next(iter(self.table))

    @property
    def method(self) -> str:
        """The method that was used."""
        return self.answer.method

    @property
    def unlabelled(self) -> NDArray:
        """Which points have no label (n,): they were abstained from or rejected."""
        return np.array([label is None for label in self.table["label"]], dtype=bool)

    @property
    def kept(self) -> Estimate:
        """The accuracy to expect on the points that a2lp has labelled, without those left unlabelled."""
        return self.assessment.of(~self.unlabelled)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The points one by one, in plain Python values."""
        columns = [column.tolist() for column in self.table.values()]
        for values in zip(*columns, strict=True):
            yield dict(zip(self.table, values, strict=True))

    def with_column(self, name: str, values: Sequence[Any]) -> Labelled:
        """The same with one more column."""
        return replace(self, table=self.table | {name: np.array(values, dtype=object)})


def label(
    embeddings: Any,
    labels: Any,
    *,
    how: Any = "",
    keys: Sequence[Any] | None = None,
    key: str = "key",
    method: str = "auto",
    abstain: float | None = None,
    reject: float | None = None,
    target: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Labelled:
    """Label all points from a few labelled ones.

    Parameters
    ----------
    embeddings : array-like (n, d), PoolGraph or Pool
        One vector for each point, from any network; a data frame's index gives the keys. Or a graph. Or a ``Pool``,
        such as the one of an earlier result, whose graph and settings are used again.
    labels : array-like (n,), mapping or None
        -1, None, NaN or "" where a point has no label; or the labels of some points by key. They replace the labels of
        a ``Pool``; None keeps those.
    how : str or array-like (n,)
        How the labelled points were chosen, as in ``Pool.label``.
    keys : sequence (n,), optional
        Names of the points; their rows, from 0, if not given.
    key : str
        The table's name for the column of these keys.
    method : str
        One of ``a2lp.pool.methods.METHODS``.
    abstain : float, optional
        Points whose confidence is below this stay unlabelled.
    reject : float, optional
        This share of the unlabelled points, those that look least like any of the classes, stay unlabelled.
    target : float, optional
        As many points are labelled as this accuracy is expected of, the most confident ones; the others stay
        unlabelled. Instead of ``abstain``.
    seed : int
        Of everything random.
    progress : callable, optional
        Called with the step, the amount done, and the total.

    Examples
    --------
    >>> import a2lp
    >>> digits = a2lp.load("digits")
    >>> result = a2lp.label(digits.features, dict(enumerate(digits.labels[:30])))
    >>> list(result.table)
    ['index', 'label', 'confidence', 'second', 'margin', 'reached', 'nearest', 'given', 'novelty']
    """
    check_options(method, abstain, reject, target)
    x, names, column = _points(embeddings, keys, key)
    labels = _given(labels, names)
    if isinstance(x, Pool):
        pool = x
    else:
        report = None if progress is None else partial(progress, "finding neighbours")
        pool = Pool(x, method=method, seed=seed, progress=report)
    if labels is not None:
        pool.label(slice(None), labels, how)
    if len(pool.answer.classes) < 2:
        raise InputError(
            f"labels has only the class {shown(pool.answer.classes[0])}; a choice needs two. Label a point of another "
            "class."
        )
    table = {column: names} | _columns(pool, names)
    kept = table["confidence"] >= (abstain or 0)
    kept &= ~_rejected(table["novelty"], pool.given, reject or 0)
    if target is not None:
        kept &= pool.given | pool.assessment.reaching(target, kept)
    table["label"][~kept] = None
    return Labelled(table, pool.answer, pool.assessment, pool)


def check_options(
    method: str = "auto", abstain: float | None = None, reject: float | None = None, target: float | None = None
) -> None:
    """Refuse at the start what would be refused later."""
    require_name("method", method, METHODS)
    if target is not None:
        rule = "above 0 and at most 1"
        require_number("target", target, rule, RULES[rule], "0.98 labels what is right in 98 of 100 cases.")
        if abstain is not None:
            raise InputError(
                f"target={target} chooses the confidence below which points stay unlabelled, and abstain={abstain} "
                "sets it. Give one of them."
            )
    if abstain is not None:
        require_number("abstain", abstain, "from 0 to 1", RULES["from 0 to 1"], "0.8 leaves out what is doubtful.")
    if reject is not None:
        rule = "at least 0 and below 1"
        require_number("reject", reject, rule, RULES[rule], "0.1 leaves out the tenth that looks least like any class.")


def _points(embeddings: Any, keys: Sequence[Any] | None, key: str) -> tuple[Any, NDArray, str]:
    """The vectors, graph or pool, the keys, and the name of the keys' column."""
    column = "index" if keys is None else key
    if keys is None and hasattr(embeddings, "iloc"):  # a data frame
        keys = embeddings.index.tolist()
        column = str(embeddings.index.name or column)
    if hasattr(embeddings, "tocsr"):
        raise InputError(
            f"embeddings is a sparse matrix of shape {embeddings.shape}. If its rows are vectors, pass its toarray(); "
            "if they are affinities between points, pass a2lp.pool.graph.from_sparse of it."
        )
    x = embeddings if isinstance(embeddings, PoolGraph | Pool) else FeatureSet(embeddings).features
    n = x.n if isinstance(x, PoolGraph) else len(x)
    names = np.arange(n) if keys is None else np.array([*keys, None], dtype=object)[:-1]
    if len(names) != n:
        raise ShapeError(f"keys has {len(names)} names and embeddings has {n} rows; give one name for each row.")
    return x, names, column


def _given(labels: Any, names: NDArray) -> Any:
    """Labels of all points, from labels of all or from a mapping of some."""
    if not isinstance(labels, Mapping):
        return labels
    row_of = {name: row for row, name in enumerate(names.tolist())}
    unknown = [name for name in labels if name not in row_of]
    if unknown:
        raise InputError(
            f"labels names {len(unknown)} points that embeddings does not have: {listed(unknown, 5)}. Use its keys, "
            f"such as {shown(names[0])}."
        )
    given = np.full(len(names), None, dtype=object)
    for name, value in labels.items():
        given[row_of[name]] = value
    return given


def _columns(pool: Pool, names: NDArray) -> dict[str, NDArray]:
    answer, probabilities = pool.answer, pool.assessment.probabilities
    rows = np.arange(len(probabilities))
    first = np.searchsorted(answer.classes, answer.labels)
    confidence = probabilities[rows, first]
    others = probabilities.copy()
    others[rows, first] = -1
    second = others.argmax(axis=1)
    nearest = names.astype(object)[answer.nearest]
    nearest[answer.nearest < 0] = None
    return {
        "label": answer.labels.astype(object),
        "confidence": confidence,
        "second": answer.classes[second].astype(object),
        "margin": confidence - probabilities[rows, second],
        "reached": answer.reached,
        "nearest": nearest,
        "given": answer.given,
        "novelty": pool.novelty,
    }


def _rejected(scores: NDArray, given: NDArray, share: float) -> NDArray:
    """The points of highest novelty (n,), as large a share of the unlabelled ones as this."""
    rejected = np.zeros(len(scores), dtype=bool)
    count = round(share * int((~given).sum()))
    rejected[np.argsort(-scores, kind="stable")[:count]] = True
    return rejected
