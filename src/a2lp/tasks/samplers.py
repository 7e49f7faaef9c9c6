"""Who draws tasks: balanced, Dirichlet-imbalanced, with queries of few of the classes, and semi-supervised.

Every sampler has one shape: ``name(labels, *, n_way, n_shot, n_query, n_tasks, rng, **own) -> TaskList``.
Support, queries and unlabelled rows are disjoint; support has the class fastest (the first shot of every
class, then the second, ...); the order of queries and of unlabelled rows is shuffled.

Classes and support come from a stream of their own: with one seed they are the same for every sampler and
every ``n_query``, and the support for five shots contains that for one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from a2lp.errors import ClassTooSmallError, InputError, ShapeError, UnknownNameError
from a2lp.tasks.lists import Rows, TaskList

MAX_REDRAWS = 1000  # of one task's Dirichlet counts; far beyond what a feasible request takes


def balanced(
    labels: Rows,
    *,
    n_way: int,
    n_shot: int,
    n_query: int,
    n_tasks: int,
    rng: np.random.Generator,
    class_names: Sequence[str] | None = None,
) -> TaskList:
    """Tasks with ``n_query`` queries of each of their ``n_way`` classes.

    Parameters
    ----------
    labels : array (N,)
        The class of each row of a feature file.
    n_way, n_shot, n_query, n_tasks : int
        Classes of a task, support and queries per class, and number of tasks.
    rng : numpy.random.Generator
        Where the randomness comes from.
    class_names : sequence of str, optional
        Names for error messages, indexed by label.
    """
    pool = ClassPool.of(labels, class_names)
    sizes = whole_numbers(n_way=n_way, n_shot=n_shot, n_query=n_query, n_tasks=n_tasks)
    pool.need_rows(support=n_shot, query=n_query)
    counts = np.full(n_way, n_query)
    return _draw_tasks(pool, rng, lambda *_: counts, {"sampler": "balanced", **sizes})


def dirichlet(
    labels: Rows,
    *,
    n_way: int,
    n_shot: int,
    n_query: int,
    n_tasks: int,
    rng: np.random.Generator,
    alpha: float = 2.0,
    class_names: Sequence[str] | None = None,
) -> TaskList:
    """Tasks with ``n_query`` queries in all, divided among the classes by shares from Dirichlet(alpha).

    Shares are rounded by largest remainders. Where a class has too few images for its count, the counts of
    that task are drawn again; ``about["redraws"]`` says how often. A class may have no queries. Other
    parameters are as for ``balanced``.
    """
    if not (math.isfinite(alpha) and alpha > 0):
        raise InputError(f"alpha={alpha} must be a positive number. The usual choice is 2; larger is more even.")
    pool = ClassPool.of(labels, class_names)
    sizes = whole_numbers(n_way=n_way, n_shot=n_shot, n_query=n_query, n_tasks=n_tasks)
    pool.need_rows(support=n_shot)
    redraws = 0

    def query_counts(order_rng: np.random.Generator, classes: Rows) -> Rows:
        nonlocal redraws
        room = pool.sizes[classes] - n_shot
        for attempt in range(MAX_REDRAWS + 1):
            counts = largest_remainder(order_rng.dirichlet(np.full(n_way, alpha)), n_query)
            if (counts <= room).all():
                redraws += attempt
                return counts
        smallest = classes[np.argmin(room)]
        raise ClassTooSmallError(
            f"n_query={n_query} queries in all did not fit the classes of a task in {MAX_REDRAWS} redraws: "
            f"beside n_shot={n_shot} they have {room.sum()} images in all; class {pool.name(smallest)} has "
            f"{pool.sizes[smallest]}. Ask for fewer shots or queries, a larger alpha, or drop the class."
        )

    tasks = _draw_tasks(pool, rng, query_counts, {"sampler": "dirichlet", **sizes, "alpha": float(alpha)})
    return replace(tasks, about=tasks.about | {"redraws": redraws})


def k_eff(
    labels: Rows,
    *,
    n_way: int,
    n_shot: int,
    n_query: int,
    n_tasks: int,
    rng: np.random.Generator,
    k_eff: int,
    class_names: Sequence[str] | None = None,
) -> TaskList:
    """Tasks with support of ``n_way`` classes and ``n_query`` queries in all, of ``k_eff`` of the classes.

    Which classes have queries is random; their counts are equal, or differ by one. Other parameters are as
    for ``balanced``.
    """
    pool = ClassPool.of(labels, class_names)
    sizes = whole_numbers(n_way=n_way, n_shot=n_shot, n_query=n_query, n_tasks=n_tasks, k_eff=k_eff)
    if k_eff > min(n_way, n_query):
        raise InputError(
            f"k_eff={k_eff} classes with queries are more than n_way={n_way} or n_query={n_query} (in all) "
            f"allows. Ask for k_eff={min(n_way, n_query)} or less."
        )
    each, left = divmod(n_query, k_eff)
    pool.need_rows(support=n_shot, query=each + bool(left))

    def query_counts(order_rng: np.random.Generator, classes: Rows) -> Rows:
        chosen = order_rng.permutation(n_way)[:k_eff]
        counts = np.zeros(n_way, dtype=np.int64)
        counts[chosen] = each
        counts[chosen[:left]] += 1
        return counts

    return _draw_tasks(pool, rng, query_counts, {"sampler": "k_eff", **sizes})


def semi_supervised(
    labels: Rows,
    *,
    n_way: int,
    n_shot: int,
    n_query: int,
    n_tasks: int,
    rng: np.random.Generator,
    n_unlabelled: int,
    n_distractors: int = 0,
    class_names: Sequence[str] | None = None,
) -> TaskList:
    """Balanced tasks with ``n_unlabelled`` more rows of each class, and of each of ``n_distractors`` others.

    Other parameters are as for ``balanced``; ``n_query`` is per class.
    """
    pool = ClassPool.of(labels, class_names)
    sizes = whole_numbers(
        n_way=n_way, n_shot=n_shot, n_query=n_query, n_tasks=n_tasks, n_unlabelled=n_unlabelled
    ) | whole_numbers(least=0, n_distractors=n_distractors)
    pool.need_rows(support=n_shot, query=n_query, unlabelled=n_unlabelled)
    counts = np.full(n_way, n_query)
    return _draw_tasks(pool, rng, lambda *_: counts, {"sampler": "semi_supervised", **sizes})


SAMPLERS: dict[str, Callable[..., TaskList]] = {
    "balanced": balanced,
    "dirichlet": dirichlet,
    "k_eff": k_eff,
    "semi_supervised": semi_supervised,
}


def draw(name: str, labels: Rows, *, seed: int, **parameters: Any) -> TaskList:
    """Draw tasks by the sampler of that name, with a Generator made from ``seed``; ``about`` keeps the seed.

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.tasks.samplers import draw
    >>> labels = np.repeat([0, 1, 2], 30)
    >>> draw("balanced", labels, seed=0, n_way=2, n_shot=1, n_query=15, n_tasks=100)
    TaskList(100 tasks: 2 ways, 1 shots, 30 query, 0 unlabelled)
    """
    if name not in SAMPLERS:
        raise UnknownNameError("sampler", name, SAMPLERS)
    whole_numbers(least=0, seed=seed)
    rng = np.random.default_rng(seed)
    signature = inspect.signature(SAMPLERS[name])
    try:
        signature.bind(labels, rng=rng, **parameters)
    except TypeError as error:
        takes = [p for p in signature.parameters if p not in ("labels", "rng")]
        raise InputError(f"sampler {name!r}: {error}. It takes {', '.join(takes)}.") from error
    tasks = SAMPLERS[name](labels, rng=rng, **parameters)
    return replace(tasks, about=tasks.about | {"seed": int(seed)})


def largest_remainder(shares: np.ndarray[Any, Any], total: int) -> Rows:
    """Divide ``total`` by ``shares`` that sum to one: round down, then one more for the largest rests."""
    exact = shares * total
    counts: Rows = np.floor(exact).astype(np.int64)
    neediest = np.argsort(counts - exact, kind="stable")
    counts[neediest[: total - counts.sum()]] += 1
    return counts


def whole_numbers(*, least: int = 1, **values: Any) -> dict[str, int]:
    """The values as plain ints; InputError unless each is an integer of at least ``least``."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise InputError(f"{name}={value!r} must be a whole number. Give {least} or more.")
    return {name: int(value) for name, value in values.items()}


