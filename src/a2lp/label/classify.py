"""From a few labels to all of them, with what is known of their worth: one row for each point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from a2lp.checks import listed
from a2lp.encoding import encode_labels
from a2lp.errors import InputError, ShapeError, UnknownNameError
from a2lp.features import FeatureSet
from a2lp.label.sources import Progress
from a2lp.pool.confidence import Assessment, assess
from a2lp.pool.graph import PoolGraph
from a2lp.pool.methods import METHODS
from a2lp.pool.open_set import novelty
from a2lp.pool.solve import PoolAnswer, solve

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, repr=False)
class Labelled:
    """Every point with its label.

    Attributes
    ----------
    table : dict of arrays (n,)
        Columns for a data frame, ``pandas.DataFrame(result.table)``: the point's key, then ``label`` (None where it
        was abstained from or rejected), ``confidence`` (the chance that the label is right), ``second`` (the next best
        class), ``margin`` (between the two), ``reached`` (False where no path of the graph leads to a labelled point,
        so that the label is not worth much), ``nearest`` (the key of the closest labelled point), ``given`` (whether
        the label is the caller's own) and ``novelty`` (from 0 to 1: how much the point looks like none of the classes,
        by its rank among the unlabelled ones).
    classes : array (c,)
        The classes, sorted.
    probabilities : array (n, c)
        Calibrated; rows sum to one.
    assessment : Assessment
        The accuracy to expect with its interval, and given labels that look wrong.
    answer : PoolAnswer
        The solver's answer; give it as ``start`` when labels are added, and the next is quick.
    """

    table: dict[str, NDArray]
    classes: NDArray
    probabilities: NDArray
    assessment: Assessment
    answer: PoolAnswer

    def __len__(self) -> int:
        return len(self.table["label"])

    def __repr__(self) -> str:
        given = int(self.table["given"].sum())
        return (
            f"Labelled({len(self)} points, {given} of them given: {len(self.classes)} classes; method {self.method!r})"
        )

    @property
    def key(self) -> str:
        """The name of the first column, which holds the points' keys."""
        return next(iter(self.table))

    @property
    def method(self) -> str:
        """The method that was used."""
        return str(self.answer.method)

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
    keys: Sequence[Any] | None = None,
    key: str = "key",
    method: str = "auto",
    abstain: float | None = None,
    reject: float | None = None,
    seed: int = 0,
    start: PoolAnswer | None = None,
    progress: Progress | None = None,
) -> Labelled:
    """Label all points from a few labelled ones.

    Parameters
    ----------
    embeddings : array-like (n, d)
        One vector for each point, from any network; a data frame's index gives the keys. Or a ``PoolGraph``.
    labels : array-like (n,) or mapping
        -1, None, NaN or "" where a point has no label; or the labels of some points by key.
    keys : sequence (n,), optional
        What the points are called; their rows, from 0, if not given.
    key : str
        What the table calls the column of these keys.
    method : str
        One of ``a2lp.pool.methods.METHODS``; ``"auto"`` chooses by the number of points and labels.
    abstain : float, optional
        Points whose confidence is below this stay unlabelled.
    reject : float, optional
        This share of the unlabelled points, those that look least like any of the classes, stay unlabelled.
    seed : int
        Of everything that is random.
    start : PoolAnswer, optional
        The answer for the same points and fewer labels.
    progress : callable, optional
        Told what is done, how much of it, and of how much.

    Examples
    --------
    >>> import a2lp
    >>> from a2lp.features import load
    >>> digits = load("digits")
    >>> result = a2lp.label(digits.features, dict(enumerate(digits.labels[:30])))
    >>> list(result.table)
    ['index', 'label', 'confidence', 'second', 'margin', 'reached', 'nearest', 'given', 'novelty']
    """
    check_options(method, abstain, reject)
    x, names, column = _points(embeddings, keys, key)
    given = _given(labels, names)
    classes, _ = encode_labels(given, names)
    if len(classes) < 2:
        raise InputError(
            f"labels has only the class {classes[0]!r}; a choice needs two. Label a point of another class."
        )
    told = None if progress is None else partial(progress, "finding neighbours")
    answer = solve(x, given, method=method, seed=seed, start=start, progress=told)
    assessment = assess(answer, seed=seed)
    table = {column: names} | _columns(answer, assessment.probabilities, names)
    confident = table["confidence"] >= (abstain or 0)
    table["label"][~confident | _rejected(table["novelty"], answer.given, reject or 0)] = None
    return Labelled(table, answer.classes, assessment.probabilities, assessment, answer)


def check_options(method: str = "auto", abstain: float | None = None, reject: float | None = None) -> None:
    """Refuse at the start what would be refused later."""
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    if abstain is not None and not 0 <= abstain <= 1:
        raise InputError(f"abstain={abstain} must be a probability, from 0 to 1. 0.8 leaves out what is doubtful.")
    if reject is not None and not 0 <= reject < 1:
        raise InputError(f"reject={reject} must be a share, from 0 to below 1. 0.1 leaves out the strangest tenth.")


def _points(embeddings: Any, keys: Sequence[Any] | None, key: str) -> tuple[Any, NDArray, str]:
    """The vectors or the graph, the keys, and the name of the keys' column."""
    column = "index" if keys is None else key
    if keys is None and hasattr(embeddings, "iloc"):  # a data frame
        keys = embeddings.index.tolist()
        column = str(embeddings.index.name or column)
    if hasattr(embeddings, "tocsr"):
        raise InputError(
            f"embeddings is a sparse matrix of shape {embeddings.shape}. If its rows are vectors, pass its toarray(); "
            "if they are affinities between points, pass a2lp.pool.graph.from_sparse of it."
        )
    x = embeddings if isinstance(embeddings, PoolGraph) else FeatureSet(embeddings).features
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
    unknown = [str(name) for name in labels if name not in row_of]
    if unknown:
        raise InputError(
            f"labels names {len(unknown)} points that embeddings does not have: {listed(unknown, 5)}. Use its keys, "
            f"such as {names[0]!r}."
        )
    given = np.full(len(names), None, dtype=object)
    for name, value in labels.items():
        given[row_of[name]] = value
    return given


def _columns(answer: PoolAnswer, probabilities: NDArray, names: NDArray) -> dict[str, NDArray]:
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
        "novelty": novelty(answer),
    }


def _rejected(scores: NDArray, given: NDArray, share: float) -> NDArray:
    """The strangest points (n,), as large a share of the unlabelled ones as this."""
    rejected = np.zeros(len(scores), dtype=bool)
    count = round(share * int((~given).sum()))
    rejected[np.argsort(-scores, kind="stable")[:count]] = True
    return rejected
