"""From a few labels to labels for all points, with a confidence for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.checks import RULES, require_name, require_number, require_whole, shown
from a2lp.errors import InputError
from a2lp.labelling.inputs import read_inputs
from a2lp.labelling.labelled import Labelled
from a2lp.labelling.sources import Embedding, Progress
from a2lp.pool.methods import METHODS
from a2lp.pool.rows import by_rows
from a2lp.pool.session import Pool
from a2lp.scale import Cluster

NDArray = np.ndarray[Any, Any]


def label(
    embeddings: Any,
    labels: Any = None,
    *,
    classes: Any = None,
    prototypes: Any = None,
    how: Any = "",
    keys: Sequence[Any] | None = None,
    key: str = "key",
    method: str = "auto",
    abstain: float | None = None,
    reject: float | None = None,
    target: float | None = None,
    embedding: Embedding | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    folder: str | Path | None = None,
    memory_limit: int | None = None,
    device: str = "auto",
    cluster: Cluster | None = None,
) -> Labelled:
    """Predict the labels of all points from a few labelled ones, from the names of the classes, or from both.

    Parameters
    ----------
    embeddings : array-like (n, d), str or Path, PoolGraph or Pool
        One vector for each point, from any network; a data frame's index gives the keys. Or a folder of images, or a
        feature file. Or a graph. Or a ``Pool``, such as the one of an earlier result, whose graph and settings are used
        again.
    labels : array-like (n,), mapping, Series, str, Path or None
        -1, None, NaN or "" where a point has no label; or the labels of some points by key, in a mapping or a pandas
        Series; or a file or folder of labels, or several, as ``a2lp classify`` reads them. They replace the labels of a
        ``Pool``; None keeps those. Optional with ``classes``.
    classes : sequence of str, str or Path, optional
        The names of the classes, or a text file with one name per line. A feature file may contain them.
    prototypes : array-like (c, d), str or Path, optional
        One vector for each name, by the text encoder that belongs to the encoder of the points, or a file of them; for
        images, a backbone with a text encoder makes them.
    how : str or array-like (n,)
        How the labelled points were chosen, as in ``Pool.label``; files of labels have a column for it.
    keys : sequence (n,), optional
        Names of the points; by default their row numbers, from 0.
    key : str
        Name of the column of keys in the table.
    method : str
        One of ``a2lp.pool.methods.METHODS``.
    abstain : float, optional
        Points with a lower confidence stay unlabelled.
    reject : float, optional
        The share of points, those least like any of the classes, that stay unlabelled.
    target : float, optional
        The expected accuracy to reach: the most confident points are labelled, as many as it allows, and the others
        stay unlabelled. Instead of ``abstain``.
    embedding : Embedding, optional
        How images become vectors.
    seed : int
        Seed of all random choices.
    progress : callable, optional
        Called with the step, the amount done, and the total. For 100,000 points or more, the step says about how much
        memory and time they will take.
    folder, memory_limit : optional
        For large sets of points, as in ``Pool``: a folder for intermediate results, so that an interrupted run
        continues, and a limit in bytes.
    device : str
        Where points are compared and labels spread, as in ``Pool``, and where images are embedded if there is no
        ``embedding``.
    cluster : Cluster, optional
        Finds the neighbours of large sets of points on its workers, as in ``Pool``.

    Returns
    -------
    Labelled
        The label and confidence of every point, and the accuracy to expect.

    See Also
    --------
    a2lp.suggest : Which points to label next.
    a2lp.Pool : Labels that come one by one.

    Examples
    --------
    >>> import a2lp
    >>> digits = a2lp.load("digits")
    >>> result = a2lp.label(digits.features, dict(enumerate(digits.labels[:30])))
    >>> result
    Labelled(1797 points, 30 of them given: 10 classes; method 'auto')
    >>> result.labels[:5]
    array([0, 1, 2, 3, 4], dtype=object)
    >>> list(result[100])
    ['index', 'label', 'confidence', 'second', 'margin', 'reached', 'nearest', 'given', 'how', 'novelty']
    """
    check_options(method, abstain, reject, target, seed)
    named = {"classes": classes, "prototypes": prototypes}
    given = read_inputs(embeddings, labels, keys, key, embedding or Embedding(device=device), progress, how, **named)
    where = {"folder": folder, "memory_limit": memory_limit, "device": device, "cluster": cluster}
    pool = given.pool(method, seed, progress, **where)
    if len(pool.answer.classes) < 2:
        raise InputError(
            f"labels has only the class {shown(pool.answer.classes[0])}; a choice needs two. Label a point of another "
            "class."
        )
    table = {given.column: given.names} | _columns(pool, given.names)
    kept = table["confidence"] >= (abstain or 0)
    kept &= ~_rejected(table["novelty"], pool.given, reject or 0)
    if target is not None:
        kept &= pool.given | pool.assessment.reaching(target, kept)
    table["label"][~kept] = None
    return Labelled(table, pool.answer, pool.assessment, pool, given.paths, given.source)


def check_options(
    method: str = "auto",
    abstain: float | None = None,
    reject: float | None = None,
    target: float | None = None,
    seed: int = 0,
) -> None:
    """Refuse at the start what would be refused later."""
    require_whole("seed", seed, 0, "Leave it out, or take 0.")
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


def _columns(pool: Pool, names: NDArray) -> dict[str, NDArray]:
    answer, probabilities = pool.answer, pool.assessment.probabilities
    rows = np.arange(len(probabilities))
    first = np.searchsorted(answer.classes, answer.labels)
    confidence = probabilities[rows, first]

    def second_best(part: slice) -> NDArray:
        others = probabilities[part].copy()
        others[np.arange(len(others)), first[part]] = -1
        return np.asarray(others.argmax(axis=1))

    second = by_rows(second_best, np.empty(len(rows), np.int64))
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
        "how": pool.how,
        "novelty": pool.novelty,
    }


def _rejected(scores: NDArray, given: NDArray, share: float) -> NDArray:
    """The points of highest novelty (n,), as large a share of the unlabelled ones as this."""
    rejected = np.zeros(len(scores), dtype=bool)
    if count := round(share * int((~given).sum())):
        rejected[np.argsort(-scores, kind="stable")[:count]] = True
    return rejected