@dataclass(frozen=True)
class ClassPool:
    """The rows of each class, classes in the order of their sorted labels."""

    members: list[Rows]
    sizes: Rows
    values: Rows
    class_names: Sequence[str] | None

    @classmethod
    def of(cls, labels: Any, class_names: Sequence[str] | None = None) -> ClassPool:
        """Group the rows of a feature file by their labels; ``class_names`` are indexed by label."""
        labels = np.asarray(labels)
        if labels.ndim != 1 or not labels.size:
            raise ShapeError(f"labels has shape {labels.shape}; it must be (rows,). Give one label for each row.")
        values, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        rows = np.argsort(codes, kind="stable")
        return cls(np.split(rows, np.cumsum(sizes)[:-1]), sizes, values, class_names)

    def name(self, position: int) -> str:
        """A class's name, quoted for a message."""
        value, names = self.values[position], self.class_names
        if names is not None and isinstance(value, int | np.integer) and 0 <= value < len(names):
            value = names[int(value)]
        return repr(str(value))

    def need_rows(self, **parts: int) -> None:
        """Raise ClassTooSmallError unless every class has enough rows for its ``parts`` of a task."""
        needed, smallest = sum(parts.values()), int(np.argmin(self.sizes))
        if self.sizes[smallest] < needed:
            words = {"support": "shots", "query": "queries", "unlabelled": "unlabelled images"}
            raise ClassTooSmallError(
                f"n_shot={parts['support']} needs {needed} images per class "
                f"({' + '.join(f'{count} {part}' for part, count in parts.items())}); "
                f"class {self.name(smallest)} has {self.sizes[smallest]}. "
                f"Ask for fewer {' or '.join(words[part] for part in parts)}, or drop the class."
            )

    def need_classes(self, n_way: int, n_distractors: int = 0) -> None:
        """Raise InputError unless there are enough classes for a task."""
        if n_way + n_distractors > len(self.members):
            beside = f" and n_distractors={n_distractors}" if n_distractors else ""
            raise InputError(
                f"n_way={n_way}{beside} needs {n_way + n_distractors} classes; the labels have "
                f"{len(self.members)}. Ask for fewer."
            )


def _draw_tasks(
    pool: ClassPool,
    rng: np.random.Generator,
    query_counts: Callable[[np.random.Generator, Rows], Rows],
    about: dict[str, Any],
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
        about=about | {"seed": None, "redraws": 0},
    )
