"""``a2lp.label``: vectors and a few labels in, a table out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from a2lp import Pool, labelling
from a2lp.errors import InputError, ShapeError, UnknownNameError
from a2lp.features import load
from a2lp.labelling.classify import Labelled, label
from a2lp.pool.graph import from_sparse

COLUMNS = ["index", "label", "confidence", "second", "margin", "reached", "nearest", "given", "how", "novelty"]


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Six hundred digits and what they are."""
    found = load("digits")
    assert found.labels is not None
    return found.features[:600], found.labels[:600]


@pytest.fixture(scope="module")
def result(digits: Any) -> Labelled:
    x, y = digits
    return label(x, [*y[:40].tolist(), *[-1] * 560])


def test_the_table(digits: Any, result: Labelled) -> None:
    _, y = digits
    assert list(result.table) == COLUMNS
    assert all(len(column) == 600 for column in result.table.values())
    assert (result.table["label"][40:] == y[40:]).mean() > 0.85
    np.testing.assert_array_equal(result.table["label"][:40], y[:40])
    np.testing.assert_array_equal(result.table["given"], np.arange(600) < 40)
    assert result.table["reached"].all()
    assert set(result.table["nearest"]) <= set(range(40))
    totals = result.probabilities.sum(axis=1)  # less than 1 by the probability of a class that nobody labelled
    np.testing.assert_allclose(totals[:40], 1, atol=1e-6)
    assert totals[40:].max() <= 1 + 1e-6
    assert 1 - totals[40:].mean() == pytest.approx(result.assessment.unseen, abs=1e-6)
    assert repr(result).startswith("Labelled(600 points, 40 of them given: 10 classes")

    for row in result.rows():
        if not row["given"]:
            second, first = np.argsort(result.probabilities[row["index"]])[-2:]
            assert (row["label"], row["second"]) == (result.classes[first], result.classes[second])
            ordered = np.sort(result.probabilities[row["index"]])[::-1]
            assert row["confidence"] == pytest.approx(ordered[0])
            assert row["margin"] == pytest.approx(ordered[0] - ordered[1])


def test_data_frames(digits: Any, result: Labelled) -> None:
    pandas = pytest.importorskip("pandas")
    x, y = digits
    frame = pandas.DataFrame(result.table)
    assert frame["label"].dtype.kind in "iO"
    assert frame[frame.given].index.tolist() == list(range(40))

    names = [f"digit {i}" for i in range(600)]
    vectors = pandas.DataFrame(x, index=pandas.Index(names, name="id"))
    some = pandas.Series(y.astype(float)).where(pandas.Series(range(600)) < 40)
    other = label(vectors, some)
    assert list(other.table) == ["id", *COLUMNS[1:]]
    assert other.table["id"].tolist() == names
    assert set(other.table["nearest"]) <= set(names[:40])
    np.testing.assert_array_equal(other.table["label"].astype(int), result.table["label"])


def test_labels_by_key_are_the_same_labels(digits: Any, result: Labelled) -> None:
    x, y = digits
    words = {row: f"digit {y[row]}" for row in range(40)}
    other = label(x, words)
    assert other.table["label"].tolist() == [f"digit {name}" for name in result.table["label"]]
    np.testing.assert_allclose(other.probabilities, result.probabilities, atol=1e-6)


def test_abstaining(digits: Any, result: Labelled) -> None:
    x, y = digits
    some = label(x, dict(enumerate(y[:40].tolist())), abstain=0.8)
    none = np.array([name is None for name in some.table["label"]])
    np.testing.assert_array_equal(none, (result.table["confidence"] < 0.8) & ~result.table["given"])
    assert 0 < none.sum() < 560
    np.testing.assert_array_equal(some.table["label"][~none], result.table["label"][~none])


def test_a_target(digits: Any, result: Labelled) -> None:
    x, y = digits
    few = dict(enumerate(y[:40].tolist()))
    some = label(x, few, target=0.95, reject=0.1)
    assert some.kept.accuracy >= 0.95 > result.assessment.accuracy
    assert result.kept == (result.assessment.accuracy, result.assessment.low, result.assessment.high)
    rejected = label(x, few, reject=0.1).unlabelled
    assert (some.unlabelled[rejected]).all() and some.unlabelled.sum() > rejected.sum()


def test_rejecting(digits: Any) -> None:
    """Of four digits, two are nowhere labelled: they are most of what is left out."""
    x, y = (part[digits[1] < 4] for part in digits)
    few = {row: int(y[row]) for row in range(40) if y[row] < 2}
    some = label(x, few, reject=0.25)
    none = np.array([name is None for name in some.table["label"]])
    assert none.sum() == round(0.25 * (len(x) - len(few)))
    assert some.table["novelty"][none].min() >= some.table["novelty"][~none].max()
    assert (y[none] >= 2).mean() > 0.9


def test_points_that_no_label_reaches() -> None:
    ring = np.roll(np.eye(8), 1, axis=1)
    graph = from_sparse(np.kron(np.eye(3), ring))  # three rings that do not touch
    made = label(graph, {0: "auk", 4: "auk", 8: "wren"}, method="lp")
    np.testing.assert_array_equal(made.table["reached"], np.arange(24) < 16)
    assert made.table["label"].tolist() == ["auk"] * 8 + ["wren"] * 8 + ["auk"] * 8
    assert made.table["nearest"][[7, 3, 15, 16]].tolist() == [0, 4, 8, None]


def test_what_is_refused(digits: Any) -> None:
    x, y = digits
    some = dict(enumerate(y[:40].tolist()))
    holed = x.copy()
    holed[3, 2] = np.nan
    bad: list[tuple[type[Exception], str, Any, Any, dict[str, Any]]] = [
        (InputError, "`900`", x, some | {900: 1}, {}),
        (InputError, "only the class", x, {0: "auk", 1: "auk"}, {}),
        (InputError, "none of the 600", x, [-1] * 600, {}),
        (InputError, "abstain=80", x, some, {"abstain": 80}),
        (InputError, "reject=1", x, some, {"reject": 1}),
        (InputError, "toarray", csr_array(x), some, {}),
        (ShapeError, "599 names", x, some, {"keys": range(599)}),
        (ShapeError, r"\(600,\)", x[:, 0], some, {}),
        (InputError, r"features\[3, 2\]", holed, some, {}),
        (UnknownNameError, "'auto'", x, some, {"method": "autoo"}),
    ]
    for error, words, vectors, labels, options in bad:
        with pytest.raises(error, match=words):
            label(vectors, labels, **options)
    with pytest.raises(ValueError, match="600"):
        label(x, y[:40])


def test_exported_names_load() -> None:
    for name in labelling.__all__:
        assert getattr(labelling, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        _ = labelling.nothing


def test_an_earlier_result_is_continued(digits: Any, result: Labelled) -> None:
    x, y = digits
    before = result.table["label"].copy()
    pool = Pool(x, [*y[:40].tolist(), *[-1] * 560])
    pool.label(50, int(y[50]))
    more = label(pool, None)
    assert more.pool is pool and more.table["given"][50]
    again = label(x, dict(enumerate(y[:40].tolist())) | {50: int(y[50])})
    np.testing.assert_array_equal(more.table["label"], again.table["label"])
    other = label(pool, dict(enumerate(y[:40].tolist())))  # all labels anew, on the same graph
    assert (other.table["label"] == before).mean() > 0.99  # the weights of auto are those of 41 labels
