"""Ensembles: features of the same images by several networks, joined into one vector for each image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from a2lp.arrays import NDArray, chunks
from a2lp.checks import counted, shown
from a2lp.errors import InputError
from a2lp.features.bundled import BUNDLED
from a2lp.features.feature_set import FeatureSet
from a2lp.features.files import load, save
from a2lp.features.statistics import BaseStatistics, base_path, load_base
from a2lp.files import check_target, exists
from a2lp.preprocess import l2

_ROWS = 1 << 14  # vectors that are joined at a time, in float32
_SPLITS = ("train", "val", "test", "novel")


def join(members: Sequence[FeatureSet], bases: Sequence[BaseStatistics]) -> FeatureSet:
    """Join features of the same images by several networks.

    The vectors of each network are centred on the mean of its base classes, normalised to unit length and concatenated,
    so that each network has the same weight in an inner product. The mean is that of base classes, since a mean of the
    joined set itself would depend on images outside of a task.

    Parameters
    ----------
    members : sequence of FeatureSet
        Two or more. Rows are matched by file names; without names, the labels of all must be equal row by row. All must
        have the same images.
    bases : sequence of BaseStatistics
        Statistics of the base classes, one for each member, of the same network; see ``BaseStatistics.of``.

    Returns
    -------
    FeatureSet
        float16, in the order and with the labels of the first member. ``about["joined"]`` describes the members. There
        are no vectors of class names.

    Notes
    -----
    Base statistics of the joined features cannot be computed from those of the members: normalisation is not linear,
    and the covariance between networks is in none of them. Compute them from joined features of base classes.

    Examples
    --------
    >>> import numpy as np
    >>> from a2lp.features import BaseStatistics, FeatureSet, join
    >>> one = FeatureSet([[1.0, 0.0], [3.0, 4.0]], [0, 1], files=["a.png", "b.png"])
    >>> other = FeatureSet([[0.0, 2.0], [5.0, 0.0]], [1, 0], files=["b.png", "a.png"])
    >>> bases = [BaseStatistics(np.zeros(2), np.zeros((1, 2)), np.eye(2))] * 2
    >>> join([one, other], bases).features.astype(float).round(1).tolist()
    [[1.0, 0.0, 1.0, 0.0], [0.6, 0.8, 0.0, 1.0]]
    """
    if len(members) < 2:
        raise InputError(f"{counted(len(members), 'feature set')} cannot be joined; give two or more.")
    if len(bases) != len(members):
        raise InputError(
            f"base statistics of {counted(len(bases), 'network')} are given for {len(members)} feature sets. Give one "
            "for each."
        )
    for member, base in zip(members, bases, strict=True):
        if base.mean.shape != member.features.shape[1:]:
            raise InputError(
                f"the base statistics of {member.name!r} have {len(base.mean)} dimensions and its features "
                f"{member.features.shape[1]}. Give those of the same network."
            )
    first = members[0]
    rows = [np.arange(len(first)), *(_matching_rows(first, other) for other in members[1:])]
    blocks = [_unit(*each) for each in zip(members, bases, rows, strict=True)]
    about: dict[str, Any] = {
        key: first.about[key]
        for key in ("dataset", "split")
        if key in first.about and all(member.about.get(key) == first.about[key] for member in members)
    }
    names = [str(member.about.get("backbone", member.name)) for member in members]
    about |= {"backbone": "+".join(names), "images": len(first)}
    about["joined"] = [{"name": member.name} | member.about for member in members]
    name = "+".join(member.name for member in members)
    joined = np.concatenate(blocks, axis=1)  # (n, d of all members)
    return FeatureSet(joined, first.labels, classes=first.classes, files=first.files, name=name, about=about)


def join_files(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    bases: Sequence[str | Path] = (),
    force: bool = False,
) -> FeatureSet:
    """Join feature files, and write the result; with labels, also its statistics, NAME_base.npz.

    Parameters
    ----------
    sources : sequence of paths or names
        Two or more feature files or bundled sets.
    out : path
        The .npz file to write.
    bases : sequence of paths or names, optional
        Base statistics or labelled features of base classes, one for each source. If not given, those of a bundled set,
        and NAME_train_base.npz beside a file NAME_test.npz.
    force : bool
        Whether existing files are replaced.
    """
    out = Path(out)
    check_target(out, (".npz",), "a file of features (`a2lp convert` makes other kinds)", force=force)
    found = [load_base(base) for base in bases or map(_base_beside, sources)]
    features = join([load(source) for source in sources], found)
    if features.labels is not None:
        BaseStatistics.of(features.features, features.labels).save(base_path(out), force=force)
    save(features, out, force=force)
    return features


def _unit(member: FeatureSet, base: BaseStatistics, rows: NDArray) -> NDArray:
    """Some rows of a set minus the base classes' mean, at unit length."""
    vectors = np.empty((len(rows), len(base.mean)), np.float16)
    for part in chunks(len(rows), _ROWS):
        vectors[part] = l2(member.features[rows[part]].astype(np.float32) - base.mean, overwrite=True)
    return vectors


def _base_beside(source: str | Path) -> str | Path:
    """Where the base statistics of a feature file are: of a bundled set by its name, else NAME_train_base.npz."""
    if isinstance(source, str) and source in BUNDLED:
        return source
    path = Path(source)
    name, _, split = path.stem.rpartition("_")
    beside = path.with_name(f"{name}_train_base.npz" if name else "train_base.npz")
    if split not in _SPLITS or not exists(beside):
        raise InputError(
            f"there are no base statistics for {source}: its name must end in a split, as in NAME_test.npz, and "
            f"{beside.name} must be beside it. Or name them, one for each file: --base FILE, in Python bases=."
        )
    return beside


def _matching_rows(first: FeatureSet, other: FeatureSet) -> NDArray:
    """The rows of ``other`` with the images of ``first``, in their order."""
    if first.files is None or other.files is None:
        rows = np.arange(len(other))
        # equal labels are what shows that the order is the same
        if first.labels is None or first.label_values != other.label_values:
            raise InputError(
                f"{first.name!r} and {other.name!r} do not both have file names, and their labels are not equal row by "
                "row: nothing shows which rows are of one image. Make the features with names, as `a2lp embed` does."
            )
        return rows
    place = {file: row for row, file in enumerate(other.files)}
    for files, name in ((first.files, first.name), (other.files, other.name)):
        file, times = Counter(files).most_common(1)[0]
        if times > 1:
            raise InputError(
                f"{name!r} has {shown(file)} {times} times; rows are matched by names, so these must differ."
            )
    missing = [(file, other.name) for file in first.files if file not in place]
    missing += [(file, first.name) for file in sorted(place.keys() - set(first.files))]
    if missing:
        file, where = missing[0]
        raise InputError(
            f"{first.name!r} and {other.name!r} must have the same images; {counted(len(missing), 'image')} of one are "
            f"not in the other: {where!r} lacks {shown(file)}. Embed the same images with both networks."
        )
    rows = np.array([place[file] for file in first.files])
    _check_classes(first, other, rows)
    return rows


def _check_classes(first: FeatureSet, other: FeatureSet, rows: NDArray) -> None:
    """Refuse an image that has one class here and another one there."""
    ours, theirs = first.label_values, other.label_values
    if ours is None or theirs is None:
        return
    for i, row in enumerate(rows.tolist()):
        if ours[i] != theirs[row]:
            files: Any = first.files
            raise InputError(
                f"{shown(files[i])} is of class {shown(ours[i])} in {first.name!r} and of {shown(theirs[row])} in "
                f"{other.name!r}. Correct the labels; a file name must be of one image."
            )
