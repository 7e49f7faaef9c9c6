"""A pool that takes labels one by one, in bulk, and back, and answers from what it knows already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from a2lp.arrays import to_numpy
from a2lp.checks import listed, require_name
from a2lp.encoding import encode_labels, read_labels
from a2lp.errors import InputError, ShapeError
from a2lp.pool.changing import ChangingPoints
from a2lp.pool.confidence import Assessment, assess
from a2lp.pool.device import choose, copied
from a2lp.pool.graph import PoolGraph
from a2lp.pool.kinship import Kinship
from a2lp.pool.memory import Memory
from a2lp.pool.methods import METHODS, Task, go_on, has_fitted_weights
from a2lp.pool.names import Names, check_names, encode_among, name_points
from a2lp.pool.neighbours import NdArray, Progress, check_points
from a2lp.pool.open_set import novelty
from a2lp.pool.prepare import whitened_graph
from a2lp.pool.solve import PoolAnswer, solve
from a2lp.pool.suggest import Suggestion, expected_gain, suggest
from a2lp.pool.unseen import HOW
from a2lp.pool.whiten import Whitening
from a2lp.scale import Cluster

if TYPE_CHECKING:
    from a2lp.pool.display import Display

_REFIT = 0.05  # share of labels that may have changed since the weights of auto were chosen

_REMEMBER = 5_000  # points up to which every answer is computed from nothing, and depends on nothing before it


class Pool(ChangingPoints):
    """Points of which some are labelled, and predictions for all of them.

    Whitening and graph are computed once, from the points. Everything else is computed when it is asked for, and again
    after a label has changed.

    Parameters
    ----------
    x : array (n, d) or PoolGraph
        Vectors of any length, or a graph of your own.
    labels : array-like (n,), optional
        Strings or whole numbers; -1, None, NaN and "" mean unlabelled.
    how : str or array-like (n,)
        How the labelled points were chosen, as in ``label``.
    classes : sequence (c,), optional
        The classes, where their names are known; labels are then optional, and must be among these.
    prototypes : array (c, d), optional
        The vector of each name, by the text encoder that belongs to the encoder of the points.
    method : str
        One of ``a2lp.pool.methods.METHODS``.
    seed : int
        Of the folds in which labels are held out, and of ties between suggestions.
    progress : callable, optional
        Called with the work done in the search for neighbours, and the total.
    folder : str or Path, optional
        Where whitened points, neighbours and graph are kept. A pool of the same points is made from these files, and a
        run that was ended goes on from them.
    memory_limit : int, optional
        Bytes; a pool that will need more (``a2lp.pool.forecast``) is refused before anything is computed.

    device : str
        Where points are compared and labels spread: "cpu", a GPU ("cuda", "cuda:1"), or "auto", which takes a GPU where
        torch sees one, for pools of 20,000 points or more that fit on it. Class names are for the CPU, and so are the
        methods a2lp and knn.
    cluster : Cluster, optional
        Finds the neighbours of more than 20,000 points on its workers, which must see ``folder`` under the same name.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from a2lp import Pool
    >>> x, y = load_digits(return_X_y=True)
    >>> pool = Pool(x)
    >>> for row in pool.suggest(30).rows:
    ...     pool.label(row, y[row])
    >>> bool((pool.answer.labels == y).mean() > 0.9)
    True
    >>> pool.undo()
    >>> pool
    Pool(1797 points, 29 labelled: 10 classes)
    """

    def __init__(
        self,
        x: Any,
        labels: Any = None,
        *,
        how: Any = "",
        classes: Any = None,
        prototypes: Any = None,
        method: str = "auto",
        seed: int = 0,
        progress: Progress | None = None,
        folder: str | Path | None = None,
        memory_limit: int | None = None,
        device: str = "auto",
        cluster: Cluster | None = None,
    ) -> None:
        require_name("method", method, METHODS)
        self.method, self.seed = method, seed
        self.check: Callable[[], None] = go_on  # called between the steps of an answer; may raise to end it
        self.patient = False  # whether answers keep fitted weights of auto until refit, which takes longer than they do
        self.whitening: Whitening | None = None
        self.device: Any = None
        self._points: Any = None
        self.names: Names | None = None
        named = classes is not None or prototypes is not None
        if isinstance(x, PoolGraph):
            if named:
                raise InputError("class names are compared with points, and only a graph was given. Pass vectors.")
            self.graph = x
        else:
            found = check_names(classes, prototypes, check_points(x).shape[1]) if named else None
            self.device = choose("cpu" if cluster is not None and device == "auto" else device, check_points(x).shape)
            where = {"device": self.device, "cluster": cluster}
            made = whitened_graph(x, progress, folder, memory_limit, named=named, **where)
            self.whitening, self._points, self.graph = made
            if named:
                self._points = to_numpy(self._points)
            self.names = None if found is None else name_points(x, self.whitening, *found)
        self._given: dict[int, tuple[Any, str]] = {}  # label and how it was chosen, by row
        self._history: list[dict[int, tuple[Any, str] | None]] = []
        self._weights: NdArray | None = None
        self._fitted = np.zeros(0, np.int64), np.zeros(0, np.int64)  # classes and codes that the weights are of
        self._from_nothing = False  # whether the answer depends on nothing before it
        self._memory, self._memory_of = self._remember(), np.zeros(0, np.int64)  # and the classes that it is of
        if labels is not None:
            self.label(slice(None), labels, how)
            self._history.clear()

    def __repr__(self) -> str:
        classes = len({label for label, _ in self._given.values()})
        named = "" if self.names is None else f", {len(self.names.classes)} named"
        return f"Pool({len(self)} points, {len(self._given)} labelled: {classes} classes{named})"

    @property
    def points(self) -> NdArray | None:
        """The whitened points (n, r); None where only a graph is known."""
        return None if self._points is None else to_numpy(self._points)

    @points.setter
    def points(self, points: NdArray | None) -> None:
        self._points = points
        if points is not None and self.device is not None:
            self._points = copied(points, self.device)

    @property
    def labels(self) -> NdArray:
        """The given labels (n,), None where there is none."""
        labels = np.full(len(self), None, dtype=object)
        for row, (label, _) in self._given.items():
            labels[row] = label
        return labels

    @property
    def how(self) -> NdArray:
        """How each label was chosen (n,), one of ``HOW``; "" where there is none."""
        how = np.full(len(self), "", dtype=object)
        for row, (_, one) in self._given.items():
            how[row] = one
        return how

    @property
    def given(self) -> NdArray:
        """Which points are labelled (n,)."""
        given = np.zeros(len(self), dtype=bool)
        given[list(self._given)] = True
        return given

    def label(self, rows: Any, labels: Any, how: Any = "") -> None:
        """Set or remove the labels of some points.

        Parameters
        ----------
        rows : int, slice or array-like
            Positions of the points.
        labels : label or array-like
            One label for all of these points, or one for each. -1, None, NaN and "" remove a label.
        how : str or array-like
            How these points were chosen, one word for all or one for each: "suggested" and "audit" as in
            ``Suggestion.how``, "random" for points drawn uniformly, "" for a choice of your own. The estimate of the
            accuracy depends on it.
        """
        places = self._places(rows)
        if np.ndim(labels) == 0:
            labels = np.full(len(places), labels, dtype=object)
        if np.shape(labels) != (len(places),):
            raise ShapeError(
                f"labels has shape {np.shape(labels)} and {len(places)} points are labelled; give one each."
            )
        if np.ndim(how) == 0:
            how = np.full(len(places), how, dtype=object)
        if np.shape(how) != (len(places),):
            raise ShapeError(f"how has shape {np.shape(how)} and {len(places)} points are labelled; give one each.")
        if unknown := sorted({str(one) for one in how} - set(HOW)):
            raise InputError(f"how={unknown[0]!r} is none of {listed(HOW)}. Use '' for points that you chose yourself.")
        values, missing = read_labels(labels, places)
        changed = np.flatnonzero(~missing | self.given[places])
        before = {row: self._given.get(row) for row in places[changed].tolist()}
        for place in changed.tolist():
            self._set(int(places[place]), None if missing[place] else (values[place].item(), str(how[place])))
        try:
            if self.names is not None:
                encode_among(self.names.classes, values[~missing].tolist())
            read_labels([label for label, _ in self._given.values()], list(self._given))  # of one kind, all of them
        except InputError:
            self._restore(before)
            raise
        self._history.append(before)
        self._forget()

    def _places(self, rows: Any) -> NdArray:
        try:
            return np.atleast_1d(np.arange(len(self))[rows])
        except (IndexError, TypeError) as error:
            raise InputError(
                f"rows={rows!r:.80} must be positions of the pool's {len(self)} points, 0 to {len(self) - 1}."
            ) from error

    def undo(self) -> None:
        """Take back the last call of ``label`` that was not taken back yet."""
        if not self._history:
            raise InputError("there is no change of labels to undo.")
        self._restore(self._history.pop())
        self._forget()

    @cached_property
    def answer(self) -> PoolAnswer:
        """Predictions for all points."""
        rows = sorted(self._given)
        labels = [self._given[row][0] for row in rows]
        if self.names is not None:
            classes = self.names.classes
            positions = encode_among(classes, labels)
        elif rows:
            classes, positions = encode_labels(labels, rows)
        else:
            raise InputError(
                f"none of the {len(self)} points is labelled, so no class is known. Label some of them, or name the "
                "classes: classes= and prototypes=."
            )
        codes = np.full(len(self), -1, dtype=np.int64)
        codes[rows] = positions
        if not np.array_equal(self._memory_of, classes):
            self._memory, self._memory_of = self._remember(), classes
        shared = (self.seed, None, self.check, self._memory, self.names)
        task = Task(self._points, self.graph, codes, len(classes), *shared)
        if self._still_fits(classes, codes) or (self.patient and has_fitted_weights(task)):
            task = replace(task, weights=self._weights)
        return self._solve(task, classes)

    def _solve(self, task: Task, classes: NdArray) -> PoolAnswer:
        anew = task.weights is None
        from_nothing = anew and task.memory.empty
        answer = solve(task, classes, self.method)
        self._from_nothing = from_nothing
        if answer.task.weights is not None and anew:
            self._weights, self._fitted = answer.task.weights, (classes, task.codes)
        return answer

    @cached_property
    def assessment(self) -> Assessment:
        """The accuracy to expect, calibrated probabilities, and labels that look wrong."""
        return assess(self.answer, self.how, self.novelty)

    @cached_property
    def novelty(self) -> NdArray:
        """How little each point looks like any of the classes (n,), from 0 to 1; see ``a2lp.pool.open_set``."""
        return novelty(self.answer)

    def suggest(self, n: int = 20, audits: float = 0.0) -> Suggestion:
        """Choose the points to label next; give their labels back with ``Suggestion.how``.

        Parameters
        ----------
        n : int
            How many; fewer if not so many are unlabelled.
        audits : float
            The share of them that is drawn at random, once there are labels: such points check the estimate of the
            accuracy.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from a2lp import Pool
        >>> x, y = load_digits(return_X_y=True)
        >>> pool = Pool(x, [*y[:50], *[-1] * 1747])
        >>> found = pool.suggest(20, audits=0.1)
        >>> found.how.count("audit")
        2
        >>> pool.label(found.rows, y[found.rows], found.how)
        """
        if not self._given and self.names is None:
            return suggest(self._kinship, self.given, None, n, seed=self.seed)
        answer, how = self.answer, self.how

        def forecast(rows: NdArray) -> float:
            worth = self.assessment if vars(self).get("answer") is answer else assess(answer, how)
            return expected_gain(answer, worth, how, rows)

        known = forecast if self._given else None  # names alone say nothing about their own errors
        return suggest(self._kinship, self.given, answer, n, audits=audits, forecast=known, seed=self.seed)

    def show(
        self, images: Sequence[Any] | None = None, *, keys: Sequence[Any] | None = None, n: int = 12, map: bool = True
    ) -> Display:
        """Counts, a map and the most doubtful points, as a static display for notebooks.

        ``images`` has a picture of each point, a path or pixels (h, w) or (h, w, 3); ``keys`` are the points' names,
        and ``n`` is the number of doubtful ones. The map is computed once: a second for some thousand points.
        """
        from a2lp.pool.display import display

        return display(self, images, keys, n, map)

    @cached_property
    def _kinship(self) -> Kinship:
        return Kinship(self.graph)

    def _set(self, row: int, label: tuple[Any, str] | None) -> None:
        if label is None:
            self._given.pop(row, None)
        else:
            self._given[row] = label

    def _restore(self, labels: dict[int, tuple[Any, str] | None]) -> None:
        for row, label in labels.items():
            self._set(row, label)

    def refit(self) -> None:
        """Compute the answer from nothing, with weights of ``auto`` for all labels; as a new pool would.

        If ``check`` ends it, the pool stays as it was.
        """
        before = self.answer
        if self._from_nothing:
            return
        memory = self._remember()
        answer = self._solve(replace(before.task, weights=None, memory=memory, check=self.check), before.classes)
        self._memory = memory
        self._forget()
        vars(self)["answer"] = answer

    def _remember(self) -> Memory:
        known = getattr(self, "_memory", None)
        return Memory(keep=len(self) > _REMEMBER, part=known and known.part)

    def _start_anew(self) -> None:
        """Forget everything that belongs to points that were there before."""
        self._history.clear()
        self._memory, self._memory_of = Memory(keep=len(self) > _REMEMBER), np.zeros(0, np.int64)
        self._weights, self._fitted = None, (np.zeros(0, np.int64), np.zeros(0, np.int64))
        vars(self).pop("_kinship", None)
        self._forget()

    def _forget(self) -> None:
        for name in ("answer", "assessment", "novelty"):
            vars(self).pop(name, None)

    def _still_fits(self, classes: NdArray, codes: NdArray) -> bool:
        """Whether few enough labels have changed since the weights of ``auto`` were chosen."""
        fitted_classes, fitted_codes = self._fitted
        if not np.array_equal(fitted_classes, classes):
            return False
        return bool((fitted_codes != codes).sum() <= _REFIT * (fitted_codes >= 0).sum())
