"""Where paper and code differ: each row of docs/paper-vs-code.md has a test that the choice matters, or cannot."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import a2lp
from a2lp import features, graph
from a2lp.optimizers import Adam
from a2lp.preprocess import l2, plc
from a2lp.tasks.authors import authors_tasks
from a2lp.tasks.samplers import draw

PAGE = Path(__file__).resolve().parents[2] / "docs" / "paper-vs-code.md"


@pytest.fixture(scope="module")
def cub() -> Any:
    return features.load("cub")


def tasks(cub: Any, n_shot: int = 1, n_tasks: int = 6, n_way: int = 5) -> a2lp.TaskBatch:
    drawn = draw("balanced", cub.labels, seed=4, n_way=n_way, n_shot=n_shot, n_query=15, n_tasks=n_tasks)
    return drawn.batch(cub.features.astype(np.float64))


def predict(batch: a2lp.TaskBatch, name: str = "a2lp", **params: Any) -> a2lp.Prediction:
    if name == "a2lp":
        params = {"steps": 100} | params
    return a2lp.create(name, **params).predict(batch)


def differs(a: a2lp.Prediction, b: a2lp.Prediction, least: float = 1e-6) -> bool:
    return bool(np.abs(a.scores - b.scores).max() > least)


def test_every_row_has_its_test() -> None:
    rows = {int(n) for n in re.findall(r"^\| *(\d+) *\|", PAGE.read_text(encoding="utf-8"), flags=re.M)}
    tests = {
        int(n) for n in re.findall(r"^def test_row_(\d+)_", Path(__file__).read_text(encoding="utf-8"), flags=re.M)
    }
    assert rows == set(range(1, 20))
    assert tests == rows - {18}  # about a claim of the paper's text, not about a choice


def test_row_01_similarity(cub: Any) -> None:
    batch = tasks(cub)
    free, sphere = predict(batch), predict(batch, renormalize=True)
    assert differs(free, sphere)
    np.testing.assert_allclose(np.linalg.norm(sphere.anchors, axis=2), 1, rtol=1e-12)
    assert np.median(np.linalg.norm(free.anchors, axis=2)) > 1.01, (
        "without it the length is a free parameter, and grows"
    )


def test_row_02_reduction(cub: Any) -> None:
    batch = tasks(cub)
    assert differs(predict(batch), predict(batch, reduction="sum"))
    # the sum is the mean times the number of anchors, which for plain descent is a larger rate
    by_sum = predict(batch, optimizer="gd", lr=1.0, reduction="sum")
    np.testing.assert_allclose(by_sum.scores, predict(batch, optimizer="gd", lr=5.0).scores, rtol=0, atol=1e-12)


def test_row_03_log(cub: Any) -> None:
    batch = tasks(cub)
    exact, official, on_cpu = (predict(batch, numerics=n) for n in ("exact", "official", "official_cpu"))
    assert differs(exact, official) and differs(official, on_cpu)
    assert official.scores.dtype == np.float32 and exact.scores.dtype == np.float64


def test_row_04_final_prediction(cub: Any) -> None:
    batch = tasks(cub)
    theirs, paper = predict(batch, steps=30), predict(batch, steps=30, final_forward=True)
    assert differs(theirs, paper, 1e-9)
    np.testing.assert_array_equal(theirs.scores, predict(batch, steps=29, final_forward=True).scores)


def test_row_05_degree(cub: Any) -> None:
    points = l2(tasks(cub).points)
    weights = graph.affinity(points, 20, 3)
    degree = weights.sum(axis=2)
    plain = weights / np.sqrt(degree[:, :, None] * degree[:, None, :])
    np.testing.assert_allclose(graph.normalise(weights), plain, rtol=1e-11)  # the offset cannot be seen
    isolated = np.zeros((1, 3, 3))
    isolated[0, 0, 1] = isolated[0, 1, 0] = 1.0
    assert not graph.normalise(isolated)[0, 2].any()  # without it: 0/0
    # the paper's own formula takes the degrees of the normalised matrix, which is circular: one round of it is not W's
    assert np.abs(plain.sum(axis=2) - degree).max() > 0.1


def test_row_06_neighbourhood(cub: Any) -> None:
    points = l2(tasks(cub, n_tasks=1).points)
    sim = np.maximum(points[0] @ points[0].T, 0)
    np.fill_diagonal(sim, 0)
    by_columns = np.zeros_like(sim)  # literally: i is among the 20 nearest of j
    for j in range(len(sim)):
        nearest = np.argsort(-sim[:, j], kind="stable")[:20]
        by_columns[nearest, j] = sim[nearest, j] ** 3
    assert (by_columns != by_columns.T).any()
    expected = (by_columns + by_columns.T) / 2
    np.testing.assert_allclose(graph.affinity(points, 20, 3)[0], expected, rtol=0, atol=1e-12)


def test_row_07_plc(cub: Any) -> None:
    batch = tasks(cub, n_shot=5)

    def without_the_last_step(x: Any) -> Any:
        rooted = np.where(x < 0, -1, 1) * np.sqrt(np.abs(x) + 1e-6)
        unit = rooted / np.linalg.norm(rooted, axis=2, keepdims=True)
        return unit - unit.mean(axis=1, keepdims=True)

    points = without_the_last_step(batch.points)
    np.testing.assert_allclose(l2(points), plc(batch.points), atol=1e-12)
    text = a2lp.TaskBatch(points[:, :25], batch.support_labels, points[:, 25:])
    # cosines do not see the missing step, distances do
    same = predict(text, "lp", preprocess="none").scores
    np.testing.assert_allclose(same, predict(batch, "lp", preprocess="plc").scores, atol=1e-10)
    assert differs(predict(text, "prototypical", preprocess="none"), predict(batch, "prototypical", preprocess="plc"))


def test_row_08_optimised_variables(cub: Any) -> None:
    """Adam on all points with the queries' gradients set to zero, as in their code, moves the anchors alone."""
    rng = np.random.default_rng(0)
    z = torch.tensor(rng.normal(size=(12, 6)), requires_grad=True)
    start = z.detach().clone()
    optimizer = torch.optim.Adam([z], lr=1e-2)
    ours, adam = start[:4].numpy().copy(), Adam(1e-2)
    state = adam.init(ours)
    for _ in range(20):
        gradient = rng.normal(size=(4, 6)) * 1e-8
        z.grad = torch.zeros_like(z)
        z.grad[:4] = torch.tensor(gradient)
        optimizer.step()
        state, move = adam.update(state, gradient)
        ours += move
    np.testing.assert_array_equal(z.detach()[4:], start[4:])
    np.testing.assert_allclose(z.detach()[:4], ours, rtol=1e-12)


