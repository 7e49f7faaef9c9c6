"""The authors' tasks, drawn again from their seeds.

Their sampler permutes the classes, takes the first N, and permutes one vector of example numbers again for each class;
the first K + M numbers are that class's support and queries. All tasks come from one legacy MT19937 stream. What a task
takes from it depends neither on K nor on M, so the tasks for five shots have the classes, and contain the support, of
those for one. All classes are cut to the smallest. Which images these are depends on the order of the feature file:
only with the authors' file are they the authors' tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from a2lp.checks import require_name
from a2lp.errors import InputError
from a2lp.tasks.class_pool import ClassPool, require_sizes
from a2lp.tasks.lists import Rows, TaskList


class AuthorsSeed(NamedTuple):
    """A seed of the authors, and the sizes of its feature file."""

    seed: int
    n_classes: int
    class_size: int


# Of their 5-way tasks with 15 queries per class, for one shot and for five.
AUTHORS_SEEDS = {
    "mini": AuthorsSeed(0, 20, 600),
    "cifar_fs": AuthorsSeed(48, 20, 600),
    "cub": AuthorsSeed(48, 50, 48),
    "tiered": AuthorsSeed(13, 160, 954),
}


def authors_tasks(
    labels: Rows,
    dataset: str | None = None,
    *,
    n_shot: int,
    n_way: int = 5,
    n_query: int = 15,
    n_tasks: int = 1000,
    seed: int | None = None,
    class_names: Sequence[str] | None = None,
) -> TaskList:
    """Draw the tasks that the authors' code draws from a feature file.

    Parameters
    ----------
    dataset : {"mini", "cifar_fs", "cub", "tiered"}, optional
        The dataset whose published seed is used. ``about["matches_authors_file"]`` is whether this file has as many
        classes as theirs, and its smallest class as many rows.
    seed : int, optional
        A seed instead of the dataset's.
    labels, n_shot, n_way, n_query, n_tasks, class_names
        As for ``draw``; the order of the classes is that in which they first appear in ``labels``.

    Returns
    -------
    TaskList

    Examples
    --------
    >>> import a2lp
    >>> from a2lp.tasks.authors import authors_tasks
    >>> tasks = authors_tasks(a2lp.load("cub").labels, "cub", n_shot=1, n_tasks=3)
    >>> tasks.about["matches_authors_file"]  # in its sizes
    True
    """
    sizes = require_sizes(n_way=n_way, n_shot=n_shot, n_query=n_query, n_tasks=n_tasks)
    seed = _seed(dataset, seed)
    pool = ClassPool(labels, class_names)
    pool.need_classes(n_way)
    pool.need_rows(support=n_shot, query=n_query)
    smallest = int(pool.sizes.min())
    by_appearance = sorted(pool.members, key=lambda rows: int(rows[0]))
    members = np.stack([rows[:smallest] for rows in by_appearance])  # (n_classes, smallest)
    stream = np.random.RandomState(seed)  # the legacy generator, because the authors' code uses it
    rows = np.empty((n_tasks, n_shot + n_query, n_way), dtype=np.int64)  # the class is fastest
    for task in rows:
        examples = np.arange(smallest)
        for way, label in enumerate(stream.permutation(len(members))[:n_way]):
            examples = stream.permutation(examples)  # the last class's order permuted again, not a fresh one
            task[:, way] = members[label, examples[: n_shot + n_query]]
    codes = np.broadcast_to(np.arange(n_way), rows.shape)
    about = {"sampler": "authors", **sizes, "dataset": dataset, "seed": seed, "redraws": 0}
    matches = dataset is not None and AUTHORS_SEEDS[dataset][1:] == members.shape
    return TaskList(
        support=rows[:, :n_shot].reshape(n_tasks, -1),
        support_labels=codes[:, :n_shot].reshape(n_tasks, -1),
        query=rows[:, n_shot:].reshape(n_tasks, -1),
        query_labels=codes[:, n_shot:].reshape(n_tasks, -1),
        about=about | {"matches_authors_file": matches},
    )


def _seed(dataset: str | None, seed: int | None) -> int:
    if dataset is not None:
        require_name("dataset of the authors", dataset, AUTHORS_SEEDS)
    if (dataset is None) == (seed is None):
        raise InputError(
            f"dataset={dataset!r} and seed={seed!r}: the authors' tasks come from the published seed of a dataset "
            f"({', '.join(AUTHORS_SEEDS)}) or from a seed of your own. Give exactly one of the two."
        )
    if dataset is not None:
        return AUTHORS_SEEDS[dataset].seed
    number: int = require_sizes(least=0, seed=seed)["seed"]
    if number >= 2**32:
        raise InputError(f"seed={number} is too large for the authors' generator. Give one below 2**32.")
    return number
