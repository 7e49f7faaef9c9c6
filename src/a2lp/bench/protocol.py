"""What is measured: cells, each one method with one set of parameters on one list of tasks."""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from a2lp._version import __version__
from a2lp.arrays import NDArray
from a2lp.bench.records import content_key
from a2lp.errors import A2LPWarning, InputError
from a2lp.features import BaseStatistics, FeatureSet
from a2lp.methods.base import Method
from a2lp.methods.registry import create, list_methods, method_class
from a2lp.tasks.batch import TaskBatch
from a2lp.tasks.lists import TaskList
from a2lp.tasks.samplers import draw

Params = Mapping[str, Any]

OWN = "own"  # as a preprocessing: each method's default


@dataclass(frozen=True, eq=False)
class Episodes:
    """Features and the tasks drawn from them, the same for every method of a comparison."""

    features: FeatureSet
    tasks: TaskList

    def __post_init__(self) -> None:
        self.tasks.check(len(self.features.features), f"features {self.features.name!r}")

    @property
    def text(self) -> NDArray | None:
        """Vectors of the class names, if the features have them and the tasks say which class is which."""
        return None if self.tasks.classes is None else self.features.text

    def batch(self, tasks: slice) -> TaskBatch:
        """The vectors of some tasks, with those of their classes' names where there are any."""
        return self.tasks[tasks].batch(self.features.features, self.text)

    @cached_property
    def config(self) -> dict[str, Any]:
        """What identifies the tasks and their vectors."""
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
        } | ({} if self.text is None else {"text_sha256": _sha256([self.text, tasks.classes])})


@dataclass(frozen=True, eq=False)
class Cell:
    """One method on one list of tasks."""

    episodes: Episodes
    name: str  # of the method in the registry
    method: Method
    device: str = "cpu"  # "cpu" (NumPy), "torch" (torch on the CPU), or another device of torch such as "cuda"
    requested_preprocess: str = OWN  # a name, or "own"; cells of one column share it

    @cached_property
    def params(self) -> dict[str, Any]:
        """Every parameter of the method, including defaults; arrays and weights by their hash."""
        params = {f.name: _plain(getattr(self.method, f.name)) for f in dataclasses.fields(self.method)}
        if params.get("weights") is not None:
            params["weights"] = f"sha256:{hashlib.sha256(Path(params['weights']).read_bytes()).hexdigest()}"
        return params

    @cached_property
    def config(self) -> dict[str, Any]:
        """Everything that decides the numbers, as JSON values."""
        return self.episodes.config | {
            "method": self.name,
            "preprocess": self.method.preprocess,
            "params": self.params,
            "device": self.device,
            "a2lp": __version__,
        }

    @cached_property
    def key(self) -> str:
        """The hash of ``config``, by which a stored record is found."""
        return content_key(self.config)

    @property
    def label(self) -> str:
        """A short name for a progress bar."""
        return f"{self.name}, {self.episodes.tasks.n_shot}-shot, {self.method.preprocess}"


def draw_episodes(
    features: FeatureSet,
    samplers: Sequence[str] = ("balanced",),
    shots: Sequence[int] = (1, 5),
    params: Mapping[str, Params] | None = None,
    *,
    n_tasks: int,
    n_way: int = 5,
    n_query: int = 15,
    seed: int | None = None,
) -> list[Episodes]:
    """Tasks of each sampler and each number of shots; ``params`` has the samplers' own parameters by name."""
    if features.labels is None:
        raise InputError(
            f"features {features.name!r} have no labels, and tasks are drawn by class. Add labels, or give saved tasks."
        )
    sizes: dict[str, Any] = {"n_way": n_way, "n_query": n_query, "n_tasks": n_tasks, "class_names": features.classes}
    found = []
    for sampler in samplers:
        own = (params or {}).get(sampler, {})
        lists = [draw(sampler, features.labels, seed=seed, n_shot=n_shot, **sizes, **own) for n_shot in shots]
        if lists[0].about.get("dataset") and not lists[0].about["matches_authors_file"]:
            warnings.warn(
                f"features {features.name!r} are not the authors' file of {lists[0].about['dataset']}: they differ in "
                "the number of classes or in the size of the smallest. The tasks are not the authors'.",
                A2LPWarning,
                stacklevel=2,
            )
        found += [Episodes(features, tasks) for tasks in lists]
    return found


