"""The numbers of the paper's Tables 1 to 3, and how sets of features are named after its datasets and networks."""

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


class Row(NamedTuple):
    """A row of one of the paper's tables.

    Attributes
    ----------
    table : int
        1, 2 or 3.
    label : str
        What the paper calls the method.
    method, preprocess : str or None
        Their names here, for the methods that the paper ran itself.
    accuracy : dict
        An ``Estimate`` for each (dataset, shots); the half width is NaN where none was printed.
    notes : tuple of str
        Keys of ``notes()``.
    """

    table: int
    backbone: str
    label: str
    method: str | None
    preprocess: str | None
    accuracy: dict[tuple[str, int], Estimate]
    notes: tuple[str, ...]


class Set(NamedTuple):
    """Which features: a dataset of the paper (a key of ``DATASETS``) and a network (often one of ``BACKBONES``)."""

    dataset: str
    backbone: str

    @property
    def title(self) -> str:
        """As in ``CUB, ResNet-12``."""
        return f"{DATASETS[self.dataset]}, {backbone_title(self.backbone)}"


@cache
def rows() -> tuple[Row, ...]:
    """Every row of the three tables, in the paper's order."""
    found = []
    for row in _document()["rows"]:
        accuracy = {
            (dataset, int(shots)): Estimate(mean, float("nan") if ci95 is None else ci95)
            for dataset, by_shots in row["accuracy"].items()
            for shots, (mean, ci95) in by_shots.items()
        }
        found.append(Row(**(row | {"accuracy": accuracy, "notes": tuple(row["notes"])})))
    return tuple(found)


def accuracy(backbone: str, method: str, preprocess: str) -> dict[tuple[str, int], Estimate]:
    """What the paper has for a method that it ran itself, by (dataset, shots); empty if it has nothing."""
    table = {"l2": 1, "plc": 2}[preprocess]
    asked = (table, backbone, method)
    return next((row.accuracy for row in rows() if (row.table, row.backbone, row.method) == asked), {})


def notes() -> dict[str, str]:
    """Footnotes on published numbers."""
    return dict(_document()["notes"])


def remark(table: int) -> str | None:
    """What there is to say about one of the paper's tables as a whole."""
    text: str | None = _document()["remarks"].get(str(table))
    return text


def source() -> str:
    """Who published the numbers."""
    return str(_document()["source"])


def backbone_title(name: str) -> str:
    """The paper's name of a network; others keep their own."""
    return BACKBONES.get(name, name)


def identify(name: str, about: Mapping[str, Any] | None = None) -> Set | None:
    """The dataset and network of some features, or None unless they are novel classes of one of the paper's datasets.

    Parameters
    ----------
    name : str
        The name of the features, such as ``cub_resnet12_test``: dataset, network, split. Bundled names count, too.
    about : mapping, optional
        What the file says: ``dataset``, ``backbone`` and ``split`` go before its name.
    """
    about = _bundled_about(name) if about is None else about
    in_name = _FILE.fullmatch(name)
    dataset = _spelled(str(about.get("dataset") or name), DATASETS)
    backbone = str(about.get("backbone") or (in_name["backbone"] if in_name else ""))
    split = str(about.get("split") or name.rpartition("_")[2])
    if dataset is None or not backbone or split.lower() not in _NOVEL:
        return None
    return Set(dataset, _spelled(backbone, BACKBONES) or backbone)


def bundled_set(one: Set) -> str | None:
    """The name of the bundled features of a dataset and network."""
    return next((name for name in BUNDLED if identify(name) == one), None)


def _spelled(text: str, names: Mapping[str, str]) -> str | None:
    whole = r"(?![a-z0-9])"  # not the beginning of another word
    return next((name for name in names if re.match(_SPELLINGS[name] + whole, text, re.IGNORECASE)), None)


@cache
def _bundled_about(name: str) -> Mapping[str, Any]:
    """What a bundled set says; those that are not named after a dataset of the paper are not opened for it."""
    return load(name).about if name in BUNDLED and _spelled(name, DATASETS) else {}


@cache
def _document() -> dict[str, Any]:
    text = (files("a2lp.bench") / "published.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
