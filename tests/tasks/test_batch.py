from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2lp.arrays import namespace, to_numpy
from a2lp.errors import InputError, ShapeError
from a2lp.tasks.batch import TaskBatch

torch = pytest.importorskip("torch")

LIBRARIES = {"numpy": np, "torch": torch, "array_api_strict": array_api_strict}

# NumPy strings end at a NUL, so text labels have none.
INTEGERS = st.integers(-(2**40), 2**40)
TEXTS = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), max_size=6)


@st.composite
def labels_of_batches(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> list[list[Any]]:
    """Labels (b, s) of tasks that share the number of classes; shots per class are unequal."""
    n_tasks, n_classes, extra = draw(st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(0, 4)))
    tasks = []
    for _ in range(n_tasks):
        classes = draw(st.lists(values, min_size=n_classes, max_size=n_classes, unique=True))
        more = draw(st.lists(st.sampled_from(classes), min_size=extra, max_size=extra))
        tasks.append(draw(st.permutations(classes + more)))
    return tasks


def batch_of(labels: Any, xp: Any = np, n_query: int = 3) -> TaskBatch:
    shape = np.shape(to_numpy(labels))
    return TaskBatch(xp.ones((*shape, 2)), labels, xp.ones((shape[0], n_query, 2)))


@given(labels_of_batches(INTEGERS) | labels_of_batches(TEXTS))
def test_labels_survive_encoding(labels: list[list[Any]]) -> None:
    batch = batch_of(labels)
    for row, classes, codes in zip(labels, batch.classes, batch.codes, strict=True):
        assert classes.tolist() == sorted(set(row))
        assert [sorted(set(row)).index(label) for label in row] == codes.tolist()
    assert batch.decode(batch.codes).tolist() == labels


@given(labels_of_batches(TEXTS), st.data())
def test_any_codes_decode_to_their_own_tasks_labels(labels: list[list[str]], data: st.DataObject) -> None:
    batch = batch_of(labels)
    codes = data.draw(
        st.lists(
            st.lists(st.integers(0, batch.n_classes - 1), min_size=3, max_size=3),
            min_size=len(labels),
            max_size=len(labels),
        )
    )
    expected = [[sorted(set(row))[c] for c in task] for row, task in zip(labels, codes, strict=True)]
    assert batch.decode(np.array(codes)).tolist() == expected


@pytest.mark.parametrize("library", LIBRARIES)
def test_arrays_stay_of_the_callers_kind(library: str) -> None:
    xp = LIBRARIES[library]
    labels = xp.asarray([[7, 3, 3], [1, 5, 1]])
    batch = TaskBatch(xp.ones((2, 3, 4)), labels, xp.ones((2, 5, 4)), xp.zeros((2, 1, 4)))
    for array in (
        batch.support,
        batch.query,
        batch.unlabelled,
        batch.codes,
        batch.points,
        batch.decode(batch.codes),
    ):
        assert namespace(array) is namespace(labels)
    assert to_numpy(batch.codes).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert to_numpy(batch.decode(batch.codes)).tolist() == to_numpy(labels).tolist()
    assert to_numpy(batch.points)[0, :, 0].tolist() == [1] * 8 + [0]


@pytest.mark.parametrize("library", LIBRARIES)
def test_text_labels_come_back_as_numpy_whatever_the_vectors_are(library: str) -> None:
    batch = batch_of([["b", "a", "b"]], LIBRARIES[library])
    assert namespace(batch.codes) is namespace(batch.support)
    assert batch.decode(batch.codes).tolist() == [["b", "a", "b"]]


@pytest.mark.parametrize(
    "library",
    [
        "numpy",
        "torch",
        "array_api_strict",
    ],
)
def test_a_slice_is_the_batch_of_those_tasks(library: str) -> None:
    xp = LIBRARIES[library]
    values = np.arange(3 * 4 * 2, dtype=np.float64).reshape(3, 4, 2)
    labels = [["a", "b", "b", "b"], ["d", "c", "c", "d"], ["e", "e", "f", "e"]]
    batch = TaskBatch(xp.asarray(values), labels, xp.asarray(values + 100), xp.asarray(values + 200))
    part = batch[1:]
    assert (len(part), part.n_classes, part.n_unlabelled) == (2, 2, 4)
    np.testing.assert_array_equal(to_numpy(part.points), to_numpy(batch.points)[1:])
    assert part.decode(part.codes).tolist() == labels[1:]


