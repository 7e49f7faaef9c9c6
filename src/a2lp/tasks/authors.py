"""The authors' own tasks, drawn again from their seeds.

A run of their sampler permutes the classes, takes the first N, and permutes one vector of example numbers
again for each class; the first K + M numbers are that class's support and queries. Runs follow each other in
one legacy MT19937 stream, and what a run takes from it depends neither on K nor on M, so the tasks for five
shots have the classes, and contain the support, of those for one. All classes are cut to the smallest.

The order of the feature file decides which images these are: only with the authors' own file are they the
authors' tasks.
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
    """A seed of the authors, and the sizes of the feature file it belongs to."""

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
    labels : array (N,)
        The class of each row; classes count in the order in which they first appear.
    dataset : {"mini", "cifar_fs", "cub", "tiered"}, optional
        The dataset whose published seed to use. ``about["matches_authors_file"]`` says whether this file has
        as many classes as theirs, and its smallest class as many rows.
    n_shot, n_way, n_query, n_tasks : int
        Support per class, classes, queries per class, and number of tasks. The authors' seeds are those of
        their 5-way tasks with 15 queries, 1000 of them.
    seed : int, optional
        A seed of your own in the place of a dataset's.
    class_names : sequence of str, optional
        Names for error messages, indexed by label.
    """
    sizes = require_sizes(n_way=n_way, n_shot=n_shot, n_query=n_query, n_tasks=n_tasks)
    seed = _seed(dataset, seed)
    pool = ClassPool.of(labels, class_names)
    pool.need_classes(n_way)
    pool.need_rows(support=n_shot, query=n_query)
    smallest = int(pool.sizes.min())
    by_appearance = sorted(pool.members, key=lambda rows: int(rows[0]))
    members = np.stack([rows[:smallest] for rows in by_appearance])  # (n_classes, smallest)
    rows = _replay(members, seed, n_way, n_shot + n_query, n_tasks)  # (n_tasks, K + M, n_way)
    codes = np.broadcast_to(np.arange(n_way), rows.shape)
    return TaskList(
        support=rows[:, :n_shot].reshape(n_tasks, -1),
        support_labels=codes[:, :n_shot].reshape(n_tasks, -1),
        query=rows[:, n_shot:].reshape(n_tasks, -1),
        query_labels=codes[:, n_shot:].reshape(n_tasks, -1),
        about={
            "sampler": "authors",
            **sizes,
            "dataset": dataset,
            "seed": seed,
            "redraws": 0,
            "matches_authors_file": dataset is not None and AUTHORS_SEEDS[dataset][1:] == members.shape,
        },
    )


def _seed(dataset: str | None, seed: int | None) -> int:
    if dataset is not None:
        require_name("dataset of the authors", dataset, AUTHORS_SEEDS)
    if dataset is not None and seed is None:
        return AUTHORS_SEEDS[dataset].seed
    if dataset is None and seed is not None:
        seed = require_sizes(least=0, seed=seed)["seed"]
        if seed >= 2**32:
            raise InputError(f"seed={seed} is too large for the authors' generator. Give one below 2**32.")
        return seed
    raise InputError(
        f"dataset={dataset!r} and seed={seed!r}: the authors' tasks come from the published seed of a dataset "
        f"({', '.join(AUTHORS_SEEDS)}) or from a seed of your own. Give exactly one of the two."
    )


def _replay(members: Rows, seed: int, n_way: int, n_examples: int, n_tasks: int) -> Rows:
    """The rows of each task, example by example with the class fastest: (n_tasks, n_examples, n_way)."""
    n_classes, size = members.shape
    stream = np.random.RandomState(seed)  # the legacy generator, because the authors' code uses it
    tasks = np.empty((n_tasks, n_examples, n_way), dtype=np.int64)
    for task in tasks:
        classes = stream.permutation(n_classes)[:n_way]
        examples = np.arange(size)
        for way, label in enumerate(classes):
            examples = stream.permutation(examples)  # the last class's order permuted again, not a fresh one
            task[:, way] = members[label, examples[:n_examples]]
    return tasks
