"""Samplers of tasks: balanced, Dirichlet-imbalanced, with queries of few of the classes, semi-supervised, the authors'.

Support, queries and unlabelled rows of a task are disjoint. Support has the class fastest (the first shot of every
class, then the second, ...); queries and unlabelled rows are shuffled. With one seed, classes and support are the same
for every sampler and every ``n_query``, and the support for five shots contains that for one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from a2lp.arrays import NDArray
from a2lp.checks import require_name, require_number
from a2lp.errors import ClassTooSmallError, InputError
from a2lp.tasks.authors import authors_tasks
from a2lp.tasks.class_pool import ClassPool, require_sizes
from a2lp.tasks.lists import Rows, TaskList

MAX_REDRAWS = 1000  # of one task's Dirichlet counts; far beyond what a feasible request takes

# a function of a random generator and the classes of a task, which gives the number of queries of each class
QueryCounts = Callable[[np.random.Generator, Rows], Rows]
Setup = tuple[QueryCounts, dict[str, Any]]  # of a sampler: the counts, and entries of `about`


def draw(
    name: str,
    labels: Rows,
    *,
    n_way: int = 5,
    n_shot: int = 1,
    n_query: int = 15,
    n_tasks: int = 1000,
    seed: int | np.random.Generator | None = None,
    class_names: Sequence[str] | None = None,
    **own: Any,
) -> TaskList:
    """Draw tasks with one of the samplers.

    Parameters
    ----------
    name : str
        ``balanced``: ``n_query`` queries of each class.
        ``dirichlet``: shares of the classes from Dirichlet(``alpha=2.0``), rounded by largest remainders; a class may
        have no queries. If a class has too few images for its share, the shares of that task are drawn again, which
        ``about["redraws"]`` counts.
        ``k_eff``: queries of ``k_eff`` of the classes, chosen at random; their counts are equal, or differ by one.
        ``semi_supervised``: balanced, with ``n_unlabelled`` more rows of each class and of each of
        ``n_distractors=0`` other classes.
        ``authors``: the authors' tasks of a ``dataset``; see ``authors_tasks``.
    labels : array (N,)
        The class of each row of a feature file.
    n_way, n_shot, n_query, n_tasks : int
        Classes of a task, support per class (0 for tasks with names only), queries per class (on average for
        imbalanced tasks, so that a task of any sampler has ``n_way * n_query``), and number of tasks.
    seed : int or numpy.random.Generator, optional
        0 by default. The ``authors`` sampler takes either a seed or a dataset.
    class_names : sequence of str, optional
        Names for error messages, indexed by label.
    **own
        The sampler's own parameters, as above.

    Returns
    -------
    TaskList
        ``batch(features)`` makes a ``TaskBatch`` of it; ``query_labels`` are the true labels.

    Examples
    --------
    >>> import a2lp
    >>> import numpy as np
    >>> labels = np.repeat([0, 1, 2], 30)
    >>> a2lp.draw("balanced", labels, seed=0, n_way=2, n_shot=1, n_query=15, n_tasks=100)
    TaskList(100 tasks: 2 ways, 1 shots, 30 query, 0 unlabelled)
    """
    require_name("sampler", name, SAMPLERS)
    sizes = require_sizes(n_way=n_way)
    sizes |= require_sizes(least=1 if name == "authors" else 0, n_shot=n_shot)  # none, for tasks with class names
    sizes |= require_sizes(n_query=n_query, n_tasks=n_tasks)
    if not isinstance(seed, np.random.Generator | None):
        require_sizes(least=0, seed=seed)
    _check_own(name, own)
    if name == "authors":
        more = own | {"seed": seed, "class_names": class_names}
        return authors_tasks(labels, **sizes, **more)
    pool = ClassPool(labels, class_names)
    counts, about = _SETUPS[name](pool, n_way, n_shot, n_query, **own)
    known_seed = None if isinstance(seed, np.random.Generator) else int(seed or 0)
    drawn = {"sampler": name, **sizes, **about, "seed": known_seed}
    tasks = _draw_tasks(pool, np.random.default_rng(seed or 0), counts, drawn)
    tasks.about["redraws"] = about.get("redraws", 0)
    return tasks


def _balanced(pool: ClassPool, n_way: int, n_shot: int, n_query: int) -> Setup:
    pool.need_rows(support=n_shot, query=n_query)
    counts = np.full(n_way, n_query)
    return lambda *_: counts, {}


def _dirichlet(pool: ClassPool, n_way: int, n_shot: int, n_query: int, *, alpha: float = 2.0) -> Setup:
    remedy = "The usual choice is 2; larger is more even."
    require_number("alpha", alpha, "a positive number", lambda v: v > 0, remedy)
    pool.need_rows(support=n_shot)
    about: dict[str, Any] = {"alpha": float(alpha)}

    def query_counts(rng: np.random.Generator, classes: Rows) -> Rows:
        room = pool.sizes[classes] - n_shot
        for attempt in range(MAX_REDRAWS + 1):
            counts = largest_remainder(rng.dirichlet(np.full(n_way, alpha)), n_way * n_query)
            if (counts <= room).all():
                about["redraws"] = about.get("redraws", 0) + attempt
                return counts
        smallest = classes[np.argmin(room)]
        raise ClassTooSmallError(
            f"n_query={n_query} asks for {n_way * n_query} queries in a task of {n_way} classes, which did not fit in "
            f"{MAX_REDRAWS} redraws: beside n_shot={n_shot} its classes have {room.sum()} images in all; class "
            f"{pool.name(smallest)} has {pool.sizes[smallest]}. Ask for fewer shots or queries, a larger alpha, or "
            "drop the class."
        )

    return query_counts, about


def _k_eff(pool: ClassPool, n_way: int, n_shot: int, n_query: int, *, k_eff: int) -> Setup:
    about = require_sizes(k_eff=k_eff)
    if k_eff > n_way:
        raise InputError(f"k_eff={k_eff} is more than n_way={n_way} classes. Ask for k_eff={n_way} or less.")
    each, left = divmod(n_way * n_query, k_eff)
    pool.need_rows(support=n_shot, query=each + bool(left))

    def query_counts(rng: np.random.Generator, classes: Rows) -> Rows:
        chosen = rng.permutation(n_way)[:k_eff]
        counts = np.zeros(n_way, dtype=np.int64)
        counts[chosen] = each
        counts[chosen[:left]] += 1
        return counts

    return query_counts, about


def _semi_supervised(
    pool: ClassPool, n_way: int, n_shot: int, n_query: int, *, n_unlabelled: int, n_distractors: int = 0
) -> Setup:
    about = require_sizes(n_unlabelled=n_unlabelled) | require_sizes(least=0, n_distractors=n_distractors)
    pool.need_rows(support=n_shot, query=n_query, unlabelled=n_unlabelled)
    return _balanced(pool, n_way, n_shot, n_query)[0], about


_SETUPS: dict[str, Callable[..., Setup]] = {
    "balanced": _balanced,
    "dirichlet": _dirichlet,
    "k_eff": _k_eff,
    "semi_supervised": _semi_supervised,
}
SAMPLERS = (*_SETUPS, "authors")


def _check_own(name: str, own: dict[str, Any]) -> None:
    """Raise InputError unless the sampler has these parameters, and none is missing."""
    known = {"dataset": False}  # whether it is required
    if name != "authors":
        parameters = inspect.signature(_SETUPS[name]).parameters.values()
        known = {p.name: p.default is p.empty for p in parameters if p.kind is p.KEYWORD_ONLY}
    for param in own:
        if param not in known:
            takes = ", ".join(["n_way", "n_shot", "n_query", "n_tasks", *known])
            raise InputError(f"sampler {name!r} has no parameter {param!r}. It takes {takes}.")
    for param, required in known.items():
        if required and param not in own:
            raise InputError(f"sampler {name!r} needs {param!r}. Give it a value, such as --set {name}.{param}=2.")


def largest_remainder(shares: NDArray, total: int) -> Rows:
    """Divide ``total`` by ``shares`` that sum to one: round down, then add one for the largest remainders."""
    exact = shares * total
    counts: Rows = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts


def _draw_tasks(
    pool: ClassPool, rng: np.random.Generator, query_counts: QueryCounts, about: dict[str, Any]
) -> TaskList:
    """Draw the tasks that ``about`` describes."""
    n_way, n_shot, n_tasks = about["n_way"], about["n_shot"], about["n_tasks"]
    n_unlabelled, n_distractors = about.get("n_unlabelled", 0), about.get("n_distractors", 0)
    pool.need_classes(n_way, n_distractors)
    # two streams, so that what is drawn for the queries does not change the classes and supports of later tasks
    rows_rng, order_rng = map(np.random.default_rng, rng.integers(2**63, size=2))
    support, query, query_labels, unlabelled, chosen = [], [], [], [], []
    for _ in range(n_tasks):
        classes = rows_rng.permutation(len(pool.members))[: n_way + n_distractors]
        chosen.append(pool.values[classes[:n_way]])
        rows = [rows_rng.permutation(pool.members[c]) for c in classes[:n_way]]
        counts = query_counts(order_rng, classes[:n_way])
        # support from the front and queries from the back: neither changes with the size of the other
        queries = np.concatenate([r[len(r) - count :] for r, count in zip(rows, counts, strict=True)])
        order = order_rng.permutation(len(queries))
        support.append(np.stack([r[:n_shot] for r in rows], axis=1).ravel())
        query.append(queries[order])
        query_labels.append(np.repeat(np.arange(n_way), counts)[order])
        if n_unlabelled:
            own = [r[n_shot : n_shot + n_unlabelled] for r in rows]
            others = [order_rng.permutation(pool.members[c])[:n_unlabelled] for c in classes[n_way:]]
            unlabelled.append(order_rng.permutation(np.concatenate(own + others)))
    return TaskList(
        support=np.stack(support),
        support_labels=np.tile(np.arange(n_way), (n_tasks, n_shot)),
        query=np.stack(query),
        query_labels=np.stack(query_labels),
        unlabelled=np.stack(unlabelled) if n_unlabelled else None,
        about=about,
        classes=np.stack(chosen) if pool.values.dtype.kind in "iu" and pool.values.min() >= 0 else None,
    )
