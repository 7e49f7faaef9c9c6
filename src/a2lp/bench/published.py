"""The numbers of the paper's Tables 1 to 3, and which features are of its datasets and networks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from a2lp.bench.statistics import Estimate
from a2lp.features import load
from a2lp.features.bundled import BUNDLED

DATASETS = {"mini": "miniImageNet", "tiered": "tieredImageNet", "cifar_fs": "CIFAR-FS", "cub": "CUB"}
NOVEL_CLASSES = {"mini": 20, "tiered": 160, "cifar_fs": 20, "cub": 50}
BACKBONES = {"resnet12": "ResNet-12", "wrn28_10": "WideResNet-28-10"}
SHOTS = (1, 5)
METHODS = ("prototypical", "imprinting", "lp", "a2lp")  # those that the paper ran itself
MARK = "†"

# How files and their authors write these names; free text or the rest of a file's name may follow.
_SPELLINGS = {
    "mini": "mini[-_]?(?:imagenet)?",
    "tiered": "tiered[-_]?(?:imagenet)?",
    "cifar_fs": "cifar[-_]?(?:100[-_]?)?fs",
    "cub": "cub",
    "resnet12": "resnet[-_]?12",
    "wrn28_10": "(?:wrn|wide[-_]?resnet)[-_]?28[-_]?10",
}
_FILE = re.compile(rf"(?:{'|'.join(_SPELLINGS[name] for name in DATASETS)})_(?P<backbone>.+)_[a-z]+", re.IGNORECASE)
_NOVEL = ("test", "novel")


class PublishedRow(NamedTuple):
    """A row of one of the paper's tables.

    Attributes
    ----------
    table : int
        1, 2 or 3.
    label : str
        The paper's name of the method.
    method, preprocess : str or None
        Their names here, for the methods that the paper ran itself.
    accuracy : dict
        An ``Estimate`` for each (dataset, shots); the half width is NaN where none was printed.
    notes : tuple of str
        Keys of the document's ``notes``.
    """

    table: int
    backbone: str
    label: str
    method: str | None
    preprocess: str | None
    accuracy: dict[tuple[str, int], Estimate]
    notes: tuple[str, ...]


class FeatureSource(NamedTuple):
    """Where features come from: a dataset of the paper (a key of ``DATASETS``) and a network."""

    dataset: str
    backbone: str

    @property
    def title(self) -> str:
        """As in ``CUB, ResNet-12``."""
        return f"{DATASETS[self.dataset]}, {backbone_title(self.backbone)}"


@cache
def rows() -> tuple[PublishedRow, ...]:
    """Every row of the three tables, in the paper's order."""
    found = []
    for row in document()["rows"]:
        accuracy = {
            (dataset, int(shots)): Estimate(mean, float("nan") if ci95 is None else ci95)
            for dataset, by_shots in row["accuracy"].items()
            for shots, (mean, ci95) in by_shots.items()
        }
        found.append(PublishedRow(**(row | {"accuracy": accuracy, "notes": tuple(row["notes"])})))
    return tuple(found)


def accuracy(backbone: str, method: str, preprocess: str) -> dict[tuple[str, int], Estimate]:
    """The paper's numbers for a method that it ran itself, by (dataset, shots); empty if it has none."""
    table = {"l2": 1, "plc": 2}[preprocess]
    asked = (table, backbone, method)
    return next((row.accuracy for row in rows() if (row.table, row.backbone, row.method) == asked), {})


def backbone_title(name: str) -> str:
    """The paper's name of a network; others keep their own."""
    return BACKBONES.get(name, name)


def feature_source(name: str, about: Mapping[str, Any] | None = None) -> FeatureSource | None:
    """The dataset and network of some features, or None unless they are novel classes of one of the paper's datasets.

    Parameters
    ----------
    name : str
        The name of the features, such as ``cub_resnet12_test``: dataset, network, split. Bundled names count, too.
    about : mapping, optional
        Of the file: its ``dataset``, ``backbone`` and ``split`` take precedence over its name.
    """
    about = _bundled_about(name) if about is None else about
    in_name = _FILE.fullmatch(name)
    dataset = _spelled(str(about.get("dataset") or name), DATASETS)
    backbone = str(about.get("backbone") or (in_name["backbone"] if in_name else ""))
    split = str(about.get("split") or name.rpartition("_")[2])
    if dataset is None or not backbone or split.lower() not in _NOVEL:
        return None
    return FeatureSource(dataset, _spelled(backbone, BACKBONES) or backbone)


def bundled_name(source: FeatureSource) -> str | None:
    """The name of the bundled features of a dataset and network."""
    return next((name for name in BUNDLED if feature_source(name) == source), None)


def _spelled(text: str, names: Mapping[str, str]) -> str | None:
    whole = r"(?![a-z0-9])"  # not the beginning of another word
    return next((name for name in names if re.match(_SPELLINGS[name] + whole, text, re.IGNORECASE)), None)


@cache
def _bundled_about(name: str) -> Mapping[str, Any]:
    """The ``about`` of a bundled set; sets that are not named after a dataset of the paper are not opened."""
    return load(name).about if name in BUNDLED and _spelled(name, DATASETS) else {}


@cache
def document() -> dict[str, Any]:
    """The numbers as they are stored: ``source``, ``rows``, ``notes`` on them, ``remarks`` on whole tables."""
    text = (files("a2lp.bench") / "published.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
