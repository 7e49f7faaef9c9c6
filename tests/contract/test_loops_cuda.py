"""The CUDA kernels of TIM, imprinting and AM without a GPU: their source as C++."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from a2lp.engines import select
from a2lp.engines.contract import Points
from a2lp.kernels import descent
from a2lp.loops import am, imprint, tim
from a2lp.optimizers import Adam

Array = np.ndarray[Any, Any]
Run = Callable[..., list[Array]]

# tasks, classes, points, dimensions, shots: each class's
SHAPES = {
    "1-shot": (3, 5, 80, 64, [1] * 5),
    "5-shot": (2, 5, 100, 40, [5] * 5),
    "two classes, odd dimensions": (3, 2, 20, 7, [3, 3]),
    "twelve classes": (2, 12, 60, 33, [1] * 12),
    "unequal shots": (3, 5, 41, 18, [1, 4, 2, 1, 3]),
    "one query": (2, 3, 7, 16, [2] * 3),
    "many points": (1, 3, 150, 12, [2] * 3),
}


@pytest.fixture(scope="module")
def run(kernel: Callable[[str, str], Any]) -> Run:
    def launch(
        loop: str, vectors: Array, codes: Array, adam: Adam, steps: int, changed: tuple[Array, ...], *,
        parameters: Any, own: descent.Own, threads: int = 1, lanes: int = 1, slices: int = 2,
        resident: int | None = None,
    ) -> list[Array]:  # fmt: skip
        (b, n, d), c, itemsize = vectors.shape, changed[0].shape[1], vectors.itemsize
        pieces = descent.in_pieces(torch.asarray(vectors)).numpy()
        resident = -(-d // 4) if resident is None else resident
        of = descent.Sizes(n, c, d, itemsize, threads, 1, slices, resident)
        arrays = [pieces, vectors, codes.astype(np.int64), adam.rates(steps).astype(vectors.dtype), *changed]
        compiled = kernel(f"a2lp_{loop}", descent.source(loop))
        shared, defines = of.shared_bytes(own), of.defines() | {"LANES": lanes}
        return compiled.launch(arrays, parameters, blocks=b, threads=threads, shared=shared, defines=defines)[4:]

    return launch


def random_tasks(shape: str, dtype: Any = np.float64, seed: int = 0) -> Points:
    b, c, n, d, shots = SHAPES[shape]
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.permutation(np.repeat(np.arange(c), shots)) for _ in range(b)])
    every = np.concatenate([codes, rng.integers(0, c, (b, n - codes.shape[1]))], axis=1)
    x = rng.normal(size=(b, c, d))[np.arange(b)[:, None], every] + 0.7 * rng.normal(size=(b, n, d))
    return Points((x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(dtype), codes, c, n - codes.shape[1])


def by_arrays(loop: Any, points: Points, settings: Any) -> Any:
    return select.run(loop, "batched", points, settings).result


ADAM = Adam(1e-2)
OBJECTIVES = {
    "tim": tim.Objective(0.1, 1.0, 0.1),
    "alpha_tim": tim.Objective(1.0, 1.0, 1.0, 2.5),
}


def run_tim(run: Run, points: Points, settings: tim.Settings, **given: Any) -> Array:
    own = tim.fused_cuda
    (weights,) = run(
        "tim", points.vectors, points.codes, settings.adam, settings.steps, (points.class_means,),
        parameters=own.make_parameters(points, settings), own=own.own_memory(points), **given,
    )  # fmt: skip
    return weights


def run_imprint(run: Run, points: Points, settings: imprint.Settings, **given: Any) -> list[Array]:
    own, losses = imprint.fused_cuda, np.empty((len(points.codes), settings.steps), points.vectors.dtype)
    return run(
        "imprint", points.support, points.codes, settings.adam, settings.steps, (points.class_means, losses),
        parameters=own.make_parameters(points, settings), own=own.own_memory(points), **given,
    )  # fmt: skip


def run_am(run: Run, points: Points, settings: am.Settings, **given: Any) -> tuple[Array, Array]:
    own, (b, m, d), c = am.fused_cuda, points.vectors.shape, points.n_classes
    adapted, z = (
        np.full((b, *shape), np.nan, points.vectors.dtype) for shape in [(own.adapted_numbers(m, c, d),), (m, c)]
    )
    parameters = own.make_parameters(points, settings)
    centroids, _, z = run(
        "am", points.vectors, points.codes, settings.adam, parameters.updates, (points.class_means, adapted, z),
        parameters=parameters, own=own.own_memory(points), **given,
    )  # fmt: skip
    return z, centroids


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("shape", SHAPES)
def test_am_of_any_shape_is_the_array_form(run: Run, shape: str, objective: str) -> None:
    points = random_tasks(shape)
    settings = am.Settings(5, 0.8, 15.0, OBJECTIVES[objective], 6, ADAM)
    expected, expected_centroids = by_arrays(am.LOOP, points, settings)
    assert np.abs(expected_centroids - points.class_means).max() > 1e-2, "steps should matter"
    z, centroids = run_am(run, points, settings)
    np.testing.assert_allclose(z, expected, rtol=0, atol=1e-7)
    np.testing.assert_allclose(centroids, expected_centroids, rtol=0, atol=1e-7)


def test_am_breaks_ties_by_order(run: Run) -> None:
    """Copies of points have equal affinities, of which the first are chosen."""
    points = random_tasks("unequal shots")
    vectors = np.repeat(points.vectors[:, ::3], 3, axis=1)[:, : points.vectors.shape[1]]
    points, settings = points._replace(vectors=vectors), am.Settings(7, 0.8, 15.0, OBJECTIVES["tim"], 0, ADAM)
    np.testing.assert_allclose(run_am(run, points, settings)[0], by_arrays(am.LOOP, points, settings)[0], atol=1e-9)


def test_warps_of_am_wait_for_each_other(run: Run) -> None:
    """Equal for any number of threads and lanes, up to the order of a sum over threads."""
    points = random_tasks("unequal shots")
    settings = am.Settings(7, 0.8, 15.0, OBJECTIVES["tim"], 4, ADAM)
    alone = run_am(run, points, settings)
    for how in ({"threads": 3}, {"threads": 8, "lanes": 4}, {"threads": 64, "lanes": 32, "resident": 2}):
        for found, expected in zip(run_am(run, points, settings, **how), alone, strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("shape", SHAPES)
def test_tim_of_any_shape_is_the_array_form(run: Run, shape: str, objective: str) -> None:
    points, settings = random_tasks(shape), tim.Settings(OBJECTIVES[objective], 15.0, 20, ADAM)
    expected = by_arrays(tim.LOOP, points, settings)
    assert np.abs(expected - points.class_means).max() > 1e-2, "steps should matter"
    np.testing.assert_allclose(run_tim(run, points, settings), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("numerics", ["exact", "official", "official_cpu"])
@pytest.mark.parametrize("shape", SHAPES)
def test_imprinting_of_any_shape_is_the_array_form(run: Run, shape: str, numerics: str) -> None:
    points = random_tasks(shape)
    settings = imprint.Settings(steps=20, lr=1e-2, tau=3.0, numerics=numerics)
    expected, expected_losses = by_arrays(imprint.LOOP, points, settings)
    weights, losses = run_imprint(run, points, settings)
    # the float32 chain of the official numerics differs by the last digit of exp
    atol = 1e-10 if numerics == "exact" else 1e-5
    np.testing.assert_allclose(weights, expected, rtol=0, atol=atol)
    np.testing.assert_allclose(losses, expected_losses, rtol=0, atol=atol)


@pytest.mark.parametrize("changed", [{"threads": 3}, {"threads": 7, "resident": 3}, {"threads": 2, "resident": 0}])
def test_threads_wait_for_each_other(run: Run, changed: dict[str, int]) -> None:
    """Equal to the bit for any number of threads, and wherever the points are."""
    points = random_tasks("unequal shots")
    settings = tim.Settings(OBJECTIVES["tim"], 15.0, 10, ADAM)
    np.testing.assert_array_equal(run_tim(run, points, settings, **changed), run_tim(run, points, settings))


@pytest.mark.parametrize("limit", [232448, 101376])
@pytest.mark.parametrize("own", [descent.Own(405), descent.Own(13277, reused=8096)])
def test_blocks_fill_shared_memory_and_not_more(limit: int, own: descent.Own) -> None:
    of = descent.sizes(80, 5, 640, 4, own, limit)
    more = of._replace(resident=of.resident + 1)
    assert of.blocks * (of.shared_bytes(own) + 1024) <= limit + 1024 < of.blocks * (more.shared_bytes(own) + 1024)
    assert of.threads % 32 == 0 and of.blocks * of.threads <= descent.MOST_THREADS


def test_other_arrays_are_refused_and_say_why() -> None:
    points = random_tasks("one query")
    points = points._replace(vectors=torch.asarray(points.vectors), codes=torch.asarray(points.codes))
    settings = tim.Settings(OBJECTIVES["tim"], 15.0, 2, ADAM)
    engine, reason = select.choose(tim.LOOP, "auto", points, settings)
    assert engine.name == "batched" and "fused_cuda does not run here: it takes torch tensors on a CUDA" in reason


def test_float32_is_close_to_float64(run: Run) -> None:
    points = random_tasks("1-shot", np.float32)
    settings = tim.Settings(OBJECTIVES["tim"], 15.0, 20, Adam(1e-3))
    expected = by_arrays(tim.LOOP, points._replace(vectors=points.vectors.astype(np.float64)), settings)
    np.testing.assert_allclose(run_tim(run, points, settings, slices=20), expected, rtol=0, atol=1e-4)
    fine = imprint.Settings(steps=20, lr=1e-2, tau=3.0, numerics="official")
    weights, losses = run_imprint(run, points, fine)
    expected, expected_losses = select.run(imprint.LOOP, "fused_cpu", points, fine).result
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(losses, expected_losses, rtol=0, atol=1e-5)
    manifold = am.Settings(5, 0.8, 15.0, OBJECTIVES["tim"], 4, Adam(1e-2))  # whose moves are rougher in float32
    expected, _ = by_arrays(am.LOOP, points._replace(vectors=points.vectors.astype(np.float64)), manifold)
    np.testing.assert_allclose(run_am(run, points, manifold)[0], expected, rtol=0, atol=1e-4)
