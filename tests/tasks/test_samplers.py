from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2lp.errors import ClassTooSmallError, InputError, ShapeError, UnknownNameError
from a2lp.tasks.authors import authors_tasks
from a2lp.tasks.lists import TaskList
from a2lp.tasks.samplers import SAMPLERS, draw, largest_remainder

# Classes of different sizes, their rows mixed up.
LABELS = np.random.default_rng(7).permutation(np.repeat(np.arange(12), np.arange(30, 42)))
SIZES = {"n_way": 5, "n_shot": 2, "n_query": 8, "n_tasks": 40}
OWN: dict[str, dict[str, Any]] = {
    "balanced": {},
    "dirichlet": {},
    "k_eff": {"k_eff": 3},
    "semi_supervised": {"n_unlabelled": 6, "n_distractors": 3},
}
SHUFFLED = sorted(OWN)  # the samplers that shuffle queries and share one stream of classes and supports


def check_tasks(tasks: TaskList, labels: np.ndarray, n_way: int, n_shot: int) -> None:
    """Rows are distinct, and each label of a task stands for one class of the file; by plain loops."""
    for t in range(len(tasks)):
        unlabelled = [] if tasks.unlabelled is None else tasks.unlabelled[t].tolist()
        rows = [*tasks.support[t].tolist(), *tasks.query[t].tolist(), *unlabelled]
        assert len(set(rows)) == len(rows)
        assert tasks.support_labels[t].tolist() == list(range(n_way)) * n_shot
        classes = labels[tasks.support[t, :n_way]]
        assert len(set(classes.tolist())) == n_way
        assert (labels[tasks.support[t]] == classes[tasks.support_labels[t]]).all()
        assert (labels[tasks.query[t]] == classes[tasks.query_labels[t]]).all()


def query_counts(tasks: TaskList, n_way: int) -> np.ndarray:
    return np.stack([np.bincount(row, minlength=n_way) for row in tasks.query_labels])


@given(
    name=st.sampled_from(SHUFFLED),
    class_sizes=st.lists(st.integers(20, 28), min_size=5, max_size=9),  # room for all queries of k_eff=1
    n_way=st.integers(1, 4),
    n_shot=st.integers(1, 4),
    per_class=st.integers(1, 4),
    text=st.booleans(),
    seed=st.integers(0, 2**64),
)
def test_tasks_are_what_was_asked_for(
    name: str, class_sizes: list[int], n_way: int, n_shot: int, per_class: int, text: bool, seed: int
) -> None:
    values = np.array([f"class {i}" for i in range(len(class_sizes))]) if text else np.arange(len(class_sizes)) * 3 - 4
    labels = np.repeat(values, class_sizes)
    own = {"k_eff": {"k_eff": 1}, "semi_supervised": {"n_unlabelled": 4, "n_distractors": 1}}.get(name, {})
    tasks = draw(name, labels, seed=seed, n_way=n_way, n_shot=n_shot, n_query=per_class, n_tasks=3, **own)
    check_tasks(tasks, labels, n_way, n_shot)
    assert tasks.query.shape == (3, per_class * n_way)
    asked = {
        "sampler": name,
        "n_way": n_way,
        "n_shot": n_shot,
        "n_query": per_class,
        "n_tasks": 3,
        "seed": seed,
        **own,
    }
    assert asked.items() <= tasks.about.items()


def test_balanced_has_equal_counts() -> None:
    assert (query_counts(draw("balanced", LABELS, seed=0, **SIZES), 5) == 8).all()


@pytest.mark.parametrize(("n_query", "counts"), [(6, [0, 0, 10, 10, 10]), (8, [0, 0, 13, 13, 14])])
def test_k_eff_spreads_queries_evenly_over_classes_that_vary(n_query: int, counts: list[int]) -> None:
    tasks = draw("k_eff", LABELS, seed=0, **SIZES | {"n_query": n_query, "k_eff": 3, "n_tasks": 300})
    found = query_counts(tasks, 5)
    assert (np.sort(found, axis=1) == counts).all()
    assert len({tuple(row > 0) for row in found}) == 10  # every choice of 3 of 5 classes


def test_unlabelled_rows_are_of_the_classes_and_the_distractors() -> None:
    tasks = draw("semi_supervised", LABELS, seed=0, **SIZES, n_unlabelled=6, n_distractors=3)
    assert tasks.unlabelled is not None
    for t in range(len(tasks)):
        classes, counts = np.unique(LABELS[tasks.unlabelled[t]], return_counts=True)
        assert counts.tolist() == [6] * 8
        assert set(LABELS[tasks.support[t]]) < set(classes)


