from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from a2lp.errors import ClassTooSmallError, InputError, UnknownNameError
from a2lp.tasks.authors import AUTHORS_SEEDS, authors_tasks

# Classes 9, 2, 7, ... in order of appearance, of unequal sizes, their rows interleaved.
CLASSES, CLASS_SIZES = [9, 2, 7, 0, 4, 5], [14, 12, 20, 13, 12, 16]
LABELS = np.array([c for i in range(20) for c, size in zip(CLASSES, CLASS_SIZES, strict=True) if i < size])


def literal_runs(labels: np.ndarray, seed: int, n_way: int, n_examples: int, n_tasks: int) -> list[np.ndarray]:
    """The documented procedure, literally: a dict of rows, a list of states, a replay of each state."""
    data: dict[int, list[int]] = {}
    for row, label in enumerate(labels.tolist()):
        data.setdefault(label, []).append(row)
    smallest = min(len(rows) for rows in data.values())
    table = np.array([rows[:smallest] for rows in data.values()])
    rng = np.random.RandomState(seed)
    states = []
    for _ in range(n_tasks):
        states.append(rng.get_state())
        rng.permutation(len(table))
        for _ in range(n_way):
            rng.permutation(smallest)
    runs = []
    for state in states:
        rng.set_state(state)
        classes = rng.permutation(np.arange(len(table)))[:n_way]
        indices = np.arange(smallest)
        run = np.zeros((n_way, n_examples), int)
        for i in range(n_way):
            indices = rng.permutation(indices)
            run[i] = table[classes[i], indices][:n_examples]
        runs.append(run)
    return runs


@pytest.mark.parametrize("n_shot", [1, 5])
def test_tasks_follow_the_documented_procedure(n_shot: int) -> None:
    n_way, n_query = 4, 7
    tasks = authors_tasks(LABELS, None, n_shot=n_shot, n_way=n_way, n_query=n_query, n_tasks=25, seed=48)
    for t, run in enumerate(literal_runs(LABELS, 48, n_way, n_shot + n_query, 25)):
        assert tasks.support[t].tolist() == [run[c, k] for k in range(n_shot) for c in range(n_way)]
        assert tasks.support_labels[t].tolist() == [c for k in range(n_shot) for c in range(n_way)]
        assert tasks.query[t].tolist() == [run[c, n_shot + m] for m in range(n_query) for c in range(n_way)]
        assert tasks.query_labels[t].tolist() == [c for m in range(n_query) for c in range(n_way)]


def test_the_stream_depends_on_neither_shots_nor_queries() -> None:
    one, five, more = (
        authors_tasks(LABELS, None, n_shot=k, n_way=4, n_query=m, n_tasks=25, seed=0)
        for k, m in ((1, 5), (5, 5), (1, 11))
    )
    np.testing.assert_array_equal(five.support[:, :4], one.support)
    np.testing.assert_array_equal(more.support, one.support)
    np.testing.assert_array_equal(more.query[:, :20], one.query)
    np.testing.assert_array_equal(five.support[:, 4:], one.query[:, :16])


def test_the_global_generator_is_left_alone() -> None:
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    authors_tasks(LABELS, None, n_shot=1, n_way=4, n_query=5, n_tasks=3, seed=0)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@pytest.mark.parametrize("dataset", AUTHORS_SEEDS)
def test_a_file_of_the_authors_sizes_is_recognised(dataset: str) -> None:
    seed, n_classes, smallest = AUTHORS_SEEDS[dataset]
    sizes = np.full(n_classes, smallest + 3)
    sizes[1] = smallest
    labels = np.repeat(np.arange(n_classes), sizes)
    tasks = authors_tasks(labels, dataset, n_shot=1, n_tasks=2)
    assert (tasks.about["seed"], tasks.about["matches_authors_file"]) == (seed, True)
    own_seed = authors_tasks(labels, None, n_shot=1, n_tasks=2, seed=seed)
    np.testing.assert_array_equal(own_seed.query, tasks.query)
    for other in (labels[labels > 0], np.delete(labels, sizes[0])):  # a class fewer; a smaller smallest class
        assert authors_tasks(other, dataset, n_shot=1, n_tasks=2).about["matches_authors_file"] is False


def test_the_first_classes_of_seed_zero() -> None:
    """The start of NumPy's legacy stream, which never changes: permutation(20) after seed 0."""
    tasks = authors_tasks(np.repeat(np.arange(20), 600), "mini", n_shot=1, n_tasks=1)
    assert (tasks.support[0] // 600).tolist() == [18, 1, 19, 8, 10]


BAD: dict[str, tuple[dict[str, Any], type[Exception], list[str]]] = {
    "unknown dataset": ({"dataset": "minny"}, UnknownNameError, ["'minny'", "Did you mean 'mini'", "tiered"]),
    "neither": ({"dataset": None}, InputError, ["dataset=None", "seed=None", "exactly one"]),
    "both": ({"seed": 3}, InputError, ["dataset='mini'", "seed=3", "exactly one"]),
    "seed too large": (
        {"dataset": None, "seed": 2**32},
        InputError,
        ["seed=4294967296", "too large", "below 2**32"],
    ),
    "too many ways": ({"n_way": 7}, InputError, ["n_way=7", "labels have 6", "Ask for fewer"]),
    "class too small": (
        {"n_query": 15},
        ClassTooSmallError,
        ["needs 16 images per class (1 support + 15 query)", "class '2' has 12", "fewer shots or queries"],
    ),
    "no tasks": ({"n_tasks": 0}, InputError, ["n_tasks=0", "whole number", "1 or more"]),
}


@pytest.mark.parametrize(("change", "kind", "words"), BAD.values(), ids=BAD)
def test_bad_requests_are_named_with_their_remedy(
    change: dict[str, Any], kind: type[Exception], words: list[str]
) -> None:
    with pytest.raises(InputError) as raised:
        authors_tasks(**{"labels": LABELS, "dataset": "mini", "n_shot": 1, "n_query": 5} | change)
    assert type(raised.value) is kind
    for word in words:
        assert word in str(raised.value)


@pytest.mark.shared
@pytest.mark.parametrize("dataset", ["cub", "mini"])
def test_the_novel_classes_at_hand_have_the_authors_sizes(shared_data: Path, dataset: str) -> None:
    with np.load(shared_data / "features" / f"{dataset}_resnet12_test.npz", allow_pickle=False) as file:
        labels = file["labels"]
    tasks = authors_tasks(labels, dataset, n_shot=5)
    assert tasks.about["matches_authors_file"] is True
    tasks.check(len(labels))
    expected = literal_runs(labels, AUTHORS_SEEDS[dataset].seed, 5, 20, 1000)
    np.testing.assert_array_equal(tasks.query[999], expected[999][:, 5:].T.ravel())
