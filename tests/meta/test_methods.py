"""What holds for every trained method: arrays of any library, order and names that do not matter, refused weights."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch

import a2lp
from a2lp.arrays import namespace, to_numpy
from a2lp.errors import InputError, ShapeError, WeightsFileError, install_command
from a2lp.meta.training import TRAINABLE

every_method = pytest.mark.parametrize("name", TRAINABLE)
Make = Callable[[str, int, int], Path]


def arrays(seed: int = 0, b: int = 3, q: int = 11) -> dict[str, np.ndarray[Any, Any]]:
    """Clustered points with unequal shots in any order, and unlabelled points."""
    rng = np.random.default_rng(seed)
    labels = np.stack([rng.permutation([0, 1, 2, 0, 1, 1]) for _ in range(b)])
    centres = rng.normal(size=(b, 3, 8))
    tasks = np.arange(b)[:, None]
    return {
        "support": centres[tasks, labels] + 0.7 * rng.normal(size=(b, 6, 8)),
        "support_labels": labels,
        "query": centres[tasks, rng.integers(0, 3, (b, q))] + 0.7 * rng.normal(size=(b, q, 8)),
        "unlabelled": rng.normal(size=(b, 4, 8)),
    }


def solve(name: str, weights: Path | None, given: dict[str, Any], **change: Any) -> a2lp.Prediction:
    return a2lp.create(name, weights=weights).predict(a2lp.TaskBatch(**given | change))


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), rtol=0, atol=1e-9)


@every_method
def test_predictions_do_not_depend_on_order_names_or_other_tasks(name: str, moved_weights: Make) -> None:
    path, given = moved_weights(name, 8, 3), arrays()
    whole = solve(name, path, given)
    assert np.isfinite(whole.scores).all()
    same(whole.scores, solve(name, path, given).scores)
    for i in range(3):  # a task alone
        same(solve(name, path, {key: x[i : i + 1] for key, x in given.items()}).scores, whole.scores[i : i + 1])
    order = np.random.default_rng(1).permutation(11)
    same(solve(name, path, given, query=given["query"][:, order]).scores, whole.scores[:, order])
    places = np.random.default_rng(2).permutation(6)
    moved = {"support": given["support"][:, places], "support_labels": given["support_labels"][:, places]}
    same(solve(name, path, given, **moved).scores, whole.scores)
    renamed = solve(name, path, given, support_labels=np.array([7, 2, 5])[given["support_labels"]])
    same(renamed.scores[:, :, [2, 0, 1]], whole.scores)
    others = np.concatenate([given["query"][:, 4:], given["unlabelled"]], axis=1)
    same(solve(name, path, given, query=given["query"][:, :4], unlabelled=others).scores, whole.scores[:, :4])


@every_method
@pytest.mark.parametrize("library", [torch.asarray, array_api_strict.asarray])
def test_any_array_library_gets_its_own_arrays(name: str, library: Any, moved_weights: Make) -> None:
    path, given = moved_weights(name, 8, 3), arrays()
    expected = solve(name, path, given)
    found = solve(name, path, {key: library(x) for key, x in given.items()})
    same(found.scores, expected.scores)
    np.testing.assert_array_equal(to_numpy(found.labels), expected.labels)
    for part in ("scores", "probabilities", "labels", "reached", "steps"):
        assert namespace(getattr(found, part)) is namespace(library([0.0])), part
    narrow = solve(name, path, given, **{key: given[key].astype("f4") for key in ("support", "query", "unlabelled")})
    assert narrow.scores.dtype == np.float32
    np.testing.assert_allclose(narrow.scores, expected.scores, rtol=0, atol=2e-3)


@every_method
@pytest.mark.parametrize("kind", ["equal", "zero", "one query", "one class"])
def test_degenerate_tasks_give_finite_scores(name: str, kind: str) -> None:
    given: dict[str, Any] = arrays() | {"unlabelled": None}
    if kind == "one query":
        given["query"] = given["query"][:, :1]
    elif kind == "one class":
        given["support_labels"] = np.zeros_like(given["support_labels"])
    else:
        fill = float(kind == "equal")
        given |= {key: np.full_like(given[key], fill) for key in ("support", "query")}
    assert np.isfinite(solve(name, None, given).scores).all()


@every_method
def test_the_untrained_start_has_a_seed(name: str) -> None:
    batch = a2lp.TaskBatch(**arrays())
    first, again = (a2lp.create(name).predict(batch).scores for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = a2lp.create(name, seed=1).predict(batch).scores
    assert np.array_equal(first, other) == (name in ("tpn_learned", "can"))  # these start at methods without training


def test_weights_that_do_not_fit_are_refused(moved_weights: Make, tmp_path: Path) -> None:
    sib = moved_weights("sib", 8, 3)
    cases: list[tuple[str, Any, list[str]]] = [
        ("sib", tmp_path / "nothing.safetensors", ["nothing.safetensors does not exist", "meta-train"]),
        ("sib", tmp_path, ["is a folder", "meta-train"]),
        ("tpn_learned", sib, ["'sib' (SIBHead)", "TPNHead", "Give the weights of this method"]),
        ("sib_e3bm", sib, ["'sib' (SIBHead)", "E3BMHead"]),
    ]
    (tmp_path / "text.safetensors").write_text("no tensors here")
    (tmp_path / "cut.safetensors").write_bytes(sib.read_bytes()[:-100])
    cases += [
        ("sib", tmp_path / f"{name}.safetensors", ["cannot be read", "make it again"]) for name in ("text", "cut")
    ]
    for name, path, words in cases:
        with pytest.raises(WeightsFileError) as raised:
            a2lp.create(name, weights=path)
        assert all(word in str(raised.value) for word in words), raised.value
    with pytest.raises(InputError, match=r"weights=3 must be the name of a file"):
        a2lp.create("sib", weights=3)
    with pytest.raises(InputError, match=r"seed=-1 must be a whole number, 0 or more"):
        a2lp.create("sib", seed=-1)


def test_tasks_that_do_not_fit_the_weights_are_refused(moved_weights: Make) -> None:
    given = arrays()
    with pytest.raises(ShapeError, match=r"vectors of 9 dimensions and these have 8; .*a2lp meta-train"):
        solve("can", moved_weights("can", 9, 3), given)
    with pytest.raises(ShapeError, match=r"n_way=4 classes and these have 3; .*one input for each class.*--ways 3"):
        solve("sib", moved_weights("sib", 8, 4), given)
    for name in ("tpn_learned", "can", "dpgn"):  # these take any number of classes
        assert np.isfinite(solve(name, moved_weights(name, 8, 4), given).scores).all()


@pytest.mark.parametrize("package", ["torch", "safetensors"])
def test_without_torch_the_extra_is_named(package: str) -> None:
    code = f"""
import sys
sys.modules[{package!r}] = None
import a2lp
from a2lp.errors import MissingExtraError
try:
    a2lp.create("sib")
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100)
    assert f"needs {package}, which is not installed. Install it with: {install_command('torch')}" in done.stdout