def saved_episodes(features: FeatureSet, tasks: TaskList) -> Episodes:
    """Saved tasks with their features; warns where the tasks seem to belong to other features."""
    episodes = Episodes(features, tasks)
    if features.labels is not None:
        task = np.arange(len(tasks))[:, None]
        classes = np.full((len(tasks), tasks.n_way), -1)  # of each label of each task
        if tasks.classes is not None:
            classes[...] = tasks.classes
        classes[task, tasks.support_labels] = features.labels[tasks.support]
        parts = ((tasks.support, tasks.support_labels), (tasks.query, tasks.query_labels))
        if any((features.labels[rows] != classes[task, labels]).any() for rows, labels in parts):
            warnings.warn(
                f"the tasks put rows of different classes of {features.name!r} under one label: they may have been "
                "drawn from other features.",
                A2LPWarning,
                stacklevel=2,
            )
    return episodes


def write_tasks(episodes: Sequence[Episodes], path: str | Path) -> None:
    """Write lists of tasks; if there are several, their names get sampler and shots, as in ``FILE_1shot.npz``."""
    path = Path(path)
    several = len({each.config["sampler"] for each in episodes}) > 1
    for each in episodes:
        sampler = f"_{each.config['sampler']}" if several else ""
        shots = f"_{each.tasks.n_shot}shot" if len(episodes) > 1 else ""
        each.tasks.save(path.with_name(f"{path.stem}{sampler}{shots}{path.suffix or '.npz'}"))


def plan(
    episodes: Sequence[Episodes],
    methods: Sequence[tuple[str, Params]],
    preprocess: Sequence[str] = (OWN,),
    *,
    base: BaseStatistics | None = None,
    engine: str = "auto",
    device: str = "cpu",
) -> list[Cell]:
    """Cells of every method, given with its parameters, with every preprocessing on every list of tasks."""
    cells = []
    for how in preprocess:
        made = [(name, make_method(name, _with_preprocess(how, own), base, engine)) for name, own in methods]
        cells += [Cell(each, name, method, device, how) for each in episodes for name, method in made]
    return cells


def make_method(name: str, params: Params, base: BaseStatistics | None = None, engine: str = "auto") -> Method:
    """Create a method, with ``engine`` if it has one and ``base`` if it uses that."""
    if "engine" in {f.name for f in dataclasses.fields(method_class(name))}:
        params = {"engine": engine, **params}
    method = create(name, **params)
    return dataclasses.replace(method, base=base) if method.reads_statistics and method.base is None else method


def runnable_methods(
    preprocess: Sequence[str],
    params: Mapping[str, Params],
    base: BaseStatistics | None,
    episodes: Sequence[Episodes],
) -> list[str]:
    """The names of the registered methods that can run here; warns about the others."""
    without_names = any(each.text is None for each in episodes)
    without_shots = any(each.tasks.n_shot == 0 for each in episodes)
    names = []
    for name in list_methods():
        own = params.get(name, {})
        try:
            made = [make_method(name, _with_preprocess(how, own)) for how in preprocess]
        except Exception as error:  # a plug-in may raise any
            if own:  # the caller's parameters are wrong
                raise
            reason = f"{type(error).__name__}: {error}"
        else:
            if getattr(made[0], "weights", "none needed") is None:
                reason = (
                    f"it is meta-trained, and has no weights here. Make them with `a2lp meta-train {name} --features "
                    f"BASE --out FILE`, then give them by --set {name}.weights=FILE."
                )
            elif base is None and any(method.reads_statistics for method in made):
                reason = "it uses statistics of the base classes. Give them by --base FILE."
            elif made[0].uses_names == "required" and without_names:
                reason = "it uses class names. Give features with `text`, the vectors of the names."
            elif made[0].uses_names == "no" and without_shots:
                reason = "it needs labelled examples of every class. Ask for 1 shot or more."
            else:
                names.append(name)
                continue
        warnings.warn(f"{name} is left out: {reason}", A2LPWarning, stacklevel=3)
    return names


def _with_preprocess(preprocess: str, params: Params) -> Params:
    return params if preprocess == OWN else {"preprocess": preprocess, **params}


def _sha256(arrays: Iterable[NDArray | None]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """A parameter as a JSON value."""
    if isinstance(value, BaseStatistics):
        return f"sha256:{_sha256([value.mean, value.class_means, value.within_cov, value.sphere_cov])}"
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value
