"""Compare methods on the same tasks, as ``a2lp bench`` does."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from a2lp.bench.comparison_table import comparison_rows, comparison_table
from a2lp.bench.protocol import OWN, Cell, Params, draw_episodes, plan, runnable_methods, saved_episodes, write_tasks
from a2lp.bench.published import METHODS
from a2lp.bench.records import Record, RecordStore
from a2lp.bench.report import write_report
from a2lp.bench.run import Progress, run
from a2lp.bench.standings import Standing, rank_methods
from a2lp.bench.tables import FlatRow, Table, to_csv, to_markdown
from a2lp.checks import require_name, require_number, shown
from a2lp.errors import A2LPWarning, InputError, MissingExtraError
from a2lp.features import BaseStatistics, FeatureSet, load, load_base
from a2lp.features.statistics import base_of
from a2lp.files import write_text
from a2lp.methods.registry import list_methods as registered
from a2lp.scale import Cluster
from a2lp.tasks.lists import TaskList

ALL = "all"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Methods on the same tasks, and how they compare.

    Attributes
    ----------
    cells : list of Cell
        Each is one method with one preprocessing on one list of tasks.
    records : list of Record
        The result of each cell: the accuracy of every task, seconds, versions, hardware, commit.
    standings : list of Standing
        For each cell the paired difference to the best of its column, whether it is significant, and the mean rank.
    baseline : str or None
        The method that differences are also taken to.
    report : Path or None
        The HTML report, if one was written.

    Examples
    --------
    >>> import a2lp
    >>> found = a2lp.bench.compare("digits", ["prototypical", "lp"], n_shot=5, n_tasks=20)
    >>> "| lp |" in str(found)
    True
    """

    cells: list[Cell]
    records: list[Record]
    standings: list[Standing]
    baseline: str | None
    report: Path | None = None

    @cached_property
    def table(self) -> Table:
        """Rows are methods, columns are shots, grouped by sampler and preprocessing."""
        return comparison_table(self.standings, self.baseline)

    @cached_property
    def rows(self) -> list[FlatRow]:
        """One flat dictionary for each cell, as in ``table.csv``."""
        return comparison_rows(self.standings, self.baseline)

    def __str__(self) -> str:
        return to_markdown(self.table)

    def __repr__(self) -> str:
        return f"Comparison({len(self.cells)} cells: {self.table.title})"


