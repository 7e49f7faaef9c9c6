"""What is measured: cells, and the tasks that they share.

A cell is one method with one set of parameters on one list of tasks. Its key is a hash of everything that decides
its numbers, so a record is found again by the same question and by no other.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from a2lp._version import __version__
from a2lp.bench.records import content_key
from a2lp.errors import A2LPWarning, InputError
from a2lp.features import BaseStatistics, FeatureSet
from a2lp.methods.base import Method
from a2lp.methods.registry import create, method_class, methods
from a2lp.tasks.lists import TaskList
from a2lp.tasks.samplers import draw

Params = Mapping[str, Any]

OWN = "own"  # in a list of preprocessings: each method's own default

# These samplers take the number of queries of a whole task, the others that of a class.
_COUNT_QUERIES_PER_TASK = {"dirichlet", "k_eff"}


@dataclass(frozen=True, eq=False)
class Episodes:
    """Features and the tasks drawn from them; every method of a comparison gets the same ones."""

    features: FeatureSet
    tasks: TaskList

    def __post_init__(self) -> None:
        self.tasks.check(len(self.features.features), f"features {self.features.name!r}")

    def head(self, n_tasks: int) -> Episodes:
        """The first tasks only."""
        return Episodes(self.features, self.tasks[:n_tasks])

    @cached_property
    def config(self) -> dict[str, Any]:
        """What identifies the tasks and the vectors behind them."""
        tasks = self.tasks
        rows = [tasks.support, tasks.support_labels, tasks.query, tasks.query_labels, tasks.unlabelled]
        return {
            "features": self.features.name,
            "features_sha256": _sha256([self.features.features]),
            "sampler": tasks.about.get("sampler", "file"),
            "seed": tasks.about.get("seed"),
            "n_way": tasks.n_way,
            "n_shot": tasks.n_shot,
            "queries_per_task": int(tasks.query.shape[1]),
            "n_tasks": len(tasks),
            "tasks_sha256": _sha256(rows),
        }


@dataclass(frozen=True, eq=False)
class Cell:
    """One method on one list of tasks.

    Attributes
    ----------
    episodes : Episodes
        The tasks.
    name : str
        The method's name in the registry.
    method : Method
        The method itself, with its parameters.
    device : str
        ``"cpu"`` (NumPy), ``"torch"`` (torch on the CPU), or another device of torch such as ``"cuda"``.
    asked : str
        The preprocessing as it was asked for: a name, or ``"own"``; cells of a comparison share it.
    """

    episodes: Episodes
    name: str
    method: Method
    device: str = "cpu"
    asked: str = OWN

    @cached_property
    def params(self) -> dict[str, Any]:
        """Every parameter of the method, those left at their defaults too; arrays and weights by their hash."""
        params = {f.name: _plain(getattr(self.method, f.name)) for f in dataclasses.fields(self.method)}
        if params.get("weights") is not None:
            params["weights"] = f"sha256:{hashlib.sha256(Path(params['weights']).read_bytes()).hexdigest()}"
        return params

    @cached_property
    def config(self) -> dict[str, Any]:
        """Everything that decides the numbers, as JSON has it."""
        return self.episodes.config | {
            "method": self.name,
            "preprocess": self.method.preprocess,
            "params": self.params,
            "device": self.device,
            "a2lp": __version__,
        }

    @cached_property
    def key(self) -> str:
        """The hash of ``config``."""
        return content_key(self.config)

    @property
    def label(self) -> str:
        """A short name for a progress bar."""
        return f"{self.name}, {self.episodes.tasks.n_shot}-shot, {self.method.preprocess}"


def draw_episodes(
    features: FeatureSet,
    *,
    sampler: str,
    n_way: int,
    n_shot: int,
    n_query: int,
    n_tasks: int,
    seed: int,
    own: Params | None = None,
) -> Episodes:
    """Draw tasks from labelled features.

    Parameters
    ----------
    n_query : int
        Queries per class; samplers of imbalanced tasks get ``n_way * n_query`` of them in all.
    own : mapping, optional
        Parameters of the sampler's own, such as ``{"k_eff": 3}``.
    """
    if features.labels is None:
        raise InputError(
            f"features {features.name!r} have no labels, and tasks are drawn by class. "
            "Add labels to the file, or give tasks that were drawn before."
        )
    tasks = draw(
        sampler,
        features.labels,
        seed=seed,
        n_way=n_way,
        n_shot=n_shot,
        n_query=n_way * n_query if sampler in _COUNT_QUERIES_PER_TASK else n_query,
        n_tasks=n_tasks,
        class_names=features.classes,
        **(own or {}),
    )
    return Episodes(features, tasks)


def given_episodes(features: FeatureSet, tasks: TaskList) -> Episodes:
    """Tasks that were drawn before; warns where they seem to belong to other features."""
    episodes = Episodes(features, tasks)
    if features.labels is not None:
        each = np.arange(len(tasks))[:, None]
        classes = np.empty((len(tasks), tasks.n_way), dtype=np.int64)  # of each label of each task
        classes[each, tasks.support_labels] = features.labels[tasks.support]
        parts = ((tasks.support, tasks.support_labels), (tasks.query, tasks.query_labels))
        if any((features.labels[rows] != classes[each, labels]).any() for rows, labels in parts):
            warnings.warn(
                f"the tasks put rows of different classes of {features.name!r} under one label: they may have been "
                "drawn from other features.",
                A2LPWarning,
                stacklevel=2,
            )
    return episodes


def plan(
    episodes: Sequence[Episodes],
    methods: Sequence[str],
    preprocess: Sequence[str] = (OWN,),
    *,
    settings: Mapping[str, Params] | None = None,
    base: BaseStatistics | None = None,
    engine: str = "auto",
    device: str = "cpu",
) -> list[Cell]:
    """Every method with every preprocessing on every list of tasks.

    Parameters
    ----------
    preprocess : sequence of str
        Names of preprocessings; ``"own"`` is each method's default.
    settings : mapping of method name to parameters, optional
        Parameters that differ from a method's defaults.
    base : BaseStatistics, optional
        What is known of the base classes, for methods and preprocessings that use it.
    engine, device : str
        ``engine`` goes to the methods that have one.
    """
    settings = settings or {}
    made = {
        how: [(name, make_method(name, {**named(how), **settings.get(name, {})}, base, engine)) for name in methods]
        for how in preprocess
    }
    return [
        Cell(each, name, method, device, how)
        for how, alike in made.items()
        for each in episodes
        for name, method in alike
    ]


def plan_sweep(
    episodes: Sequence[Episodes],
    method: str,
    grid: Mapping[str, Sequence[Any]],
    *,
    params: Params,
    base: BaseStatistics | None = None,
    engine: str = "auto",
    device: str = "cpu",
) -> list[Cell]:
    """One method with every combination of the values of ``grid``; its other parameters are ``params``."""
    made = [
        make_method(method, {**params, **dict(zip(grid, values, strict=True))}, base, engine)
        for values in itertools.product(*grid.values())
    ]
    return [Cell(each, method, one, device) for one in made for each in episodes]


def make_method(name: str, params: Params, base: BaseStatistics | None = None, engine: str = "auto") -> Method:
    """Create a method; it gets ``engine`` where it has one, and ``base`` where it uses it."""
    own = {f.name for f in dataclasses.fields(method_class(name))}
    if "engine" in own:
        params = {"engine": engine, **params}
    method = create(name, **params)
    return dataclasses.replace(method, base=base) if method.reads_statistics and method.base is None else method


def all_that_run(
    preprocess: Sequence[str], settings: Mapping[str, Params], base: BaseStatistics | None
) -> tuple[list[str], list[str]]:
    """The names of every registered method that can run here, and a sentence about each that cannot."""
    names, left_out = [], []
    for name in methods():
        params = settings.get(name, {})
        try:
            made = [make_method(name, {**named(how), **params}) for how in preprocess]
        except Exception as error:  # of a plug-in it may be any
            if params:  # those are the caller's to mend
                raise
            left_out.append(f"{name} is left out: {type(error).__name__}: {error}")
            continue
        if getattr(made[0], "weights", "none needed") is None:
            left_out.append(
                f"{name} is left out: it is meta-trained, and has no weights here. Make them with `a2lp meta-train "
                f"{name} --features BASE --out FILE`, then give them by --set {name}.weights=FILE."
            )
        elif base is None and any(method.reads_statistics for method in made):
            left_out.append(f"{name} is left out: it uses statistics of the base classes. Give them by --base FILE.")
        else:
            names.append(name)
    return names, left_out


def named(preprocess: str) -> dict[str, Any]:
    """A preprocessing as a parameter of a method; nothing for the method's own."""
    return {} if preprocess == OWN else {"preprocess": preprocess}


def _sha256(arrays: Iterable[np.ndarray[Any, Any] | None]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """A parameter as JSON has it."""
    if isinstance(value, BaseStatistics):
        return f"sha256:{_sha256([value.mean, value.class_means, value.within_cov, value.sphere_cov])}"
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value
