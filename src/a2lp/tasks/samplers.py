"""Samplers of tasks: balanced, Dirichlet-imbalanced, with queries of few of the classes, semi-supervised, the authors'.

Support, queries and unlabelled rows of a task are disjoint; support has the class fastest (the first shot of every
class, then the second, ...); the order of queries and of unlabelled rows is shuffled.

Classes and support come from a random stream of their own: with one seed they are the same for every sampler and
every ``n_query``, and the support for five shots contains that for one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from a2lp.checks import require_name, require_number
from a2lp.errors import ClassTooSmallError, InputError
from a2lp.tasks.authors import authors_tasks
from a2lp.tasks.class_pool import ClassPool, require_sizes
from a2lp.tasks.lists import Rows, TaskList

MAX_REDRAWS = 1000  # of one task's Dirichlet counts; far beyond what a feasible request takes

Sizes = dict[str, int]
# Of a random generator and the classes of a task: the number of queries of each class.
QueryCounts = Callable[[np.random.Generator, Rows], Rows]


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
        have no queries. Where a class has too few images for its share, the shares of that task are drawn again;
        ``about["redraws"]`` says how often.
        ``k_eff``: queries of ``k_eff`` of the classes, chosen at random; their counts are equal, or differ by one.
        ``semi_supervised``: balanced, with ``n_unlabelled`` more rows of each class and of each of
        ``n_distractors=0`` other classes.
        ``authors``: the authors' tasks of a ``dataset``; see ``authors_tasks``.
    labels : array (N,)
        The class of each row of a feature file.
    n_way, n_shot, n_tasks : int
        Classes of a task, support per class, and number of tasks.
    n_query : int
        Queries per class: exactly for balanced tasks, on average for imbalanced ones, so that a task has
        ``n_way * n_query`` queries whichever sampler drew it.
    seed : int or numpy.random.Generator, optional
        0 by default; ``about`` records it. The ``authors`` sampler takes either a seed or a dataset.
    class_names : sequence of str, optional
        Names for error messages, indexed by label.
    **own
        Parameters of the sampler's own, as above.

    Examples
    --------
    >>> import a2lp
    >>> import numpy as np
    >>> labels = np.repeat([0, 1, 2], 30)
    >>> a2lp.draw("balanced", labels, seed=0, n_way=2, n_shot=1, n_query=15, n_tasks=100)
    TaskList(100 tasks: 2 ways, 1 shots, 30 query, 0 unlabelled)
    """
    require_name("sampler", name, SAMPLERS)
    sizes = require_sizes(n_way=n_way, n_shot=n_shot, n_query=n_query, n_tasks=n_tasks)
    if not isinstance(seed, np.random.Generator | None):
        require_sizes(least=0, seed=seed)
    _check_own(name, own)
    if name == "authors":
        more: dict[str, Any] = {"seed": seed, "class_names": class_names, **own}
        return authors_tasks(labels, n_shot=n_shot, n_way=n_way, n_query=n_query, n_tasks=n_tasks, **more)
    pool = ClassPool.of(labels, class_names)
    counts, about = _COUNTS[name](pool, sizes, **own)
    drawn = {
        "sampler": name,
        **sizes,
        **about,
        "seed": None if isinstance(seed, np.random.Generator) else int(seed or 0),
    }
    tasks = _draw_tasks(pool, np.random.default_rng(seed or 0), counts, drawn)
    return replace(tasks, about=drawn | {"redraws": about.get("redraws", 0)})


def _balanced(pool: ClassPool, sizes: Sizes) -> tuple[QueryCounts, dict[str, Any]]:
    pool.need_rows(support=sizes["n_shot"], query=sizes["n_query"])
    counts = np.full(sizes["n_way"], sizes["n_query"])
    return lambda *_: counts, {}


def _dirichlet(pool: ClassPool, sizes: Sizes, *, alpha: float = 2.0) -> tuple[QueryCounts, dict[str, Any]]:
    remedy = "The usual choice is 2; larger is more even."
    require_number("alpha", alpha, "a positive number", lambda v: v > 0, remedy)
    n_way, n_shot, n_query = sizes["n_way"], sizes["n_shot"], sizes["n_query"]
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


