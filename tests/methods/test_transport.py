"""PT-MAP, EASE, protoLP and iLPC against their equations, written plainly for one task, and against public code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest

import a2lp
from a2lp.features import load
from a2lp.methods._maths import sinkhorn

NDArray = np.ndarray[Any, Any]


def unit(x: NDArray) -> NDArray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def square_roots(x: NDArray) -> NDArray:
    return np.sqrt(np.maximum(x, 0) + 1e-6)


def balance(plan: NDArray, columns: NDArray, tolerance: float, keep: Callable[[NDArray], None]) -> NDArray:
    """Rows to 1, columns to what they should be, until row sums rest; ``keep`` resets rows after each half."""
    plan, before = plan / plan.sum(), np.zeros(len(plan))
    for _ in range(1000):
        sums = plan.sum(axis=1)
        if np.abs(sums - before).max() <= tolerance:
            break
        before = sums
        plan = plan / sums[:, None]
        keep(plan)
        plan = plan * np.divide(columns, plan.sum(axis=0), out=np.zeros_like(columns), where=columns > 0)
        keep(plan)
    return plan


def free(plan: NDArray) -> None:
    """No rows are reset."""


def squared(x: NDArray, centres: NDArray) -> NDArray:
    return np.sum((x[:, None, :] - centres[None, :, :]) ** 2, axis=2)


def pt_map(support: NDArray, labels: NDArray, query: NDArray) -> NDArray:
    hot = np.eye(labels.max() + 1)[labels]
    support, query = unit(square_roots(support)), unit(square_roots(query))
    support, query = unit(support - support.mean(axis=0)), unit(query - query.mean(axis=0))
    x, centres = np.concatenate([support, query]), hot.T @ support / hot.sum(axis=0)[:, None]
    columns = np.full(hot.shape[1], len(query) / hot.shape[1])
    for _ in range(20):
        plan = balance(np.exp(-10 * squared(query, centres)), columns, 1e-6, free)
        mass = np.concatenate([hot, plan])
        centres = centres + 0.2 * (mass.T @ x / mass.sum(axis=0)[:, None] - centres)
    return balance(np.exp(-10 * squared(query, centres)), columns, 1e-6, free).argmax(axis=1)


def laplacian_weights(w: NDArray) -> NDArray:
    w = w - np.diag(np.diag(w))
    scale = 1 / np.sqrt(w.sum(axis=1) + 1e-4)
    return scale[:, None] * w * scale


def ease(support: NDArray, labels: NDArray, query: NDArray) -> NDArray:
    hot = np.eye(labels.max() + 1)[labels]
    s, c = hot.shape
    x = np.linalg.qr(unit(square_roots(np.concatenate([support, query]))).T).R.T
    u = np.linalg.svd(x).U[:, :c]
    similar, other = laplacian_weights(np.abs(u @ u.T)), laplacian_weights(np.ones((len(x), len(x))))
    directions = np.linalg.eigh(x.T @ (100 * other - similar) @ x).eigenvectors[:, :40]
    x = unit(x @ directions)
    columns = hot.sum(axis=0) + len(query) / c

    def keep(plan: NDArray) -> None:
        plan[:s] = hot

    centres = hot.T @ x[:s] / hot.sum(axis=0)[:, None]
    for _ in range(40):
        plan = balance(np.exp(-10 * squared(x, centres)), columns, 1e-3, keep)
        centres = centres + 0.2 * (plan.T @ x / columns[:, None] - centres)
    return balance(np.exp(-10 * squared(x, centres)), columns, 1e-3, keep)[s:].argmax(axis=1)


def proto_lp(support: NDArray, labels: NDArray, query: NDArray) -> NDArray:
    hot = np.eye(labels.max() + 1)[labels]
    s, c = hot.shape
    x = unit(square_roots(np.concatenate([support, query])))
    x = x @ np.linalg.svd(x, full_matrices=False).Vh[:40].T
    x = unit(x - x.mean(axis=0))
    each, counts = np.full(c, len(query) / c), hot.sum(axis=0)

    def keep(plan: NDArray) -> None:
        plan[:s] = hot

    centres = unit(hot.T @ x[:s])
    for _ in range(50):
        z = np.concatenate([hot, balance(np.exp(-10 * squared(x[s:], centres)), each, 1e-3, free)])
        gram = z.T @ z
        laplacian = gram - gram @ gram / z.sum(axis=0)
        p = z @ np.linalg.inv(hot.T @ hot + 0.05 * laplacian) @ hot.T @ hot
        keep(p)
        mass = np.clip(0.7 * balance(p, counts + each, 1e-2, keep) + 0.3 * z, 0, 1)
        centres = centres + 0.2 * (mass.T @ x / mass.sum(axis=0)[:, None] - centres)
    return balance(np.exp(-10 * squared(x[s:], centres)), each, 1e-3, free).argmax(axis=1)


def ilpc(support: NDArray, labels: NDArray, query: NDArray, steps: int) -> NDArray:
    c, s, k = labels.max() + 1, len(labels), 15 if len(labels) == labels.max() + 1 else 20
    x = unit(np.concatenate([support, query]))
    cosines = x @ x.T
    w = np.zeros_like(cosines)
    for i in range(len(x)):
        nearest = [j for j in np.argsort(-cosines[i]) if j != i][:k]
        w[i, nearest] = cosines[i, nearest] ** 3
    w = w + w.T
    scale = 1 / np.sqrt(w.sum(axis=1))
    system = np.eye(len(x)) - 0.8 * scale[:, None] * w * scale
    known = dict(enumerate(labels.tolist()))
    owed, last = np.full(c, len(query) / c), {}
    while len(known) < len(x):
        rest = [i for i in range(len(x)) if i not in known]
        hot = np.zeros((len(x), c))
        hot[list(known), list(known.values())] = 1
        z = np.linalg.solve(system, hot)[rest]
        plan = balance((z / z.sum(axis=1, keepdims=True)) ** 3, owed, 1e-6, free)
        last = dict(zip(rest, plan.argmax(axis=1).tolist(), strict=True))
        losses = cleaning_losses(x, known, known | last, c, steps)
        joining = [
            i for q in range(c) for i in sorted((i for i in rest if last[i] == q), key=lambda i: float(losses[i]))[:3]
        ]
        if len(joining) < c:
            break
        for i in joining:
            known[i] = last[i]
            owed[last[i]] -= 1
    return np.array([(last | known)[i] for i in range(s, len(x))])


def cleaning_losses(x: NDArray, known: dict[int, int], target: dict[int, int], c: int, steps: int) -> NDArray:
    """Descent on weights and bias themselves."""
    n = len(x)
    hot = np.eye(c)[[target[i] for i in range(n)]]
    weights = unit(np.stack([np.mean([x[i] for i in known if known[i] == q], axis=0) for q in range(c)]))
    bias, speed, bias_speed, total = np.zeros(c), np.zeros_like(weights), np.zeros(c), np.zeros(n)
    for _ in range(steps):
        logits = x @ weights.T + bias
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        total -= np.log(p[hot > 0])
        speed = 0.9 * speed + (p - hot).T @ x / n + 5e-4 * weights
        bias_speed = 0.9 * bias_speed + (p - hot).sum(axis=0) / n + 5e-4 * bias
        weights, bias = weights - 0.1 * speed, bias - 0.1 * bias_speed
    return total / steps


SHORT = {"steps": 60}  # of iLPC's classifier, where the plain loop would take long
PLAIN: dict[str, tuple[Callable[..., NDArray], dict[str, Any]]] = {
    "pt_map": (pt_map, {}),
    "ease": (ease, {}),
    "proto_lp": (proto_lp, {}),
    "ilpc": (ilpc, SHORT),
}


def real_task(seed: int, shots: list[int]) -> tuple[NDArray, NDArray, NDArray]:
    """Support, its labels and queries of real classes in any order, in float64."""
    found = load("cub")
    rng = np.random.default_rng(seed)
    support, labels, query = [], [], []
    for code, name in enumerate(rng.permutation(np.unique(found.labels))[: len(shots)]):
        rows = rng.permutation(np.flatnonzero(found.labels == name))
        support.append(found.features[rows[: shots[code]]])
        query.append(found.features[rows[shots[code] : shots[code] + 15]])
        labels += [code] * shots[code]
    order, shuffled = rng.permutation(len(labels)), rng.permutation(15 * len(shots))
    vectors = np.concatenate(support).astype(np.float64)[order], np.concatenate(query).astype(np.float64)[shuffled]
    return vectors[0], np.array(labels)[order], vectors[1]


@pytest.mark.parametrize("shots", [[1] * 5, [5] * 5, [1, 3, 2, 1]], ids=["one-shot", "five-shot", "unequal"])
@pytest.mark.parametrize("name", PLAIN)
def test_labels_are_those_of_the_equations(name: str, shots: list[int]) -> None:
    plain, params = PLAIN[name]
    tasks = [real_task(seed, shots) for seed in range(8)]
    support, labels, query = (np.stack(arrays) for arrays in zip(*tasks, strict=True))
    found = a2lp.create(name, **params).predict(a2lp.TaskBatch(support, labels, query))
    np.testing.assert_array_equal(found.labels, np.stack([plain(*task, **params) for task in tasks]))


# shares of equal labels: tolerances stop a batch together there, and a task by itself here
PUBLIC = [("pt_map", "clamp", 0.999), ("pt_map", "sign", 0.999), ("pt_map", "none", 0.999), ("ease", "clamp", 0.99),
          ("proto_lp", "none", 0.99), ("ilpc", None, 0.985)]  # fmt: skip
KEYS = {"ease-clamp": "ease_siamese_power", "proto_lp-none": "protolp_full_res12", "ilpc-None": "ilpc_l2"}


@pytest.mark.shared
@pytest.mark.parametrize("tasks", ["ref_cub_1shot", "dirichlet_cub_5shot"])
@pytest.mark.parametrize(("name", "power", "share"), PUBLIC)
def test_labels_are_those_of_the_public_code(
    name: str, power: str | None, share: float, tasks: str, shared_data: Path
) -> None:
    key = KEYS.get(f"{name}-{power}", f"ptmap_{power}")
    with (
        np.load(shared_data / f"reference/{tasks}.npz") as saved,
        np.load(shared_data / f"reference/public/{key}_{tasks}.npz") as public,
        np.load(shared_data / "features/cub_resnet12_test.npz") as vectors,
    ):
        x, n = vectors["features"].astype(np.float32), 20 if name == "ilpc" else 50
        batch = a2lp.TaskBatch(x[saved["support"][:n]], saved["support_labels"][:n], x[saved["query"][:n]])
        expected = public["pred"][:n]
    method = a2lp.create(name, **({} if power is None else {"power": power}))
    assert (method.predict(batch).labels == expected).mean() >= share


@pytest.mark.parametrize("convert", [np.asarray, array_api_strict.asarray], ids=["compiled", "array API"])
def test_a_plan_has_the_masses_asked_for(convert: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(0)
    kernel = convert(np.exp(rng.normal(size=(3, 4, 11))))
    rows = np.ones((3, 11))
    rows[:, :2] = 0
    columns = np.array([[3, 3, 3, 0], [2.25] * 4, [6, 1, 1.5, 0.5]])
    plan = np.asarray(sinkhorn(kernel, convert(columns), 1e-13, rows=convert(rows)))
    np.testing.assert_allclose(plan.sum(axis=1), rows, atol=1e-10)
    np.testing.assert_allclose(plan.sum(axis=2), columns, atol=1e-10)
    # the plan of least divergence is the kernel scaled by a factor per row and per column
    ratio = np.log(plan[2, :, 2:] / np.asarray(kernel)[2, :, 2:])
    np.testing.assert_allclose(ratio - ratio[:1] - ratio[:, :1] + ratio[0, 0], 0, atol=1e-12)
    fixed = convert(np.array([[1.0, 2, 0.5, 0.5]] * 3))
    beside = np.asarray(sinkhorn(kernel, convert(np.full((3, 4), 3.75)), 1e-13, fixed=fixed))
    np.testing.assert_allclose(beside.sum(axis=2) + np.asarray(fixed), 3.75, atol=1e-10)


def test_other_preprocessing_takes_the_place_of_the_power() -> None:
    task = [x[None] for x in real_task(0, [1] * 5)]
    for name in ("pt_map", "ease", "proto_lp"):
        rooted, signed, plain = (
            a2lp.create(name, preprocess="l2", power=power).predict(a2lp.TaskBatch(*task)).scores
            for power in ("clamp", "sign", "none")
        )
        own = a2lp.create(name, power="none").predict(a2lp.TaskBatch(*task)).scores
        np.testing.assert_array_equal(rooted, plain)
        np.testing.assert_array_equal(signed, plain)
        np.testing.assert_allclose(own, plain, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("pt_map", {"power": "root"}),
        ("pt_map", {"lam": 0}),
        ("ease", {"rate": 1.5}),
        ("ease", {"n_components": 0}),
        ("proto_lp", {"mixture": 2}),
        ("ilpc", {"n_neighbors": 0}),
        ("ilpc", {"alpha": 1}),
    ],
)
def test_wrong_parameters_are_named(name: str, params: dict[str, Any]) -> None:
    with pytest.raises(a2lp.A2LPError, match=next(iter(params))):
        a2lp.create(name, **params)
