"""The standard splits of the few-shot benchmarks, as class lists; each file of ``splits/`` names its source."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from a2lp.errors import UnknownNameError

SPLITS = ("train", "val", "test")

TITLES = {
    "mini_imagenet": "miniImageNet",
    "tiered_imagenet": "tieredImageNet",
    "cub": "CUB-200-2011, split 100/50/50",
    "cub_easyfsl": "CUB-200-2011, split 140/30/30",
    "cifar_fs": "CIFAR-FS",
    "fc100": "FC100",
}


@dataclass(frozen=True)
class Standard:
    """A benchmark and its classes for training, validation and test."""

    name: str
    title: str  # the name in papers
    classes: dict[str, tuple[str, ...]]  # of each split, named as their image folders are
    names: dict[str, str]  # in words, of classes that are called by their ImageNet number

    def split_of(self) -> dict[str, str]:
        """The split of each class."""
        return {name: split for split, classes in self.classes.items() for name in classes}


def standard(name: str) -> Standard:
    """A benchmark by its name; case, hyphens and underscores do not matter (``miniImageNet``, ``CIFAR-FS``)."""
    plain = {_plain(known): known for known in TITLES}
    if _plain(name) not in plain:
        raise UnknownNameError("dataset", name, TITLES)
    return _read(plain[_plain(name)])


@cache
def _read(name: str) -> Standard:
    content = json.loads((files("a2lp.images.datasets") / "splits" / f"{name}.json").read_text("utf-8"))
    classes = {split: tuple(sorted(content[split])) for split in SPLITS}
    return Standard(name, TITLES[name], classes, content.get("names", {}))


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
