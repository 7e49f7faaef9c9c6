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
    from a2lp.methods.base import Method as Method
    from a2lp.methods.registry import create as create
    from a2lp.methods.registry import list_methods as list_methods
    from a2lp.pool.session import Pool as Pool
    from a2lp.tasks.batch import Prediction as Prediction
    from a2lp.tasks.batch import TaskBatch as TaskBatch
    from a2lp.tasks.lists import TaskList as TaskList
    from a2lp.tasks.samplers import draw as draw

_WHERE = {
    "A2LPClassifier": "a2lp.estimators",
    "A2LPError": "a2lp.errors",
    "A2LPWarning": "a2lp.errors",
    "BaseStatistics": "a2lp.features.statistics",
    "ImprintingClassifier": "a2lp.estimators",
    "LabelPropagationClassifier": "a2lp.estimators",
    "Method": "a2lp.methods.base",
    "Pool": "a2lp.pool.session",
    "PoolClassifier": "a2lp.estimators",
    "Prediction": "a2lp.tasks.batch",
    "PrototypicalClassifier": "a2lp.estimators",
    "TaskBatch": "a2lp.tasks.batch",
    "TaskList": "a2lp.tasks.lists",
    "create": "a2lp.methods.registry",
    "draw": "a2lp.tasks.samplers",
    "label": "a2lp.labelling.classify",
    "list_methods": "a2lp.methods.registry",
    "load": "a2lp.features.files",
}

__all__ = ["__version__", "bench", *_WHERE]


def __getattr__(name: str) -> Any:
    if name == "bench":
        return import_module("a2lp.bench")
    if name not in _WHERE:
        raise AttributeError(f"module 'a2lp' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
