"""The standard splits of the few-shot benchmarks, as class lists; each file of ``splits/`` names its source."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from a2lp.errors import InputError, UnknownNameError

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
    """A benchmark and which of its classes are for training, validation and test.

    Attributes
    ----------
    name, title : str
        As code and as papers call it.
    classes : dict of str to tuple of str
        The classes of ``train``, ``val`` and ``test``, as the folders of its images are named.
    names : dict of str to str
        What a class is called in words, where its own name is an ImageNet number.
    """

    name: str
    title: str
    classes: dict[str, tuple[str, ...]]
    names: dict[str, str]

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
    return Standard(
        name, TITLES[name], {split: tuple(sorted(content[split])) for split in SPLITS}, content.get("names", {})
    )


def check_split(split: str | None) -> None:
    """Refuse a split that no benchmark has."""
    if split is not None and split not in SPLITS:
        raise InputError(f"split={split!r} must be one of {', '.join(SPLITS)}, or left out for all images.")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
