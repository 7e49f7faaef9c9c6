"""The numbers of the paper's Tables 1 to 3, and which features belong to its datasets and networks."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
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
PAIR = ("a2lp", "lp")  # whose difference every table has
MARK = "†"

# Spellings of these names in file names and in `about`; free text or the rest of a file's name may follow.
_SPELLINGS = {
    "mini": "mini[-_]?(?:imagenet)?",
    "tiered": "tiered[-_]?(?:imagenet)?",
    "cifar_fs": "cifar[-_]?(?:100[-_]?)?fs",
    "cub": "cub",
    "resnet12": "resnet[-_]?12",
    "wrn28_10": "(?:wrn|wide[-_]?resnet)[-_]?28[-_]?10",
}
_FILE = re.compile(rf"(?:{'|'.join(_SPELLINGS[name] for name in DATASETS)})_(?P<backbone>.+)_[a-z]+", re.IGNORECASE)


class FeatureSource(NamedTuple):
    """The origin of features: a dataset of the paper (a key of ``DATASETS``) and a network.

    Of joined features, the network is all members with ``+`` between them.
    """

    dataset: str
    backbone: str

    @property
    def title(self) -> str:
        """As in ``CUB, ResNet-12``."""
        return f"{DATASETS[self.dataset]}, {self.network}"

    @property
    def network(self) -> str:
        """As in ``ResNet-12``, ``3 x ResNet-12`` or ``ResNet-12 + WideResNet-28-10``."""
        return network_title(self.backbone)

    @property
    def joined(self) -> bool:
        """Whether these are joined features of several networks."""
        return "+" in self.backbone


Settings = dict[tuple[FeatureSource, int], Estimate]  # by features and number of shots


class PublishedRow(NamedTuple):
    """A row of one of the paper's tables."""

    table: int
    backbone: str
    label: str  # the paper's name of the method
    method: str | None  # our name, for the methods that the paper ran itself; likewise the preprocessing
    preprocess: str | None
    accuracy: Settings  # the half width is NaN where none was printed
    notes: tuple[str, ...]  # keys of the document's `notes`


@cache
def rows() -> tuple[PublishedRow, ...]:
    """Every row of the three tables, in the paper's order."""
    found = []
    for row in document()["rows"]:
        accuracy = {
            (FeatureSource(dataset, row["backbone"]), int(shots)): Estimate(mean, math.nan if ci95 is None else ci95)
            for dataset, by_shots in row["accuracy"].items()
            for shots, (mean, ci95) in by_shots.items()
        }
        found.append(PublishedRow(**row | {"accuracy": accuracy, "notes": tuple(row["notes"])}))
    return tuple(found)


def accuracy(method: str, preprocess: str) -> Settings:
    """The paper's numbers for a method that it ran itself; empty if it has none."""
    wanted = ({"l2": 1, "plc": 2}[preprocess], method)
    own = [row.accuracy for row in rows() if (row.table, row.method) == wanted]
    return {setting: estimate for accuracy in own for setting, estimate in accuracy.items()}


def gains(preprocess: str) -> Settings:
    """Differences of the published means of A2LP and LP; they have no intervals."""
    one, other = (accuracy(method, preprocess) for method in PAIR)
    return {setting: Estimate(one[setting].mean - other[setting].mean, math.nan) for setting in one}


def network_title(backbone: str) -> str:
    """The name of a network, or of the members of an ensemble, in tables."""
    counts = Counter(BACKBONES.get(member, member) for member in backbone.split("+"))
    return " + ".join(member if n == 1 else f"{n} x {member}" for member, n in counts.items())


def feature_source(name: str, about: Mapping[str, Any] | None = None) -> FeatureSource | None:
    """The dataset and network of some features, or None unless they are novel classes of one of the paper's datasets.

    Both are in the name (a bundled set, or dataset, network and split as in ``cub_resnet12_test``). ``dataset``,
    ``backbone`` and ``split`` of ``about`` take precedence. Networks with a plus sign between them, without spaces, are
    the members of an ensemble.
    """
    about = _bundled_about(name) if about is None else about
    in_name = _FILE.fullmatch(name)
    dataset = _spelled(str(about.get("dataset") or name), DATASETS)
    backbone = str(about.get("backbone") or (in_name["backbone"] if in_name else ""))
    split = str(about.get("split") or name.rpartition("_")[2])
    if dataset is None or not backbone or split.lower() not in ("test", "novel"):
        return None
    members = (_spelled(member, BACKBONES) or member for member in re.split(r"(?<=\S)\+(?=\S)", backbone))
    return FeatureSource(dataset, "+".join(sorted(members)))


def _spelled(text: str, names: Mapping[str, str]) -> str | None:
    word_end = r"(?![a-z0-9])"
    return next((name for name in names if re.match(_SPELLINGS[name] + word_end, text, re.IGNORECASE)), None)


@cache
def _bundled_about(name: str) -> Mapping[str, Any]:
    """The ``about`` of a bundled set; sets that are not named after a dataset of the paper are not loaded."""
    return load(name).about if name in BUNDLED and _spelled(name, DATASETS) else {}


@cache
def document() -> dict[str, Any]:
    """The stored numbers: ``source``, ``rows``, ``notes`` on rows, ``remarks`` on whole tables."""
    return dict(json.loads((files("a2lp.bench") / "published.json").read_text(encoding="utf-8")))
