"""Which classes parameters are chosen on: never silently those that a test is reported on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from a2lp.errors import InputError, UnknownNameError
from a2lp.features import FeatureSet, load

CHOICES = ("validation", "all")

_SPLIT_SEED = 0


def tuning_set(source: str, which: str = "validation") -> tuple[FeatureSet, str]:
    """The features to choose parameters on, and a sentence that says which classes they are.

    Parameters
    ----------
    source : str
        A bundled name or a file, as for ``load``.
    which : {"validation", "all"}
        ``"validation"``: the set itself if it says that it is one, else the file beside it whose name has ``val``
        for ``test``, else a fixed random half of its classes. ``"all"``: every class.
    """
    if which not in CHOICES:
        raise UnknownNameError("choice of classes", which, CHOICES)
    features = load(source)
    if features.about.get("split") in ("val", "validation"):
        return features, f"Tuned on the {features.n_classes} validation classes of {features.name}."
    if which == "all":
        return features, (
            f"Tuned on all {features.n_classes} classes of {features.name}: the accuracy of the winner is not a test "
            "result, and must not be reported as one."
        )
    beside = Path(source).with_name(Path(source).name.replace("test", "val"))
    if beside != Path(source) and beside.is_file():
        features = load(str(beside))
        return (
            features,
            f"Tuned on the {features.n_classes} classes of {beside.name}, the validation file beside {source}.",
        )
    return _half(features)


def _half(features: FeatureSet) -> tuple[FeatureSet, str]:
    if features.labels is None:
        raise InputError(
            f"features {features.name!r} have no labels; parameters are chosen on labelled classes. Add labels."
        )
    values = np.unique(features.labels)
    if len(values) < 4:
        raise InputError(
            f"features {features.name!r} have {len(values)} classes, too few to keep half of them for a test. "
            "Use --classes all, and do not report the result as a test."
        )
    chosen = np.sort(np.random.default_rng(_SPLIT_SEED).permutation(values)[: len(values) // 2])
    rows = np.isin(features.labels, chosen)
    half = dataclasses.replace(
        features,
        features=features.features[rows],
        labels=features.labels[rows],
        files=None if features.files is None else tuple(np.array(features.files)[rows].tolist()),
        name=f"{features.name}[half]",
    )
    names = ", ".join(features.class_name(int(c)) for c in chosen[:3])
    return half, (
        f"{features.name} has no validation classes. Tuned on a fixed half of its classes, {len(chosen)} of "
        f"{len(values)} ({names}, ...): an accuracy on all classes afterwards is not a clean test result."
    )
