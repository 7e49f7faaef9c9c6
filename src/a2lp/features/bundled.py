"""Bundled feature sets: real features that come with the package, and scikit-learn's digits."""

from __future__ import annotations

from importlib.resources import as_file, files

from a2lp.features.feature_set import FeatureSet
from a2lp.features.numpy_files import read_npz

BUNDLED = {
    "cub": "50 novel bird classes of CUB-200-2011, ResNet-12 features, 2953 x 640; non-commercial research",
    "cifar_fs": "20 novel classes of CIFAR-FS, ResNet-12 features, 200 images of each, 4000 x 640",
    "digits": "scikit-learn's handwritten digits, 10 classes, raw pixels, 1797 x 64",
}


def bundled() -> dict[str, str]:
    """The names of the bundled sets, each with one line about it.

    Examples
    --------
    >>> from a2lp.features.bundled import bundled
    >>> sorted(bundled())
    ['cifar_fs', 'cub', 'digits']
    """
    return dict(BUNDLED)


def load_bundled(name: str) -> FeatureSet:
    """A bundled set by its name."""
    if name != "digits":
        with as_file(files("a2lp.features") / "data" / f"{name}_resnet12_novel.npz") as path:
            return FeatureSet(**read_npz(path), name=name)

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