def test_dirichlet_shares_have_the_mean_and_variance_of_the_distribution() -> None:
    labels = np.repeat(np.arange(6), 200)
    tasks = draw("dirichlet", labels, seed=1, n_way=5, n_shot=1, n_query=15, n_tasks=4000, alpha=2.0)
    shares = query_counts(tasks, 5) / 75
    np.testing.assert_allclose(shares.mean(axis=0), 1 / 5, atol=4 * np.sqrt(0.16 / 11 / 4000))
    np.testing.assert_allclose(shares.var(), 0.16 / 11, rtol=0.05)  # p(1 - p) / (N alpha + 1)
    assert tasks.about["redraws"] == 0


def test_dirichlet_redraws_where_a_class_is_too_small() -> None:
    labels = np.repeat(np.arange(5), [18, 18, 30, 40, 50])
    tasks = draw("dirichlet", labels, seed=0, n_way=5, n_shot=3, n_query=15, n_tasks=100)
    check_tasks(tasks, labels, 5, 3)
    assert tasks.about["redraws"] > 50
    again = draw("dirichlet", labels, seed=0, n_way=5, n_shot=3, n_query=15, n_tasks=100)
    assert again.about == tasks.about


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=8), st.integers(1, 100))
def test_largest_remainder_is_the_closest_division(weights: list[float], total: int) -> None:
    shares = np.array(weights) / np.sum(weights)
    counts = largest_remainder(shares, total)
    assert counts.sum() == total
    error = counts - shares * total
    assert (np.abs(error) < 1 + 1e-9).all()
    # No query could move from one class to another and come closer.
    assert error.max() - error.min() <= 1 + 1e-9


@pytest.mark.parametrize("name", SHUFFLED)
def test_a_seed_gives_the_same_tasks_and_another_seed_others(name: str) -> None:
    asked = SIZES | OWN[name]
    first, again, other = (draw(name, LABELS, seed=seed, **asked) for seed in (3, 3, 4))
    for part in ("support", "query", "query_labels"):
        np.testing.assert_array_equal(getattr(first, part), getattr(again, part))
        assert (getattr(first, part) != getattr(other, part)).any()
    assert (first.about, first.about["seed"]) == (again.about, 3)
    longer = draw(name, LABELS, seed=3, **asked | {"n_tasks": 60})
    np.testing.assert_array_equal(longer.query[:40], first.query)
    check_tasks(first, LABELS, 5, 2)


