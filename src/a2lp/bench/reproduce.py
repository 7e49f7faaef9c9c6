"""Everything of the paper's tables that the features at hand allow: find them, and plan the cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from a2lp.bench.placing import N_TASKS, PREPROCESS
from a2lp.bench.protocol import Cell, draw_episodes, plan
from a2lp.bench.published import METHODS, NOVEL_CLASSES, SHOTS, Set, identify
from a2lp.errors import A2LPError, InputError
from a2lp.features import FeatureSet, load
from a2lp.features.bundled import BUNDLED
from a2lp.features.files import FORMATS


class Found(NamedTuple):
    """Features of the paper's datasets, and why other files were passed over."""

    sets: dict[Set, FeatureSet]
    passed_over: list[str]


def find_features(folders: Sequence[Path]) -> Found:
    """The features of some folders that belong to the paper's datasets, and bundled ones where they have none.

    A file belongs if its ``about`` has ``dataset``, ``backbone`` and ``split``, or its name says them, as
    ``cub_resnet12_test.npz`` does. Only novel classes (``test`` or ``novel``) count, and only all of them.
    """
    sets: dict[Set, FeatureSet] = {}
    passed_over: list[str] = []
    for path in (path for folder in folders for path in _files(folder)):
        try:
            features = load(path)
        except A2LPError as error:
            passed_over.append(str(error))
            continue
        one = identify(features.name, features.about)
        if one is None:
            passed_over.append(f"{path} is not said to be novel classes of one of the paper's datasets.")
        elif features.n_classes != NOVEL_CLASSES[one.dataset]:
            passed_over.append(
                f"{path} has {features.n_classes} classes; {one.title} has {NOVEL_CLASSES[one.dataset]} novel ones, "
                "and accuracy depends on how many."
            )
        elif one in sets:
            passed_over.append(f"{path} is {one.title}, too, and {sets[one].name} came first.")
        else:
            # the name is what a record knows of its features
            sets[one] = dataclasses.replace(features, name=f"{one.dataset}_{one.backbone}_test")
    for name in BUNDLED:
        one = identify(name)
        if one is not None and one not in sets:
            sets[one] = load(name)
    return Found(sets, passed_over)


def plan_cells(features: FeatureSet, n_tasks: int = N_TASKS) -> list[Cell]:
    """The paper's methods with both preprocessings on 1- and 5-shot tasks of a set."""
    sizes: dict[str, Any] = {"n_way": 5, "n_query": 15, "n_tasks": n_tasks, "seed": 0}
    episodes = [draw_episodes(features, sampler="balanced", n_shot=n_shot, **sizes) for n_shot in SHOTS]
    return plan(episodes, METHODS, PREPROCESS)


def _files(folder: Path) -> list[Path]:
    """Feature files that may be of novel classes: neither those named after another split, nor weights beside them."""
    if not folder.is_dir():
        raise InputError(f"--data {str(folder)!r} is not a folder; feature files are looked for in one. Name it.")
    others = ("_train", "_val", "_base")
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in FORMATS and path.is_file())
    return [path for path in found if not path.stem.endswith(others) and not path.stem.startswith("weights")]
