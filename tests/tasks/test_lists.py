from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from a2lp.errors import FeatureFileError, InputError, ShapeError
from a2lp.tasks import lists
from a2lp.tasks.lists import TaskList

GOOD: dict[str, Any] = {
    "support": [[0, 5], [6, 1]],
    "support_labels": [[0, 1], [1, 0]],
    "query": [[6, 1, 7], [0, 2, 5]],
    "query_labels": [[1, 0, 1], [0, 0, 1]],
}
ABOUT = {"sampler": "by hand", "n_way": 2, "seed": None, "redraws": 0}
PARTS = ("support", "support_labels", "query", "query_labels", "unlabelled")


def assert_same(a: TaskList, b: TaskList) -> None:
    for name in PARTS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert a.about == b.about


@pytest.mark.parametrize("unlabelled", [None, [[3, 4, 9], [3, 4, 8]]])
def test_a_saved_list_reads_back_the_same(tmp_path: Path, unlabelled: Any) -> None:
    tasks = TaskList(**GOOD, unlabelled=unlabelled, about=ABOUT)
    path = tmp_path / "tasks.npz"
    tasks.save(path)
    assert_same(TaskList.load(path), tasks)
    assert [p.name for p in tmp_path.iterdir()] == ["tasks.npz"]
    with np.load(path, allow_pickle=False) as file:
        expected = set(GOOD) | {"about"} | ({"unlabelled"} if unlabelled else set())
        assert set(file) == expected


def test_narrow_integers_and_foreign_keys_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "tasks.npz"
    narrow = {name: np.array(rows, np.int8 if "labels" in name else np.uint32) for name, rows in GOOD.items()}
    np.savez(path, **narrow, l2_lp=np.zeros(3), notes=np.array(["x"]))
    tasks = TaskList.load(path)
    assert_same(tasks, TaskList(**GOOD))
    assert {getattr(tasks, name).dtype for name in GOOD} == {np.dtype(np.int64)}


def test_a_batch_holds_the_rows_of_the_list() -> None:
    features = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float16)
    tasks = TaskList(**GOOD, unlabelled=[[3, 4], [9, 8]])
    batch = tasks.batch(features)
    for t in range(2):
        for name in ("support", "query", "unlabelled"):
            for i, row in enumerate(getattr(tasks, name)[t]):
                assert getattr(batch, name)[t, i].tolist() == features[row].tolist()
    assert batch.support.dtype == np.float32
    np.testing.assert_array_equal(batch.decode(batch.codes), GOOD["support_labels"])


def test_a_slice_is_the_list_of_those_tasks() -> None:
    tasks = TaskList(**GOOD, unlabelled=[[3], [9]], about=ABOUT)
    part = tasks[1:]
    assert (len(part), part.n_way, part.n_shot, part.about) == (1, 2, 1, ABOUT)
    for name in PARTS:
        np.testing.assert_array_equal(getattr(part, name), getattr(tasks, name)[1:])
        assert np.shares_memory(getattr(part, name), getattr(tasks, name))
    assert repr(part) == "TaskList(1 tasks: 2 ways, 1 shots, 3 query, 1 unlabelled)"
    with pytest.raises(InputError, match="leaves none of the 2 tasks"):
        tasks[2:]