def compare(
    features: str | Path | FeatureSet = "cub",
    methods: str | Sequence[str] = METHODS,
    *,
    n_shot: int | Sequence[int] = (1, 5),
    n_way: int = 5,
    n_query: int = 15,
    n_tasks: int = 1000,
    sampler: str | Sequence[str] = "balanced",
    seed: int | None = None,
    tasks: TaskList | None = None,
    preprocess: str | Sequence[str] = OWN,
    params: Mapping[str, Params] | None = None,
    base: str | Path | BaseStatistics | None = None,
    baseline: str | None = None,
    limit: float | None = None,
    engine: str = "auto",
    device: str = "cpu",
    out: str | Path | None = None,
    save_tasks: str | Path | None = None,
    progress: Progress | None = None,
    cluster: Cluster | None = None,
) -> Comparison:
    """Run methods on the same tasks, and compare their accuracies.

    Parameters
    ----------
    features : str, Path or FeatureSet
        A bundled set, a feature file, or loaded features.
    methods : sequence of str, or "all"
        Names of methods; ``"all"`` takes every method that can run here, and warns about the others.
    n_shot, n_way, n_query, n_tasks : int
        Labelled examples per class (one number or several; 0 where the features have text of the names), classes,
        queries per class (on average), tasks.
    sampler : str or sequence of str
        Of ``balanced``, ``dirichlet``, ``k_eff``, ``semi_supervised``, ``authors``.
    seed : int, optional
        Of the tasks; 0 by default. The ``authors`` sampler has the published seed of its ``dataset``.
    tasks : TaskList, optional
        Tasks to use instead of drawing new ones.
    preprocess : str or sequence of str
        Of ``own`` (each method's default), ``l2``, ``plc``, ``cl2n``, ``whiten``, ``none``.
    params : mapping, optional
        Parameters of methods and samplers by name, as in ``{"a2lp": {"steps": 200}, "k_eff": {"k_eff": 2}}``.
    base : str, Path or BaseStatistics, optional
        Features or statistics of the base classes, for methods that use them. Bundled sets have their own.
    baseline : str, optional
        The method that differences are taken to: ``lp`` if it runs, else the first method; none for ``"all"``.
    limit : float, optional
        Seconds of prediction after which a cell is stopped; it is compared on the tasks that it completed.
    engine, device : str
        Engine of the methods that have one; ``cpu`` (NumPy), ``torch`` (torch on the CPU) or ``cuda``.
    out, save_tasks : path, optional
        A folder for records, tables and a report, where cells that have a record are not run again; an ``.npz`` file
        for the tasks, one for each list of tasks if there are several.
    progress : callable, optional
        Called as ``progress(cell, n_done)``; a cluster has its own.
    cluster : Cluster, optional
        Runs all cells at once, on the workers of an ``a2lp.scale.Cluster``.

    Returns
    -------
    Comparison
        The accuracies and differences; ``print`` shows them as a table.

    Examples
    --------
    >>> import a2lp
    >>> found = a2lp.bench.compare("digits", ["prototypical", "lp"], n_shot=5, n_tasks=20)
    >>> [len(record.accuracies) for record in found.records]
    [20, 20]
    """
    names = list(registered()) if methods == ALL else _listed("methods", methods)
    samplers, preprocessings, params = _listed("sampler", sampler), _listed("preprocess", preprocess), params or {}
    for name in params:
        require_name("method or sampler with parameters", name, [*names, *samplers])
    if baseline is not None:
        require_name("baseline", baseline, names)
    if limit is not None:
        require_number("limit", limit, "a positive number of seconds", lambda v: v > 0, "Leave it out for no limit.")
    store = None if out is None else RecordStore(out, ("table.md", "table.csv", "report.html"))
    vectors = features if isinstance(features, FeatureSet) else load(features)
    shots = _listed("n_shot", n_shot)
    sizes: dict[str, Any] = {"n_way": n_way, "n_query": n_query, "n_tasks": n_tasks, "seed": seed}
    if 0 in shots and vectors.text is None and tasks is None:
        raise InputError(
            f"n_shot=0 needs class names, and features {vectors.name!r} have no `text`, the vectors of the names. Give "
            "such features, or ask for 1 shot or more."
        )
    episodes = [saved_episodes(vectors, tasks)] if tasks else draw_episodes(vectors, samplers, shots, params, **sizes)
    if save_tasks is not None:
        write_tasks(episodes, save_tasks)
    statistics = base_statistics(base, features)
    baseline = baseline or (None if methods == ALL else "lp" if "lp" in names else names[0])
    names = runnable_methods(preprocessings, params, statistics, episodes) if methods == ALL else names
    chosen = [(name, params.get(name, {})) for name in names]
    cells = plan(episodes, chosen, preprocessings, base=statistics, engine=engine, device=device)
    records = run(cells, store, progress, limit=limit, keep_going=True, cluster=cluster)
    comparison = Comparison(cells, records, rank_methods(cells, records), baseline)
    return comparison if store is None else _write(comparison, store, progress)


def base_statistics(
    base: str | Path | BaseStatistics | None, features: str | Path | FeatureSet
) -> BaseStatistics | None:
    """Statistics of the base classes: those of ``base``, else those of the bundled set ``features``."""
    if base is not None:
        return base if isinstance(base, BaseStatistics) else load_base(base)
    return base_of(features) if isinstance(features, str) else None


def _write(comparison: Comparison, store: RecordStore, progress: Progress | None) -> Comparison:
    """Write the table, as Markdown and as CSV, and the report beside the records."""
    folder = store.folder.parent
    write_text(folder / "table.md", to_markdown(comparison.table) + "\n")
    write_text(folder / "table.csv", to_csv(comparison.rows) + "\n")
    try:
        return replace(comparison, report=write_report(comparison, store, progress))
    except MissingExtraError as error:
        warnings.warn(f"no report.html was written: {error}", A2LPWarning, stacklevel=3)
        return comparison


def _listed(name: str, value: Any) -> list[Any]:
    """One value or several, as a list without repetitions."""
    several = isinstance(value, Iterable) and not isinstance(value, str)
    values = list(dict.fromkeys(value)) if several else [value]
    if not values:
        raise InputError(f"{name}={shown(value)} is empty. Give at least one.")
    return values
