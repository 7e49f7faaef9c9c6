"""Bundled feature sets: real features that come with the package, and scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from a2lp.features.feature_set import FeatureSet
from a2lp.features.numpy_files import read_npz

if TYPE_CHECKING:
    from a2lp.features.statistics import BaseStatistics

# statistics of the classes that a set's network was trained on
_BASE = {"cub": "cub_resnet12_base.npz", "cifar_fs": "cifar_fs_resnet12_base.npz"}


@dataclass(frozen=True)
class Bundled:
    """One line about a set, and the function that loads it."""

    line: str
    load: Callable[[], FeatureSet]


def _novel(name: str) -> FeatureSet:
    with as_file(files("a2lp.features") / "data" / f"{name}_resnet12_novel.npz") as path:
        return FeatureSet(**read_npz(path), name=name)


def _digits() -> FeatureSet:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return FeatureSet(
        features=digits.data.astype("float32"),
        labels=digits.target,
        classes=tuple(str(name) for name in digits.target_names),
        name="digits",
        about={
            "dataset": "Optical Recognition of Handwritten Digits (Alpaydin and Kaynak, UCI, 1998)",
            "source": "sklearn.datasets.load_digits",
            "features": "the 64 pixel values of 8 x 8 images, 0 to 16",
        },
    )


BUNDLED: dict[str, Bundled] = {
    "cub": Bundled(
        "50 novel bird classes of CUB-200-2011, ResNet-12 features, 2953 x 640; non-commercial research",
        lambda: _novel("cub"),
    ),
    "cifar_fs": Bundled(
        "20 novel classes of CIFAR-FS, ResNet-12 features, 200 images of each, 4000 x 640", lambda: _novel("cifar_fs")
    ),
    "digits": Bundled("scikit-learn's handwritten digits, 10 classes, raw pixels, 1797 x 64", _digits),
}


def bundled() -> dict[str, str]:
    """The names of the bundled sets, each with one line about it."""
    return {name: one.line for name, one in BUNDLED.items()}


def base_of(name: str) -> BaseStatistics | None:
    """Statistics of the base classes of a bundled set; None for a set without base classes."""
    from a2lp.features.statistics import BaseStatistics  # that module reads feature files, which know the bundled ones

    if name not in _BASE:
        return None
    with as_file(files("a2lp.features") / "data" / _BASE[name]) as path:
        return BaseStatistics.load(path)
