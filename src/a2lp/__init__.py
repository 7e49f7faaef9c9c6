"""Transductive few-shot learning: a few labelled vectors, many unlabelled ones, all labelled together."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from a2lp._version import __version__

if TYPE_CHECKING:
    from a2lp.errors import A2LPError as A2LPError
    from a2lp.errors import A2LPWarning as A2LPWarning
    from a2lp.estimators import A2LPClassifier as A2LPClassifier
    from a2lp.estimators import ImprintingClassifier as ImprintingClassifier
    from a2lp.estimators import LabelPropagationClassifier as LabelPropagationClassifier
    from a2lp.estimators import PoolClassifier as PoolClassifier
    from a2lp.estimators import PrototypicalClassifier as PrototypicalClassifier
    from a2lp.features.files import load as load
    from a2lp.features.statistics import BaseStatistics as BaseStatistics
    from a2lp.labelling.classify import label as label
    from a2lp.labelling.suggest import suggest as suggest
    from a2lp.methods.base import Method as Method
    from a2lp.methods.registry import create as create
    from a2lp.methods.registry import list_methods as list_methods
    from a2lp.pool.session import Pool as Pool
    from a2lp.tasks.batch import Prediction as Prediction
    from a2lp.tasks.batch import TaskBatch as TaskBatch
    from a2lp.tasks.lists import TaskList as TaskList
    from a2lp.tasks.samplers import draw as draw

_NAMES = {
    "errors": ("A2LPError", "A2LPWarning"),
    "estimators": (
        *("A2LPClassifier", "ImprintingClassifier", "LabelPropagationClassifier"),
        *("PoolClassifier", "PrototypicalClassifier"),
    ),
    "features.files": ("load",),
    "features.statistics": ("BaseStatistics",),
    "labelling.classify": ("label",),
    "labelling.suggest": ("suggest",),
    "methods.base": ("Method",),
    "methods.registry": ("create", "list_methods"),
    "pool.session": ("Pool",),
    "tasks.batch": ("Prediction", "TaskBatch"),
    "tasks.lists": ("TaskList",),
    "tasks.samplers": ("draw",),
}
_MODULES = {name: f"a2lp.{module}" for module, names in _NAMES.items() for name in names}

__all__ = ["__version__", "bench", *_MODULES]


def __getattr__(name: str) -> Any:
    if name == "bench":
        return import_module("a2lp.bench")
    if name not in _MODULES:
        raise AttributeError(f"module 'a2lp' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