def _k_eff(pool: ClassPool, sizes: Sizes, *, k_eff: int) -> tuple[QueryCounts, dict[str, Any]]:
    n_way = sizes["n_way"]
    about = require_sizes(k_eff=k_eff)
    if k_eff > n_way:
        raise InputError(f"k_eff={k_eff} is more than n_way={n_way} classes. Ask for k_eff={n_way} or less.")
    each, left = divmod(n_way * sizes["n_query"], k_eff)
    pool.need_rows(support=sizes["n_shot"], query=each + bool(left))

    def query_counts(rng: np.random.Generator, classes: Rows) -> Rows:
        chosen = rng.permutation(n_way)[:k_eff]
        counts = np.zeros(n_way, dtype=np.int64)
        counts[chosen] = each
        counts[chosen[:left]] += 1
        return counts

    return query_counts, about


def _semi_supervised(
    pool: ClassPool, sizes: Sizes, *, n_unlabelled: int, n_distractors: int = 0
) -> tuple[QueryCounts, dict[str, Any]]:
    about = require_sizes(n_unlabelled=n_unlabelled) | require_sizes(least=0, n_distractors=n_distractors)
    pool.need_rows(support=sizes["n_shot"], query=sizes["n_query"], unlabelled=n_unlabelled)
    return _balanced(pool, sizes)[0], about


_COUNTS: dict[str, Callable[..., tuple[QueryCounts, dict[str, Any]]]] = {
    "balanced": _balanced,
    "dirichlet": _dirichlet,
    "k_eff": _k_eff,
    "semi_supervised": _semi_supervised,
}
SAMPLERS = (*_COUNTS, "authors")


def _check_own(name: str, own: dict[str, Any]) -> None:
    """Raise InputError unless these are parameters of the sampler's own, and none is missing."""
    known = {"dataset": False}  # whether it is needed
    if name != "authors":
        parameters = inspect.signature(_COUNTS[name]).parameters.values()
        known = {p.name: p.default is p.empty for p in parameters if p.kind is p.KEYWORD_ONLY}
    for param in own:
        if param not in known:
            takes = ", ".join(["n_way", "n_shot", "n_query", "n_tasks", *known])
            raise InputError(f"sampler {name!r} has no parameter {param!r}. It takes {takes}.")
    for param, needed in known.items():
        if needed and param not in own:
            raise InputError(f"sampler {name!r} needs {param!r}. Give it a value, such as --set {name}.{param}=2.")


def largest_remainder(shares: np.ndarray[Any, Any], total: int) -> Rows:
    """Divide ``total`` by ``shares`` that sum to one: round down, then one more for the largest rests."""
    exact = shares * total
    counts: Rows = np.floor(exact).astype(np.int64)
    neediest = np.argsort(counts - exact, kind="stable")
    counts[neediest[: total - counts.sum()]] += 1
    return counts


def _draw_tasks(
    pool: ClassPool, rng: np.random.Generator, query_counts: QueryCounts, about: dict[str, Any]
) -> TaskList:
    """Draw the tasks that ``about`` describes; ``query_counts`` gives the queries of each class of a task."""
    n_way, n_shot, n_tasks = about["n_way"], about["n_shot"], about["n_tasks"]
    n_unlabelled, n_distractors = about.get("n_unlabelled", 0), about.get("n_distractors", 0)
    pool.need_classes(n_way, n_distractors)
    # Two streams: what is drawn for the queries must not move the classes and supports of later tasks.
    rows_rng, order_rng = map(np.random.default_rng, rng.integers(2**63, size=2))
    support, query, query_labels, unlabelled = [], [], [], []
    for _ in range(n_tasks):
        classes = rows_rng.permutation(len(pool.members))[: n_way + n_distractors]
        rows = [rows_rng.permutation(pool.members[c]) for c in classes[:n_way]]
        counts = query_counts(order_rng, classes[:n_way])
        # Support from the front and queries from the back: neither moves when the size of the other changes.
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
    )
