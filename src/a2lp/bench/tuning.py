"""Try a method's parameters on a grid and rank them, as ``a2lp sweep`` does; results state the classes used."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.bench.comparison import base_statistics
from a2lp.bench.protocol import OWN, Params, draw_episodes, plan
from a2lp.bench.records import Record, RecordStore
from a2lp.bench.run import Progress, run
from a2lp.bench.tables import Entry, FlatRow, Row, Section, Table, describe, flat_row, plus_minus, to_markdown
from a2lp.checks import require_name
from a2lp.errors import InputError
from a2lp.features import BaseStatistics, FeatureSet, load
from a2lp.files import write_text
from a2lp.scale import Cluster


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The records of a sweep, ranked."""

    records: list[Record]  # one for each combination of values and number of shots
    swept: list[str]  # the parameters that were varied
    classes: str  # a sentence that states which classes the parameters were tried on

    @cached_property
    def table(self) -> Table:
        """Rows are combinations of values, the best first; columns are shots, and their mean."""
        config = self.records[0].config
        names = [f"{record.config['n_shot']}-shot" for record in self._ranked[0][1]]
        names += ["mean"] if len(names) > 1 else []
        rows = []
        for rank, (params, records, mean) in enumerate(self._ranked):
            texts = [*(plus_minus(*record.accuracy) for record in records), f"{mean:.2f}"][: len(names)]
            label = " ".join(f"{name}={value}" for name, value in params.items())
            rows.append(Row(label, tuple(Entry(text, best=rank == 0) for text in texts)))
        group = "" if "preprocess" in self.swept else config["preprocess"]
        columns = tuple((group, name) for name in names)
        return Table(f"{config['method']}: {describe(config)}", columns, (Section("accuracy, %", tuple(rows)),))

    @cached_property
    def rows(self) -> list[FlatRow]:
        """One flat dictionary for each record, best parameters first, by mean accuracy over the numbers of shots."""
        return [
            flat_row(record) | {"rank": rank, "mean_over_shots": mean} | params
            for rank, (params, records, mean) in enumerate(self._ranked, start=1)
            for record in records
        ]

    def __repr__(self) -> str:
        return f"Sweep({len(self.records)} records: {self.table.title})"

    def __str__(self) -> str:
        return f"{to_markdown(self.table)}\n\n{self.classes}"

    @cached_property
    def _ranked(self) -> list[tuple[FlatRow, list[Record], float]]:
        """The swept parameters, their records, and the mean accuracy over these; the best parameters first."""
        groups: dict[str, list[Record]] = {}
        for record in self.records:
            params = {name: record.config["params"][name] for name in self.swept}
            groups.setdefault(json.dumps(params), []).append(record)
        means = {params: sum(r.accuracy.mean for r in records) / len(records) for params, records in groups.items()}
        best_first = sorted(means, key=lambda params: -means[params])
        return [(json.loads(params), groups[params], means[params]) for params in best_first]


def sweep(
    method: str,
    grid: Mapping[str, Sequence[Any]],
    features: str = "cub",
    *,
    classes: str = "validation",
    n_shot: Sequence[int] = (1, 5),
    n_way: int = 5,
    n_query: int = 15,
    n_tasks: int = 200,
    sampler: str = "balanced",
    seed: int | None = None,
    preprocess: str = OWN,
    params: Mapping[str, Params] | None = None,
    base: str | Path | BaseStatistics | None = None,
    engine: str = "auto",
    device: str = "cpu",
    out: str | Path | None = None,
    progress: Progress | None = None,
    cluster: Cluster | None = None,
) -> Sweep:
    """Run a method with every combination of parameter values, and rank them by mean accuracy over the shots.

    Parameters that are not listed here are those of ``compare``.

    Parameters
    ----------
    method : str
        The method whose parameters are varied.
    grid : mapping
        Values to try, by parameter.
    features : str
        A bundled set or a feature file.
    classes : {"validation", "all"}
        ``"validation"``: the classes of the set if its ``about`` has the ``split`` ``val``, else those of the file in
        the same folder with ``val`` instead of ``test`` in its name, else a fixed half of the classes of the set.
        ``"all"``: every class.
    out : path, optional
        A folder for records and ``sweep.md``.

    Returns
    -------
    Sweep
        ``rows`` are sorted by mean accuracy, the best first; ``classes`` says which classes were used.

    Examples
    --------
    >>> import a2lp
    >>> found = a2lp.bench.sweep("lp", {"alpha": [0.5, 0.8]}, "digits", classes="all", n_shot=[1], n_tasks=20)
    >>> "alpha" in str(found)
    True
    """
    params = params or {}
    for name in params:
        require_name("method or sampler with parameters", name, [method, sampler])
    if not grid:
        raise InputError("the grid is empty; a sweep varies a parameter. Give one, such as --grid alpha=0.5,0.8.")
    store = None if out is None else RecordStore(out, ("sweep.md",))
    vectors, sentence = tuning_set(features, classes)
    sizes = {"n_tasks": n_tasks, "n_way": n_way, "n_query": n_query}
    episodes = draw_episodes(vectors, [sampler], n_shot, params, **sizes, seed=seed)
    own = params.get(method, {})
    combinations = itertools.product(*grid.values())
    variants = [(method, {**own, **dict(zip(grid, values, strict=True))}) for values in combinations]
    statistics = base_statistics(base, features)
    cells = plan(episodes, variants, [preprocess], base=statistics, engine=engine, device=device)
    result = Sweep(run(cells, store, progress, cluster=cluster), list(grid), sentence)
    if store is not None:
        write_text(store.folder.parent / "sweep.md", f"{result}\n")
    return result


def tuning_set(source: str, which: str = "validation") -> tuple[FeatureSet, str]:
    """The features that ``sweep`` uses, and a sentence that states which classes they have."""
    require_name("choice of classes", which, ("validation", "all"))
    features = load(source)
    if features.about.get("split") in ("val", "validation"):
        return features, f"Tuned on the {features.n_classes} validation classes of {features.name}."
    if which == "all":
        return features, (
            f"Tuned on all {features.n_classes} classes of {features.name}: the accuracy of the winner is not a test "
            "result, and must not be reported as one."
        )
    beside = Path(source).with_name(Path(source).name.replace("test", "val"))
    if beside != Path(source) and beside.is_file():
        features = load(str(beside))
        classes = f"{features.n_classes} classes of {beside.name}"
        return features, f"Tuned on the {classes}, the validation file beside {source}."
    return _half(features)


def _half(features: FeatureSet) -> tuple[FeatureSet, str]:
    if features.labels is None:
        raise InputError(f"features {features.name!r} have no labels, and parameters are tuned on classes. Add labels.")
    values = np.unique(features.labels)
    if len(values) < 4:
        raise InputError(
            f"features {features.name!r} have {len(values)} classes, too few to keep half of them for a test. "
            "Use --classes all, and do not report the result as a test."
        )
    chosen = np.sort(np.random.default_rng(0).permutation(values)[: len(values) // 2])
    rows = np.isin(features.labels, chosen)
    files = None if features.files is None else tuple(itertools.compress(features.files, rows))
    vectors, labels = features.features[rows], features.labels[rows]
    half = dataclasses.replace(features, features=vectors, labels=labels, files=files, name=f"{features.name}[half]")
    names = ", ".join(features.class_name(int(c)) for c in chosen[:3])
    return half, (
        f"{features.name} has no validation classes. Tuned on a fixed half of its classes, {len(chosen)} of "
        f"{len(values)} ({names}, ...): an accuracy on all classes afterwards is not a clean test result."
    )