# Of the tasks below as they were drawn when the imbalanced samplers still took the number of queries of a whole task.
DRAWN_BEFORE = {
    "balanced": "e3396aa2c44b003b",
    "dirichlet": "bd986a4573fb8cdf",
    "k_eff": "0369dcc88a9bd050",
    "semi_supervised": "b93144274681f5eb",
    "authors": "93c4e93cbfdb2697",
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_seed_gives_the_tasks_that_it_always_gave(name: str) -> None:
    source = {"dataset": "cub"} if name == "authors" else {"seed": 3, **OWN[name]}
    tasks = draw(name, LABELS, **SIZES, **source)
    digest = hashlib.sha256()
    for part in (tasks.support, tasks.support_labels, tasks.query, tasks.query_labels, tasks.unlabelled):
        if part is not None:
            digest.update(np.ascontiguousarray(part, dtype="<i8").tobytes())
    assert digest.hexdigest()[:16] == DRAWN_BEFORE[name]


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_draws_n_query_per_class_on_average(name: str) -> None:
    source = {"dataset": "cub"} if name == "authors" else {"seed": 3, **OWN[name]}
    tasks = draw(name, LABELS, **SIZES, **source)
    assert tasks.query.shape == (40, 5 * 8)
    assert tasks.about["n_query"] == 8


def test_the_authors_sampler_takes_a_dataset_or_a_seed() -> None:
    by_name = draw("authors", LABELS, dataset="cub", **SIZES)
    expected = authors_tasks(LABELS, "cub", **SIZES)
    np.testing.assert_array_equal(by_name.query, expected.query)
    assert by_name.about == expected.about
    own_seed = draw("authors", LABELS, seed=48, **SIZES)  # the published seed of CUB
    np.testing.assert_array_equal(own_seed.query, expected.query)
    for source in ({}, {"dataset": "cub", "seed": 0}):
        with pytest.raises(InputError, match="Give exactly one of the two"):
            draw("authors", LABELS, **source, **SIZES)


def test_a_generator_moves_on() -> None:
    rng = np.random.default_rng(0)
    first, second = (draw("balanced", LABELS, seed=rng, **SIZES) for _ in range(2))
    assert (first.support != second.support).any()
    assert first.about["seed"] is None


@pytest.mark.parametrize("name", SHUFFLED)
def test_classes_and_support_depend_on_the_seed_alone(name: str) -> None:
    reference = draw("balanced", LABELS, seed=3, **SIZES)
    tasks = draw(name, LABELS, seed=3, **SIZES | OWN[name] | {"n_shot": 4})
    np.testing.assert_array_equal(tasks.support[:, :10], reference.support)


def test_every_row_is_drawn_equally_often_and_order_says_nothing() -> None:
    labels = np.repeat(np.arange(10), 20)
    tasks = draw("balanced", labels, seed=0, n_way=5, n_shot=2, n_query=6, n_tasks=4000)
    for rows, expected in ((tasks.support, 4000 * 10 / 200), (tasks.query, 4000 * 30 / 200)):
        counts = np.bincount(rows.ravel(), minlength=200)
        assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()
    for label in range(5):  # the mean position of a class among 30 shuffled queries is 14.5, its sd 8.7
        assert abs(np.argwhere(tasks.query_labels == label)[:, 1].mean() - 14.5) < 0.3


NAMES = [f"bird {i}" for i in range(12)]
BAD: dict[str, tuple[str, dict[str, Any], type[Exception], list[str]]] = {
    "class too small": (
        "balanced",
        {"n_shot": 16, "n_query": 15},
        ClassTooSmallError,
        [
            "n_shot=16 needs 31 images per class (16 support + 15 query)",
            "class 'bird 0' has 30",
            "fewer shots or queries",
        ],
    ),
    "class too small for k_eff": (
        "k_eff",
        {"n_query": 12, "k_eff": 2},
        ClassTooSmallError,
        ["needs 32 images per class (2 support + 30 query)", "'bird 0' has 30", "Ask for fewer"],
    ),
    "class too small for unlabelled": (
        "semi_supervised",
        {"n_unlabelled": 21},
        ClassTooSmallError,
        ["needs 31 images per class (2 support + 8 query + 21 unlabelled)", "'bird 0' has 30", "fewer"],
    ),
    "class too small for support": (
        "dirichlet",
        {"n_shot": 31},
        ClassTooSmallError,
        ["needs 31 images per class (31 support)", "'bird 0' has 30", "fewer shots"],
    ),
    "queries that never fit": (
        "dirichlet",
        {"n_query": 200},
        ClassTooSmallError,
        ["n_query=200 asks for 1000 queries", "1000 redraws", "class 'bird", "Ask for fewer"],
    ),
    "too many ways": ("balanced", {"n_way": 13}, InputError, ["n_way=13", "labels have 12", "Ask for fewer"]),
    "too many distractors": (
        "semi_supervised",
        {"n_unlabelled": 2, "n_distractors": 8},
        InputError,
        ["n_way=5 and n_distractors=8 needs 13 classes", "labels have 12", "Ask for fewer"],
    ),
    "fewer than no shots": ("balanced", {"n_shot": -1}, InputError, ["n_shot=-1", "whole number, 0 or more"]),
    "half a query": ("balanced", {"n_query": 0.5}, InputError, ["n_query=0.5", "whole number", "1 or more"]),
    "negative seed": ("balanced", {"seed": -1}, InputError, ["seed=-1", "whole number", "0 or more"]),
    "alpha": ("dirichlet", {"alpha": 0.0}, InputError, ["alpha=0.0", "positive", "usual choice"]),
    "alpha NaN": ("dirichlet", {"alpha": np.nan}, InputError, ["alpha=nan", "positive", "usual choice"]),
    "k_eff over ways": ("k_eff", {"k_eff": 6}, InputError, ["k_eff=6", "n_way=5", "Ask for k_eff=5"]),
    "k_eff left out": ("k_eff", {}, InputError, ["sampler 'k_eff' needs 'k_eff'", "Give it a value"]),
    "not its option": ("balanced", {"alpha": 2}, InputError, ["'balanced'", "'alpha'", "It takes n_way"]),
    "unknown sampler": ("dirichelt", {}, UnknownNameError, ["'dirichelt'", "'dirichlet'", "balanced"]),
    "labels missing": (
        "balanced",
        {"labels": None},
        ShapeError,
        ["labels has shape ()", "one label for each row"],
    ),
    "labels of two axes": (
        "balanced",
        {"labels": LABELS[None]},
        ShapeError,
        ["(1, 426)", "one label for each row"],
    ),
}


@pytest.mark.parametrize(("name", "change", "kind", "words"), BAD.values(), ids=BAD)
def test_bad_requests_are_named_with_their_remedy(
    name: str, change: dict[str, Any], kind: type[Exception], words: list[str]
) -> None:
    with pytest.raises(InputError) as raised:
        draw(name, **{"labels": LABELS, "seed": 0, "class_names": NAMES} | SIZES | change)
    assert type(raised.value) is kind
    for word in words:
        assert word in str(raised.value)


def test_without_names_a_class_is_called_by_its_label() -> None:
    labels = np.repeat(["crow", "wren"], [30, 12])
    with pytest.raises(ClassTooSmallError, match="class 'wren' has 12"):
        draw("balanced", labels, seed=0, n_way=2, n_shot=5, n_query=15, n_tasks=1)
