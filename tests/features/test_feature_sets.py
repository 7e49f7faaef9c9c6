from __future__ import annotations

import json

import numpy as np
import pytest

from a2lp.errors import InputError
from a2lp.features import FeatureSet

X = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("f2", "f2"), ("f4", "f4"), ("f8", "f8"), (">f4", "f4"), ("u1", "f4"), ("i8", "f4"), ("?", "f4")],
)
def test_floats_keep_their_width_and_integers_become_float32(given: str, kept: str) -> None:
    values = X.astype(given)
    made = FeatureSet(values[:, ::-1]).features
    assert made.dtype == np.dtype(kept)
    assert made.dtype.isnative
    assert made.flags.c_contiguous
    assert (made == values[:, ::-1]).all()


def test_names_as_labels_become_positions_in_sorted_classes() -> None:
    labels = ["wren", "auk", "wren", "Ötzi"]
    for given in (labels, np.array(labels), [name.encode() for name in labels], np.array(labels, dtype=object)):
        made = FeatureSet(X, given)
        assert made.classes == ("auk", "wren", "Ötzi")
        assert made.labels is not None
        assert [made.class_name(int(label)) for label in made.labels] == labels
        assert made.labels.dtype == np.int64


def test_classes_may_list_more_than_occur() -> None:
    made = FeatureSet(X, [2, 0, 2, 0], ["a", "b", "c"])
    assert made.n_classes == 2
    assert made.class_name(1) == "b"
    assert FeatureSet(X, ["c", "a", "c", "a"], ["a", "b", "c"]).labels.tolist() == [2, 0, 2, 0]
    with pytest.raises(InputError, match=r"label=3 .* 0 to 2"):
        made.class_name(3)
    assert FeatureSet(X, [80, 81, 80, 99]).class_name(99) == "99"


def test_about_is_what_json_holds() -> None:
    about = {"split": "novel", "sizes": (1, 2)}
    made = FeatureSet(X, about=about)
    assert made.about == json.loads(json.dumps(about))
    assert made.about is not about


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"features": X[0]}, r"shape \(3,\).*\(N, d\)"),
        ({"features": X[:0]}, r"shape \(0, 3\)"),
        ({"features": [[1.0], [1.0, 2.0]]}, r"one length"),
        ({"features": X.astype(complex)}, r"complex128.*astype"),
        ({"features": X.astype(str)}, r"astype"),
        ({"features": np.where(X == 7, np.nan, X)}, r"features\[2, 1\].*nan.*Drop"),
        ({"features": np.where(X == 7, -np.inf, X)}, r"features\[2, 1\].*-inf"),
        ({"labels": [0, 1]}, r"labels has shape \(2,\).*4 rows"),
        ({"labels": [0, 1, -1, 0]}, r"labels\[2\] is -1"),
        ({"labels": [0, 1, 2, 0], "classes": ["a", "b"]}, r"labels\[2\] is 2.*0 to 1"),
        ({"labels": [0.0, 1.0, 0.0, 1.0]}, r"float64.*astype"),
        ({"labels": ["a", "b", None, "a"]}, r"labels\[2\] is None"),
        ({"labels": ["a", "b", "", "a"]}, r"is empty.*every row a label"),
        ({"labels": ["a", "b", "x", "a"], "classes": ["a", "b"]}, r"labels\[2\] is 'x'.*2 class names"),
        ({"classes": ["a", "b", "a"]}, r"classes\[0\] and classes\[2\] are both 'a'"),
        ({"classes": "abc"}, r"sequence of text"),
        ({"classes": ["a\0"]}, r"classes\[0\].*NUL"),
        ({"files": ["a", "b", "c", "\udc80"]}, r"files\[3\].*UTF-8"),
        ({"files": [b"a", b"\xff", b"c", b"d"]}, r"files\[1\].*UTF-8"),
        ({"files": ["a"]}, r"files has 1 names.*4 rows"),
        ({"about": {"x": X}}, r"about.*JSON"),
        ({"about": {"x": float("nan")}}, r"about.*JSON"),
        ({"about": []}, r"must be a dict"),
    ],
)
def test_bad_sets_say_what_is_wrong(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FeatureSet(**({"features": X} | fields))