def test_row_09_tau(cub: Any) -> None:
    batch = tasks(cub)
    a, b = predict(batch, "lp", tau=15), predict(batch, "lp", tau=3)
    np.testing.assert_array_equal(a.scores, b.scores)  # Z is not multiplied
    e = np.exp(15 * a.scores)
    np.testing.assert_allclose(a.probabilities, e / e.sum(axis=2, keepdims=True), rtol=1e-9)
    np.testing.assert_array_equal(a.labels, b.labels)
    assert differs(predict(batch, tau=15), predict(batch, tau=3))  # in the loss it matters


def test_row_10_optimiser(cub: Any) -> None:
    batch = tasks(cub)
    assert differs(predict(batch), predict(batch, optimizer="gd"))
    assert differs(predict(batch), predict(batch, eps=1e-12))  # gradients are about as small as Adam's eps
    assert differs(predict(batch), predict(batch, betas=(0.5, 0.9)))


def test_row_11_imprinting(cub: Any) -> None:
    batch = tasks(cub, n_shot=5, n_tasks=20)
    ours = predict(batch, "imprinting", steps=200)
    moved = np.abs(ours.anchors - predict(batch, "prototypical").anchors).max()
    assert 0 < moved <= 2 * 200 * 1e-4  # Adam's steps are about its rate
    start = predict(batch, "imprinting", steps=0)
    weights = l2(start.anchors)  # Qi et al. normalise the mean, and compare by cosine
    cosine = l2(batch.query) @ np.swapaxes(weights, 1, 2)
    assert (np.argmax(cosine, axis=2) != np.argmax(start.scores, axis=2)).any()


