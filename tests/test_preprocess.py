"""Preprocessing against plain loops over numbers."""

from __future__ import annotations

import math
from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import a2lp
from a2lp.arrays import namespace, to_numpy
from a2lp.errors import InputError, ShapeError, UnknownNameError
from a2lp.preprocess import NAMES, bpa, l2, plc, preprocess

LIBRARIES = {"numpy": np.asarray, "torch": torch.asarray, "array_api_strict": array_api_strict.asarray}

# ordinary sizes, zeros of both signs, whole rows of zeros; equal coordinates make centred vectors vanish
NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5]) | st.floats(-100, 100, allow_subnormal=False)
POINTS = arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(2, 5), st.integers(1, 4)), elements=NUMBERS)


def plain_l2(vector: list[float]) -> list[float]:
    length = math.hypot(*vector)
    return [x / length for x in vector] if length > 0 else vector


def plain_power(x: float) -> float:
    return -math.sqrt(-x + 1e-6) if x < 0 else math.sqrt(x + 1e-6)


def plain_plc(task: list[list[float]]) -> list[list[float]]:
    rooted = [plain_l2([plain_power(x) for x in vector]) for vector in task]
    mean = [math.fsum(column) / len(rooted) for column in zip(*rooted, strict=True)]
    return [plain_l2([x - m for x, m in zip(vector, mean, strict=True)]) for vector in rooted]


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=50, deadline=None)
@given(points=POINTS)
def test_l2_is_the_plain_loop(library: str, points: np.ndarray) -> None:
    found = l2(LIBRARIES[library](points))
    assert namespace(found) is namespace(LIBRARIES[library](points))
    expected = [[plain_l2(vector) for vector in task] for task in points.tolist()]
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=50, deadline=None)
@given(points=POINTS)
def test_plc_is_the_plain_loop(library: str, points: np.ndarray) -> None:
    found = to_numpy(plc(LIBRARIES[library](points)))
    assert np.isfinite(found).all()
    for got, task in zip(found, points.tolist(), strict=True):
        for row, expected in zip(got, plain_plc(task), strict=True):
            rooted = [plain_l2([plain_power(x) for x in vector]) for vector in task]
            spread = max(math.dist(a, b) for a in rooted for b in rooted)
            if spread > 1e-6:  # else the difference to the mean is rounding
                np.testing.assert_allclose(row, expected, rtol=0, atol=1e-9 / spread)


def test_plc_keeps_signs_and_lifts_zeros_before_it_normalises() -> None:
    points = np.array([[[4.0, 0.0], [-9.0, 0.0]]])
    rooted = np.array([[math.sqrt(4 + 1e-6), 1e-3], [-math.sqrt(9 + 1e-6), 1e-3]])
    rooted /= np.linalg.norm(rooted, axis=1, keepdims=True)
    centred = rooted - rooted.mean(axis=0)
    np.testing.assert_allclose(plc(points)[0], centred / np.linalg.norm(centred, axis=1, keepdims=True), rtol=1e-12)
    # without the +1e-3 both would lie on one line through the centre, and the second coordinate would be zero
    assert abs(plc(points)[0, 0, 1]) > 1e-5


def test_plc_of_zero_vectors_is_finite() -> None:
    found = plc(np.array([[[0.0, 0.0, 0.0], [0.0, -0.0, 0.0], [3.0, 1.0, 2.0]]]))
    np.testing.assert_allclose(found[0, 0], found[0, 1], rtol=1e-12)  # zeros are +1e-3 whatever their sign
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1, rtol=1e-12)


@pytest.mark.parametrize("library", LIBRARIES)
def test_plc_of_equal_points_has_no_direction(library: str) -> None:
    """What is left after centring is rounding; a unit vector of rounding would be an invented similarity."""
    points = LIBRARIES[library](np.full((1, 7, 5), [0.1, 0.7, 0.3, 0.9, 0.2]))
    assert (to_numpy(plc(points)) == 0).all()


def test_each_task_is_centred_on_itself() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(3, 6, 4)) * [[[1.0]], [[50.0]], [[0.02]]]
    whole = plc(points)
    for i in range(3):
        np.testing.assert_allclose(whole[i : i + 1], plc(points[i : i + 1]), rtol=1e-13)


def statistics(mean: Any, cov: Any = None) -> a2lp.BaseStatistics:
    mean = np.asarray(mean, dtype=float)
    return a2lp.BaseStatistics(mean, mean[None], np.eye(len(mean)) if cov is None else cov)


@pytest.mark.parametrize("library", LIBRARIES)
def test_cl2n_subtracts_the_base_mean_then_l2(library: str) -> None:
    points = np.array([[[1.0, 2.0, 3.0], [0.5, -1.0, 2.0], [-4.0, 0.0, 0.0]]])
    found = to_numpy(preprocess("cl2n", LIBRARIES[library](points), statistics([0.5, -1.0, 2.0])))
    expected = [plain_l2([x - m for x, m in zip(v, [0.5, -1.0, 2.0], strict=True)]) for v in points[0].tolist()]
    np.testing.assert_allclose(found[0], expected, rtol=1e-14)
    assert (found[0, 1] == 0).all()  # a point at the mean is a zero vector, not NaN