@pytest.mark.parametrize(
    ("given_dtype", "kept"),
    [("float16", "float32"), ("float32", "float32"), ("float64", "float64"), ("int8", "float64")],
)
def test_narrow_numbers_are_widened(given_dtype: str, kept: str) -> None:
    batch = TaskBatch(np.ones((1, 2, 3), given_dtype), [[0, 1]], np.ones((1, 2, 3), given_dtype))
    assert batch.support.dtype == batch.query.dtype == kept


def at(array: np.ndarray, value: float) -> np.ndarray:
    array = array.copy()
    array[1, 2, 3] = value
    return array


SUPPORT, LABELS, QUERY = np.ones((2, 3, 4)), [[0, 1, 1], [0, 0, 1]], np.ones((2, 5, 4))
BAD: dict[str, Any] = {
    "one task without its axis": (
        {"support": SUPPORT[0]},
        ShapeError,
        ["(3, 4)", "three axes", "support[None]"],
    ),
    "four axes": ({"query": QUERY[None]}, ShapeError, ["query", "(1, 2, 5, 4)", "three axes"]),
    "empty support": ({"support": SUPPORT[:, :0]}, ShapeError, ["support", "(2, 0, 4)", "at least one"]),
    "no queries": ({"query": QUERY[:, :0]}, ShapeError, ["query", "(2, 0, 4)", "at least one"]),
    "no tasks": ({"support": SUPPORT[:0]}, ShapeError, ["(0, 3, 4)", "at least one"]),
    "other tasks": ({"query": QUERY[:1]}, ShapeError, ["2 tasks", "query has 1", "same tasks"]),
    "other unlabelled tasks": ({"unlabelled": QUERY[:1]}, ShapeError, ["unlabelled has 1", "same tasks"]),
    "other width": ({"query": QUERY[..., :3]}, ShapeError, ["4 dimensions", "have 3", "same backbone"]),
    "NaN": ({"support": at(SUPPORT, np.nan)}, InputError, ["support[1, 2, 3] is nan", "finite", "Drop"]),
    "inf": ({"query": at(QUERY, -np.inf)}, InputError, ["query[1, 2, 3] is -inf", "finite", "Drop"]),
    "unlabelled NaN": (
        {"unlabelled": at(QUERY, np.nan)},
        InputError,
        ["unlabelled[1, 2, 3]", "finite", "Drop"],
    ),
    "tasks that differ in size": (
        {"query": [QUERY[0], QUERY[0, :2]]},
        ShapeError,
        ["query", "split the batch"],
    ),
    "text in lists": ({"support": [[["x"] * 4] * 3] * 2}, ShapeError, ["support", "<U1", "array of numbers"]),
    "text in an array": ({"support": SUPPORT.astype(str)}, ShapeError, ["support", "<U", "array of numbers"]),
    "complex": ({"support": SUPPORT + 1j}, ShapeError, ["support", "complex128", "array of numbers"]),
    "two libraries": (
        {"query": torch.ones(2, 5, 4)},
        InputError,
        ["numpy.ndarray", "torch.Tensor", "Convert"],
    ),
    "labels of one task": (
        {"support_labels": [0, 1, 1]},
        ShapeError,
        ["(3,)", "(2, 3)", "one label for each"],
    ),
    "a label too few": (
        {"support_labels": [[0, 1], [0, 1]]},
        ShapeError,
        ["(2, 2)", "(2, 3)", "one label for each"],
    ),
    "ragged labels": ({"support_labels": [[0, 1, 1], [0, 1]]}, ShapeError, ["(2, 3)", "one label for each"]),
    "NaN label": (
        {"support_labels": [[0, 1, np.nan]] * 2},
        InputError,
        ["NaN", "needs a label", "`unlabelled`"],
    ),
    "None label": (
        {"support_labels": [["a", "b", None]] * 2},
        InputError,
        ["NoneType, str", "one kind of label"],
    ),
    "numbers of classes": (
        {"support_labels": [[0, 1, 1], [0, 1, 2]]},
        ShapeError,
        ["task 0 has 2", "task 1 has 3", "Split the batch"],
    ),
}


@pytest.mark.parametrize(("change", "kind", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_named_with_its_remedy(change: dict[str, Any], kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        TaskBatch(**{"support": SUPPORT, "support_labels": LABELS, "query": QUERY} | change)
    assert type(raised.value) is kind
    for word in words:
        assert word in str(raised.value)
