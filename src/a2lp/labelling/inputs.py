"""The arguments of ``a2lp.label`` and ``a2lp.suggest``: points and labels in all the forms that people use."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.arrays import NDArray, to_numpy
from a2lp.checks import counted, listed, shown
from a2lp.encoding import read_labels
from a2lp.errors import A2LPWarning, InputError, ShapeError
from a2lp.features import FeatureSet
from a2lp.files import exists
from a2lp.labelling.labels import Task, check_classes, read_task
from a2lp.labelling.names import ClassNames, find_names, own_names
from a2lp.labelling.sources import Embedding, Points, Progress, embed_points, find_points
from a2lp.pool.forecast import forecast
from a2lp.pool.graph import PoolGraph
from a2lp.pool.session import Pool

_LARGE = 100_000  # points from which a forecast of memory and time is shown


@dataclass(frozen=True, eq=False, repr=False)
class Inputs:
    """Points and their labels.

    Attributes
    ----------
    x : array (n, d), PoolGraph or Pool
    labels : array-like (n,) or None
        None keeps those of a pool.
    names : array (n,)
        The points' keys.
    column : str
        The name of the keys' column.
    paths : tuple of Path or None
        The images; None for vectors.
    source : str
        The folder or file; empty for arrays.
    how : str or array-like (n,)
        How the labelled points were chosen, as in ``Pool.label``.
    classes : ClassNames or None
        The named classes.
    """

    x: Any
    labels: Any
    names: NDArray
    column: str
    paths: tuple[Path, ...] | None = None
    source: str = ""
    how: Any = ""
    classes: ClassNames | None = None

    def pool(self, method: str, seed: int, progress: Progress | None, **options: Any) -> Pool:
        """The pool with these labels: the caller's own, or a new one, with options of ``Pool``."""
        pool = self.x
        if not isinstance(pool, Pool):
            report = None if progress is None else partial(progress, f"finding neighbours{_forecast(self.x)}")
            options |= {} if self.classes is None else self.classes.arguments
            pool = Pool(self.x, method=method, seed=seed, progress=report, **options)
        if self.labels is not None:
            pool.label(slice(None), self.labels, self.how)
        return pool


def _forecast(x: Any) -> str:
    """The memory and time that a large pool will take, in brackets."""
    shape: tuple[int, ...] = getattr(x, "shape", ())
    return f" ({forecast(shape[0], shape[1])})" if len(shape) == 2 and shape[0] >= _LARGE else ""


def read_inputs(
    embeddings: Any,
    labels: Any,
    keys: Sequence[Any] | None,
    key: str,
    embedding: Embedding | None,
    progress: Progress | None,
    how: Any = "",
    *,
    classes: Any = None,
    prototypes: Any = None,
    need_choice: bool = True,
) -> Inputs:
    """The points and labels of a call; the parameters are those of ``a2lp.label``.

    With ``need_choice``, labels of fewer than two classes are refused before images are embedded, unless classes are
    named.
    """
    if isinstance(embeddings, str | Path):
        if keys is not None:
            raise InputError(f"keys are given, but the points of {embeddings} have names of their own. Leave keys out.")
        given = (labels, how, classes, prototypes)
        return _from_source(embeddings, given, embedding or Embedding(), progress, need_choice)
    x, names, column = _points(embeddings, keys, key)
    named = None
    if classes is not None or prototypes is not None:
        if isinstance(x, Pool):
            raise InputError("embeddings is a Pool, which has its names from the start. Give them when you make it.")
        named = find_names(Points(()), classes, _vectors(prototypes), Embedding())
    if _is_files(labels):
        task = read_task(labels, Points(tuple(map(str, names))), need_choice=need_choice and named is None)
        labels, how = task.labels, task.how
    return Inputs(x, _by_row(labels, names), names, column, how=how, classes=named)


def embed_task(
    task: Task, how: Embedding, progress: Progress | None = None, *, need_choice: bool = True, named: bool = False
) -> Task:
    """The task with vectors, without the images that were skipped.

    InputError if a class is lost with them, and, with ``need_choice``, if fewer than two are left; ``named`` classes
    need no labels.
    """
    embedded = task.with_points(embed_points(task.points, how, progress))
    lost = sorted(set(task.classes) - set(embedded.classes))
    if lost and not named:
        raise InputError(
            f"no labelled example of the class {listed(lost, 5)} can be read, so the class would be lost. Replace the "
            "damaged images, or label others."
        )
    if need_choice and not named:
        check_classes(embedded.labels, "what is left of the labels")
    return embedded