@pytest.mark.parametrize("library", LIBRARIES)
def test_whiten_makes_the_spread_within_classes_round(library: str) -> None:
    """By another route: a linear solve with the Cholesky factor gives the same lengths and angles as the root."""
    rng = np.random.default_rng(1)
    mean, root = rng.normal(size=6), rng.normal(size=(6, 6))
    cov = root @ root.T
    points = rng.normal(size=(2, 9, 6))
    found = to_numpy(preprocess("whiten", LIBRARIES[library](points), statistics(mean, cov)))
    factor = np.linalg.cholesky(cov + 0.3 * np.trace(cov) / 6 * np.eye(6))
    other = l2(np.linalg.solve(factor, (points - mean).swapaxes(1, 2)).swapaxes(1, 2))
    expected = other @ other.swapaxes(1, 2)
    np.testing.assert_allclose(found @ found.swapaxes(1, 2), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("pool", [4, 400])
def test_vectors_that_tasks_share_are_whitened_as_if_they_were_alone(pool: int) -> None:
    rng = np.random.default_rng(2)
    base = statistics(rng.normal(size=6), np.diag(np.arange(1.0, 7.0)))
    vectors = rng.normal(size=(pool, 6))
    vectors[1, 0], vectors[1, 1] = vectors[0, 0], vectors[0, 1] + vectors[0, 2:].sum() - vectors[1, 2:].sum()
    points = vectors[rng.integers(0, pool, (5, 9))]  # rows 0 and 1 begin alike and have the same sum
    found = preprocess("whiten", points, base)
    for task, row in np.ndindex(5, 9):
        alone = preprocess("whiten", points[task : task + 1, row : row + 1], base)
        np.testing.assert_allclose(found[task, row], alone[0, 0], rtol=0, atol=1e-14)


BAD_BASES: dict[str, tuple[Any, type[InputError], str]] = {
    "none": (None, InputError, "base is None.*Pass base=a2lp.BaseStatistics"),
    "another width": (statistics(np.zeros(4)), ShapeError, r"4 dimensions.*have 3.*same backbone"),
    "a mean": (np.zeros(3), InputError, "ndarray.*must be BaseStatistics"),
}


@pytest.mark.parametrize("name", ["cl2n", "whiten"])
@pytest.mark.parametrize(("base", "kind", "words"), BAD_BASES.values(), ids=BAD_BASES)
def test_bad_bases_are_named(name: str, base: Any, kind: type[InputError], words: str) -> None:
    with pytest.raises(kind, match=words):
        preprocess(name, np.ones((1, 2, 3)), base)


def test_a_name_selects_its_preprocessing() -> None:
    points = np.random.default_rng(0).normal(size=(2, 4, 3))
    base = statistics([0.1, 0.2, 0.3])
    centred = l2(points - base.mean)
    answers = {"l2": l2(points), "plc": plc(points), "cl2n": centred, "bpa": bpa(points), "none": points}
    assert {*answers, "whiten"} == set(NAMES)
    for name, expected in answers.items():
        np.testing.assert_allclose(preprocess(name, points, base), expected, rtol=1e-6)
    with pytest.raises(UnknownNameError, match=r"unknown preprocess 'l3'.*'l2'"):
        preprocess("l3", points)


@pytest.mark.parametrize("name", NAMES)
def test_points_are_overwritten_only_where_they_may_be(name: str) -> None:
    given = np.random.default_rng(0).normal(size=(2, 4, 3))
    given[0, 0] = 0
    points, base = given.copy(), statistics([0.1, 0.2, 0.3])
    found = preprocess(name, points, base)
    assert (points == given).all()
    assert (preprocess(name, points, base, overwrite=True) == found).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_left_as_it_was(name: str) -> None:
    support, query = np.split(np.random.default_rng(0).normal(size=(2, 8, 3)), [3], axis=1)
    batch = a2lp.TaskBatch(support.copy(), [[0, 1, 1], [1, 0, 1]], query.copy())
    a2lp.create("prototypical", preprocess=name, base=statistics([0.1, 0.2, 0.3])).predict(batch)
    assert (batch.support == support).all()
    assert (batch.query == query).all()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("size", [1e20, 2e37, 1e-20, 1e-30, 1e-37])
def test_float32_of_any_size_has_its_direction(library: str, size: float) -> None:
    """Squares of these leave the range of float32; the direction is still there."""
    points = np.array([[[3.0, 4.0, 0.0], [0.0, -5.0, 12.0]]]) * size
    found = to_numpy(l2(LIBRARIES[library](points.astype(np.float32))))
    assert found.dtype == np.float32
    expected = [[[0.6, 0.8, 0.0], [0.0, -5 / 13, 12 / 13]]]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_float64_of_any_size_has_its_direction(size: float) -> None:
    np.testing.assert_allclose(l2(np.array([[[3.0, 4.0]]]) * size), [[[0.6, 0.8]]], rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_methods_preprocess_support_query_and_unlabelled_together(name: str) -> None:
    rng = np.random.default_rng(4)
    support, query, unlabelled = rng.normal(size=(2, 3, 5)), rng.normal(size=(2, 6, 5)), rng.normal(size=(2, 4, 5))
    labels, base = [[0, 1, 1], [1, 0, 1]], statistics(rng.normal(size=5))
    together = preprocess(name, np.concatenate([support, query, unlabelled], axis=1), base)
    by_hand = a2lp.TaskBatch(together[:, :3], labels, together[:, 3:9], together[:, 9:])
    for method in ("prototypical", "lp"):
        params = {"n_neighbors": 4} if method == "lp" else {}
        batch = a2lp.TaskBatch(support, labels, query, unlabelled)
        found = a2lp.create(method, preprocess=name, base=base, **params).predict(batch)
        expected = a2lp.create(method, preprocess="none", **params).predict(by_hand)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-12)