def test_a_slice_is_not_validated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a part of a list that is valid, and benches slice a list hundreds of times."""
    tasks = TaskList(**GOOD)

    def refuse(*_: object) -> None:
        raise AssertionError("a slice is validated")

    for name in ("_integers", "_check_shapes", "_check_labels", "_check_disjoint"):
        monkeypatch.setattr(lists, name, refuse)
    assert len(tasks[:1]) == 1


def test_rows_beyond_the_feature_file_name_the_other_file() -> None:
    tasks = TaskList(**GOOD, unlabelled=[[3], [2990]])
    tasks.check(2991)
    with pytest.raises(InputError, match=r"row 2990 but 'x.npz' has 2953 rows: it was drawn from another feature file"):
        tasks.check(2953, "'x.npz'")
    with pytest.raises(InputError, match="row 2990 but the feature file has 50 rows"):
        tasks.batch(np.zeros((50, 2)))
    with pytest.raises(ShapeError, match=r"\(50,\).*two axes"):
        tasks.batch(np.zeros(50))


BAD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no support": ({"support": None}, ["expected a task list", "`support`", "found `support_labels`, `query`"]),
    "one axis": ({"support": [0, 5]}, ["support has shape (2,)", "(tasks, points)"]),
    "no queries": ({"query": np.zeros((2, 0), int)}, ["query has shape (2, 0)", "at least one"]),
    "labels too few": ({"query_labels": [[0, 1], [0, 1]]}, ["(2, 3)", "(2, 2)", "give each row"]),
    "other tasks": ({"query": [[6, 1, 7]], "query_labels": [[1, 0, 1]]}, ["2 tasks", "query has 1", "same tasks"]),
    "fractions": ({"query": [[6.0, 1.0, 7.5], [0, 2, 5]]}, ["query", "float64", "integers"]),
    "negative row": ({"support": [[0, -5], [6, 1]]}, ["support holds -5", "count from 0", "Renumber"]),
    "huge label": (
        {"support_labels": np.array([[0, 2**63], [1, 0]], np.uint64)},
        ["support_labels holds 9223372036854775808", "Renumber"],
    ),
    "large label": ({"support_labels": [[0, 10**9], [1, 0]]}, ["go up to 1000000000", "2 support vectors"]),
    "huge row": ({"query": [[6, 1, 2**62], [0, 2, 5]]}, ["query holds 4611686018427387904", "Renumber"]),
    "class left out": ({"support_labels": [[0, 1], [1, 1]]}, ["task 1 has no support of class 0", "without gaps"]),
    "query of no class": (
        {"query_labels": [[1, 0, 1], [0, 2, 1]]},
        ["query_labels[1, 1] is 2", "classes 0 to 1", "Drop"],
    ),
    "support is query": ({"query": [[6, 1, 7], [0, 2, 6]]}, ["row 6 is both support and query of task 1", "Draw"]),
    "query is unlabelled": (
        {"unlabelled": [[8, 7], [3, 4]]},
        ["row 7 is both query and unlabelled of task 0", "Draw"],
    ),
    "about is not JSON": ({"about": "{"}, ["`about` must be JSON, found '{'", "Make it again"]),
    "about is a number": ({"about": 3}, ["`about` must be JSON, found a int", "Make it again"]),
    "about is a list": ({"about": "[1]"}, ["`about` is [1]", "JSON object", "Leave it out"]),
    "about is deep": ({"about": "[" * 5000 + "]" * 5000}, ["`about` nests", "64 levels", "Make it again"]),
    "about has a long number": ({"about": '{"seed": ' + "9" * 5000 + "}"}, ["5000 digits", "Make it again"]),
}


@pytest.mark.parametrize(("change", "words"), BAD.values(), ids=BAD)
def test_bad_lists_are_named_with_file_and_remedy(tmp_path: Path, change: dict[str, Any], words: list[str]) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, **{name: np.array(value) for name, value in (GOOD | change).items() if value is not None})
    with pytest.raises(FeatureFileError) as raised:
        TaskList.load(path)
    for word in [str(path), *words]:
        assert word in str(raised.value)


def test_files_that_are_no_npz_are_named_with_the_remedy(tmp_path: Path) -> None:
    saved = tmp_path / "good.npz"
    TaskList(**GOOD).save(saved)
    (tmp_path / "cut.npz").write_bytes(saved.read_bytes()[:-40])
    damaged = bytearray(saved.read_bytes())
    damaged[60:200] = bytes(140)
    (tmp_path / "damaged.npz").write_bytes(damaged)
    (tmp_path / "text.npz").write_text("support, query\n")
    (tmp_path / "empty.npz").touch()
    np.save(tmp_path / "array.npy", np.zeros(3))
    for name in ("cut.npz", "damaged.npz", "text.npz", "empty.npz", "array.npy", "missing.npz", "."):
        with pytest.raises(FeatureFileError, match=r"a task list.*(Fetch|Check|Name)") as raised:
            TaskList.load(tmp_path / name)
        assert str(tmp_path / name) in str(raised.value)


class Touch:
    """A pickle that would create a file if anyone unpickled it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    np.savez(tmp_path / "evil.npz", **GOOD | {"query": np.array([[Touch(trap)]])}, allow_pickle=True)
    with pytest.raises(FeatureFileError, match=r"evil\.npz.*plain numbers or text"):
        TaskList.load(tmp_path / "evil.npz")
    assert not trap.exists()


@pytest.mark.parametrize("name", ["nowhere/tasks.npz", "a_file/tasks.npz", "a_folder"])
def test_places_that_cannot_be_written_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "a_file").touch()
    (tmp_path / "a_folder").mkdir()
    with pytest.raises(FeatureFileError, match=rf"{name} cannot be written.*folder that exists"):
        TaskList(**GOOD).save(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a_file", "a_folder"]


@pytest.mark.shared
@pytest.mark.parametrize("dataset", ["cub", "mini"])
@pytest.mark.parametrize("kind", ["ref", "dirichlet"])
@pytest.mark.parametrize("n_shot", [1, 5])
def test_the_reference_lists_load_and_gather_the_right_rows(
    shared_data: Path, dataset: str, kind: str, n_shot: int
) -> None:
    tasks = TaskList.load(shared_data / "reference" / f"{kind}_{dataset}_{n_shot}shot.npz")
    assert (len(tasks), tasks.n_way, tasks.n_shot, tasks.query.shape[1]) == (1000, 5, n_shot, 75)
    for support, query in zip(tasks.support.tolist(), tasks.query.tolist(), strict=True):
        assert len({*support, *query}) == len(support) + 75
    with np.load(shared_data / "features" / f"{dataset}_resnet12_test.npz", allow_pickle=False) as file:
        features, labels = file["features"], file["labels"]
    tasks.check(len(features))
    # One class of the file for each label of a task, the same in support and queries.
    for t in range(0, 1000, 50):
        support = {*zip(tasks.support_labels[t].tolist(), labels[tasks.support[t]].tolist(), strict=True)}
        query = {*zip(tasks.query_labels[t].tolist(), labels[tasks.query[t]].tolist(), strict=True)}
        assert query <= support
        assert len(support) == len({label for _, label in support}) == 5
    batch = tasks[990:].batch(features)
    np.testing.assert_array_equal(batch.query[9, 74], features[tasks.query[999, 74]].astype(np.float32))
    np.testing.assert_array_equal(batch.support[0, 4], features[tasks.support[990, 4]].astype(np.float32))