def test_row_12_prototypical(cub: Any) -> None:
    one, five = tasks(cub, 1, 20), tasks(cub, 5, 20)
    for batch, same in ((one, True), (five, False)):
        found = predict(batch, "prototypical")
        cosine = l2(batch.query) @ np.swapaxes(l2(found.anchors), 1, 2)
        np.testing.assert_equal((np.argmax(cosine, axis=2) == found.labels).all(), same)


def test_row_13_task_seeds(cub: Any) -> None:
    row = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| *13 *\|", line))
    named = {"mini": "miniImageNet", "cifar_fs": "CIFAR-FS", "cub": "CUB", "tiered": "tieredImageNet"}
    for dataset, name in named.items():
        (seed,) = re.findall(rf"(\d+) \([^)]*{name}[^)]*\)", row)
        by_dataset = authors_tasks(cub.labels, dataset, n_shot=1, n_tasks=5)
        by_seed = authors_tasks(cub.labels, None, seed=int(seed), n_shot=1, n_tasks=5)
        np.testing.assert_array_equal(by_dataset.support, by_seed.support)
        np.testing.assert_array_equal(by_dataset.query, by_seed.query)
        assert (by_seed.support != authors_tasks(cub.labels, None, seed=42, n_shot=1, n_tasks=5).support).any()


def test_row_14_class_size(cub: Any) -> None:
    first = {int(np.flatnonzero(cub.labels == c)[0]) for c in np.unique(cub.labels)}
    smallest = np.bincount(cub.labels).min()
    theirs = np.concatenate([authors_tasks(cub.labels, "cub", n_shot=5, n_tasks=200).query.ravel()])
    ours = draw("balanced", cub.labels, seed=0, n_way=5, n_shot=5, n_query=15, n_tasks=200).query.ravel()
    starts = np.array(sorted(first))
    last_places = [(rows - starts[np.searchsorted(starts, rows, side="right") - 1]).max() for rows in (theirs, ours)]
    assert last_places[0] < smallest <= last_places[1]


@pytest.mark.parametrize("n_way", [2, 7, 20])
def test_row_15_any_number_of_ways(cub: Any, n_way: int) -> None:
    found = predict(tasks(cub, n_tasks=2, n_way=n_way), steps=5)
    assert found.scores.shape == (2, 15 * n_way, n_way)


def test_row_16_algorithms_that_are_named_exist(cub: Any) -> None:
    batch = tasks(cub, n_tasks=1)
    assert {"pt_map", "ici", "ilpc"} <= set(a2lp.list_methods())
    for name, params in {"prototypical": {}, "imprinting": {"steps": 2}, "lp": {}, "a2lp": {"steps": 2}}.items():
        assert predict(batch, name, **params).scores.shape == (1, 75, 5)


def test_row_17_the_number_of_tasks_is_what_was_asked(cub: Any) -> None:
    for n in (1, 7):
        assert len(draw("balanced", cub.labels, seed=0, n_way=5, n_shot=1, n_query=15, n_tasks=n)) == n


def test_row_19_no_uniform_marginal(cub: Any) -> None:
    assert not a2lp.create("lp").assumes_uniform and not a2lp.create("a2lp").assumes_uniform
    drawn = draw("k_eff", cub.labels, seed=4, n_way=5, n_shot=5, n_query=7, n_tasks=10, k_eff=1)
    found = predict(drawn.batch(cub.features), "lp")
    assert (found.labels == drawn.query_labels).mean() > 0.8  # all queries of one class; balanced answers reach 20 %