def _from_source(
    source: str | Path,
    given: tuple[Any, Any, Any, Any],
    embedding: Embedding,
    progress: Progress | None,
    need_choice: bool,
) -> Inputs:
    """The inputs of a folder or file; ``given`` are the arguments labels, how, classes and prototypes."""
    labels, how, classes, prototypes = given
    points = find_points(source)
    named = find_names(points, classes, _vectors(prototypes), embedding)
    files = labels if _is_files(labels) else []
    task = read_task(files, points, need_choice=False)
    if not files and labels is not None:
        task = replace(task, labels=_checked(_by_row(labels, _names(task)), len(points)))
        if np.ndim(how):
            task = replace(task, how=np.asarray(how, dtype=object))
    named = own_names(named, classes, prototypes, task.labels)
    if named is not None:
        named.check_labels(task.labels)
    elif need_choice:
        check_classes(task.labels, "labels" if not files else " and ".join(map(str, _several(files))))
    task = embed_task(task, embedding, progress, need_choice=need_choice, named=named is not None)
    if skipped := task.points.skipped:
        reasons = "; ".join(f"{name}: {why}" for name, why in list(skipped.items())[:3])
        more = f" and {len(skipped) - 3} more" if len(skipped) > 3 else ""
        warnings.warn(f"{counted(len(skipped), 'image')} skipped: {reasons}{more}.", A2LPWarning, stacklevel=4)
    chosen = task.how if files or np.ndim(how) else how
    named = None if named is None else named.embedded(embedding)
    return Inputs(
        task.points.features, task.labels, _names(task), task.key, task.points.paths, str(source), chosen, named
    )


def _several(where: Any) -> list[Any]:
    return [where] if isinstance(where, str | Path) else list(where)


def _vectors(prototypes: Any) -> Any:
    """Vectors of names as an array, or the file that holds them."""
    return prototypes if prototypes is None or isinstance(prototypes, str | Path) else to_numpy(prototypes)


def _names(task: Task) -> NDArray:
    return np.array([*task.keys, None], dtype=object)[:-1]  # an object array, also of tuples


def _checked(labels: Any, n: int) -> NDArray:
    """Labels (n,), None where there is none."""
    values, missing = read_labels(labels, np.empty(n))
    given = values.astype(object)
    given[missing] = None
    return given


def _is_files(labels: Any) -> bool:
    """Whether labels name files or folders, rather than classes."""
    if isinstance(labels, str | Path):
        return True
    several = isinstance(labels, list | tuple) and 0 < len(labels) < 100
    return several and all(isinstance(one, str | Path) and str(one) != "" and exists(one) for one in labels)


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


def _by_row(labels: Any, names: NDArray) -> Any:
    """Labels of all points, from labels of all, or of some by key."""
    if hasattr(labels, "iloc") and hasattr(labels, "items") and np.ndim(labels) == 1:  # a Series
        index = labels.index.tolist()
        if len(index) == len(names) and not set(index) <= set(names.tolist()):
            return labels.to_numpy()  # one label for each row, under an index that does not name the points
        return _by_key(zip(index, labels.tolist(), strict=True), names)
    if isinstance(labels, Mapping):
        return _by_key(labels.items(), names)
    return labels


def _by_key(pairs: Iterable[tuple[Any, Any]], names: NDArray) -> NDArray:
    row_of = {name: row for row, name in enumerate(names.tolist())}
    pairs = [(name.as_posix() if isinstance(name, Path) else name, value) for name, value in pairs]
    unknown = [name for name, _ in pairs if name not in row_of]
    if unknown:
        raise InputError(
            f"labels names {len(unknown)} points that embeddings does not have: {listed(unknown, 5)}. Use its keys, "
            f"such as {shown(names[0])}."
        )
    if len(row_of) < len(names):
        raise InputError(
            f"several points have the same key, so that labels by key cannot tell them apart ({len(names)} points, "
            f"{len(row_of)} keys). Give each its own, or one label for each row."
        )
    given = np.full(len(names), None, dtype=object)
    for name, value in pairs:
        row = row_of[name]
        if given[row] is not None and given[row] != value:
            raise InputError(f"labels has both {shown(given[row])} and {shown(value)} for {shown(name)}. Keep one.")
        given[row] = value
    return given
