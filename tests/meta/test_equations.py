"""Each method against its equations, written out for one task in float64, on real features."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import a2lp
from a2lp.features import load
from a2lp.tasks.lists import TaskList
from a2lp.tasks.samplers import draw

Arrays = dict[str, np.ndarray[Any, Any]]
X = np.ndarray[Any, Any]


def relu(x: X) -> X:
    return np.maximum(x, 0)


def leaky(x: X) -> X:
    return np.where(x > 0, x, 0.01 * x)


def sigmoid(x: X) -> X:
    return 1 / (1 + np.exp(-x))


def unit(x: X) -> X:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def dense(w: Arrays, name: str, x: X) -> X:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def perceptron(w: Arrays, name: str, x: X) -> X:
    return dense(w, f"{name}.2", leaky(dense(w, f"{name}.0", x)))


def sib_like(w: Arrays, support: X, labels: X, query: X, ensemble: bool) -> X:
    """With torch's batch norm in training mode and torch's gradient, as the authors have it."""
    t = {name: torch.from_numpy(value) for name, value in w.items()}
    x, s = torch.from_numpy(unit(query)), torch.from_numpy(unit(support))
    classes = sorted(set(labels))
    theta = torch.stack([t["diagonal"] * s[labels == c].mean(0) for c in classes])

    def scores(weights: torch.Tensor) -> torch.Tensor:
        return t["scale"] * (x @ (weights / weights.norm(dim=1, keepdim=True)).T + t["bias"])

    def network(given: torch.Tensor) -> torch.Tensor:
        for layer, norm in ((0, 2), (3, 5)):
            given = torch.relu(given @ t[f"gradient.{layer}.weight"].T + t[f"gradient.{layer}.bias"])
            given = torch.nn.functional.batch_norm(
                given, None, None, t[f"gradient.{norm}.weight"], t[f"gradient.{norm}.bias"], training=True
            )
        return given @ t["gradient.6.weight"].T + t["gradient.6.bias"]

    order = torch.argsort(scores(theta).mean(0))
    theta = theta[order]
    total = torch.zeros(len(query), len(classes), dtype=torch.float64)
    for step in range(3):
        theta = theta.detach().requires_grad_()
        logits = scores(theta)
        slope = torch.autograd.grad(logits, theta, network(logits).detach())[0]
        task = torch.cat([s.mean(0), slope.mean(0)])
        size, vote = 1e-3, float(step == 2)
        if ensemble:
            size += 1e-4 * (t[f"step_sizes.{step}.weight"] @ task + t[f"step_sizes.{step}.bias"])
            vote += 1e-4 * (t[f"votes.{step}.weight"] @ task + t[f"votes.{step}.bias"])
        theta = theta - size * slope
        total += vote * scores(theta)
    back = torch.empty_like(total)
    back[:, order] = total
    return back.detach().numpy()


def sib(w: Arrays, support: X, labels: X, query: X) -> X:
    return sib_like(w, support, labels, query, ensemble=False)


def sib_e3bm(w: Arrays, support: X, labels: X, query: X) -> X:
    return sib_like(w, support, labels, query, ensemble=True)


def tpn_learned(w: Arrays, support: X, labels: X, query: X) -> X:
    points = unit(np.concatenate([support, query]))
    n = len(points)
    width = np.exp(dense(w, "log_width", relu(dense(w, "hidden", points))))
    scaled = [w["channels"] * x / sigma for x, sigma in zip(points, width, strict=True)]
    affinity = np.array([[np.exp(-0.5 * np.sum((x - y) ** 2)) for y in scaled] for x in scaled])
    kept = np.zeros((n, n), bool)
    for i in range(n):
        kept[i, np.argsort(-affinity[i])[:20]] = True
    affinity = np.where(kept | kept.T, affinity, 0)
    degree = affinity.sum(1)
    given = np.zeros((n, labels.max() + 1))
    given[np.arange(len(labels)), labels] = 1
    smooth = affinity / np.sqrt(np.outer(degree, degree))
    return (np.linalg.inv(np.eye(n) - sigmoid(w["alpha"]) * smooth) @ given)[len(labels) :]


def can(w: Arrays, support: X, labels: X, query: X) -> X:
    d, c = query.shape[1], labels.max() + 1

    def compare(means: X) -> X:
        found = np.empty((len(query), c))
        for i, q in enumerate(unit(query)):
            for j, p in enumerate(unit(means)):
                logits = dense(w, "attention", relu(dense(w, "hidden", d * p * q)))
                share = np.exp(logits - logits.max())
                attention = 1 + d * share / share.sum()
                found[i, j] = 15 * unit(attention * p) @ unit(attention * q)
        return found

    logits = compare(np.stack([support[labels == j].mean(0) for j in range(c)]))
    for number in (35, 70):
        surest = np.argsort(-logits.max(1))[:number]
        points, codes = np.concatenate([support, query[surest]]), np.concatenate([labels, logits[surest].argmax(1)])
        logits = compare(np.stack([points[codes == j].mean(0) for j in range(c)]))
    return logits


def dpgn(w: Arrays, support: X, labels: X, query: X) -> X:
    s, n = len(support), len(support) + len(query)
    off = 1 - np.eye(n)

    def to_size(x: X) -> X:
        centred = x - x.mean(1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)

    def next_edges(logits: X, edges: X) -> X:
        before = edges * off
        after = sigmoid(logits) * before
        after = after / after.sum(1, keepdims=True) * before.sum(1, keepdims=True) + np.eye(n) + 1e-6
        return after / after.sum(1, keepdims=True)

    vectors = to_size(dense(w, "embed", unit(np.concatenate([support, query])) * np.sqrt(query.shape[1])))
    edges = np.full((n, n), 1 / s)
    edges[:s, :s] = labels[:, None] == labels[None, :]
    relations, relation_edges = edges[:, :s], edges
    for r in (f"rounds.{i}" for i in range(3)):
        near = np.stack([perceptron(w, f"{r}.vector_edge", (v - vectors) ** 2)[:, 0] for v in vectors])
        edges = next_edges(near, edges)
        pairs = np.stack([s * edges[:, :s], relations], axis=-1)
        relations = leaky(perceptron(w, f"{r}.relation", pairs)[..., 0])
        spread = np.stack([((v - relations) ** 2).mean(1) for v in relations])
        relation_edges = next_edges(perceptron(w, f"{r}.relation_edge", spread[..., None])[..., 0], relation_edges)
        if r == "rounds.2":
            break
        others = relation_edges * off
        others = others / others.sum(1, keepdims=True) @ vectors
        vectors = to_size(perceptron(w, f"{r}.mix", np.concatenate([vectors, others], axis=1)))
    mass = np.stack([edges[s:, :s][:, labels == c].mean(1) for c in range(labels.max() + 1)], axis=1)
    return np.log(mass / mass.sum(1, keepdims=True) + 1e-10)


PLAIN = {"sib": sib, "sib_e3bm": sib_e3bm, "tpn_learned": tpn_learned, "can": can, "dpgn": dpgn}


@pytest.fixture(scope="module")
def tasks() -> TaskList:
    return draw("balanced", load("cub").labels, seed=3, n_way=5, n_shot=1, n_query=15, n_tasks=50)


@pytest.mark.parametrize("name", PLAIN)
def test_a_method_follows_its_equations(name: str, tasks: TaskList, moved_weights: Callable[..., Path]) -> None:
    features = load("cub").features.astype(np.float64)
    path = moved_weights(name, features.shape[1], 5)
    weights = {key: value.double().numpy() for key, value in load_file(path).items()}
    method = a2lp.create(name, weights=path)
    batch = tasks.batch(features)
    found = method.predict(batch)
    several = draw("balanced", load("cub").labels, seed=4, n_way=5, n_shot=3, n_query=15, n_tasks=2)
    cases = [(tasks, found, i) for i in range(50)]
    cases += [(several, method.predict(several.batch(features)), i) for i in range(2)]
    for drawn, answer, i in cases:
        plain = PLAIN[name](weights, features[drawn.support[i]], drawn.support_labels[i], features[drawn.query[i]])
        np.testing.assert_allclose(method.tau * answer.scores[i], plain, rtol=0, atol=1e-7)
        np.testing.assert_array_equal(answer.labels[i], plain.argmax(1))
    nearest = a2lp.create("prototypical").predict(batch)
    assert (nearest.labels != found.labels).mean() > 0.01


@pytest.mark.parametrize(
    ("name", "same_as"), [("tpn_learned", a2lp.create("tpn")), ("can", a2lp.create("top_k", scale=15))]
)
def test_the_untrained_start_is_a_method_without_training(name: str, same_as: a2lp.Method, tasks: TaskList) -> None:
    batch = tasks[:20].batch(load("cub").features.astype(np.float64))
    untrained, plain = a2lp.create(name).predict(batch), same_as.predict(batch)
    np.testing.assert_allclose(untrained.scores, plain.scores, rtol=0, atol=1e-6)  # weights are kept as float32
    np.testing.assert_array_equal(untrained.labels, plain.labels)
