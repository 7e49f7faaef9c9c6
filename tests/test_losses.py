"""Losses against automatic differentiation, and the numerics of the anchors' cross-entropy against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import a2lp
from a2lp import features
from a2lp.bench.statistics import paired_difference
from a2lp.errors import InputError, UnknownNameError
from a2lp.losses import BY_NUMERICS, Terms, evaluate, make_terms
from a2lp.methods.registry import create
from a2lp.tasks.samplers import draw


@pytest.fixture(scope="module", params=[(1, 1), (1, 200), (5, 1), (5, 200)], ids=str)
def anchors(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """Z of the anchors of 20 real tasks (float32), at the start and after some steps, with their one-hot labels."""
    n_shot, steps = request.param
    cub = features.load("cub")
    tasks = draw("balanced", cub.labels, seed=2, n_way=5, n_shot=n_shot, n_query=15, n_tasks=20)
    kept: dict[int, Any] = {}
    method = a2lp.create("a2lp", steps=steps)
    method.predict(tasks.batch(cub.features), callback=lambda step: kept.update({step.tasks.start: step.z}))
    z = np.concatenate([kept[start] for start in sorted(kept)])[:, : 5 * n_shot]
    assert z.dtype == np.float32
    return z, np.eye(5, dtype=np.float32)[tasks.support_labels]


def largest_error(found: Any, expected: Any) -> float:
    size = np.abs(expected).max(axis=(1, 2))
    return float((np.abs(found - expected).max(axis=(1, 2)) / size).max())


def test_official_is_float32_autograd_and_exact_is_not(anchors: tuple[Any, Any]) -> None:
    z, y = anchors
    leaf = torch.tensor(z, requires_grad=True)
    loss = -(torch.tensor(y) * torch.log(torch.softmax(15 * leaf, -1) + 1e-12)).sum(-1).mean(-1).sum()
    loss.backward()
    constants = {"tau": 15.0, "scale": 1 / z.shape[1]}
    official = BY_NUMERICS["official_cpu"](z, y, **constants)
    exact = BY_NUMERICS["exact"](z, y, **constants)
    assert official.d_anchors.dtype == np.float32
    assert largest_error(official.d_anchors, leaf.grad.numpy()) <= 1e-6
    assert largest_error(exact.d_anchors, leaf.grad.numpy()) > 1e-3


@pytest.mark.cuda
def test_official_is_float32_autograd_on_a_gpu(anchors: tuple[Any, Any]) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    z, y = anchors
    leaf = torch.tensor(z, device="cuda", requires_grad=True)
    loss = -(torch.tensor(y).cuda() * torch.log(torch.softmax(15 * leaf, -1) + 1e-12)).sum(-1).mean(-1).sum()
    loss.backward()
    official = BY_NUMERICS["official"](z, y, tau=15.0, scale=1 / z.shape[1])
    assert largest_error(official.d_anchors, leaf.grad.cpu().numpy()) <= 1e-6


def test_official_rounds_as_a_warp() -> None:
    """Where order and fusing decide: three terms beside one that only together reach the next float32."""
    small = np.float32(np.log(3e-8) / 15)
    z = np.array([[[0.0, small, small, small, small]]], np.float32)
    y = np.eye(5, dtype=np.float32)[None, :1]
    # each 3e-8 is lost when added to 1 alone; a warp adds the second and fourth to each other first
    warp = BY_NUMERICS["official"](z, y, tau=15.0, scale=1.0).d_anchors[0, 0, 0]
    running = BY_NUMERICS["official_cpu"](z, y, tau=15.0, scale=1.0).d_anchors[0, 0, 0]
    one_less = np.float32(1) / (np.float32(1) + np.float32(6e-8))
    assert running == 0 or abs(running) < abs(BY_NUMERICS["exact"](z, y, tau=15.0, scale=1.0).d_anchors[0, 0, 0])
    assert warp == pytest.approx(-15 * (1 - float(one_less)), rel=1e-6)


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.lists(st.floats(-3, 3), min_size=4, max_size=4), min_size=1, max_size=5),
    tau=st.sampled_from([0.5, 2.0, 15.0, 200.0]),
    seed=st.integers(0, 1000),
)
def test_exact_is_float64_autograd_anywhere(rows: list[list[float]], tau: float, seed: int) -> None:
    z = np.array([rows])
    labels = np.random.default_rng(seed).integers(0, 4, len(rows))
    found = BY_NUMERICS["exact"](z, np.eye(4)[labels][None], tau=tau, scale=1.0)
    leaf = torch.tensor(z, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(tau * leaf[0], torch.tensor(labels), reduction="sum")
    loss.backward()
    np.testing.assert_allclose(found.value[0], loss.item(), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found.d_anchors, leaf.grad.numpy(), rtol=1e-9, atol=1e-13 * tau)
    np.testing.assert_allclose(found.d_anchors.sum(-1), 0, atol=1e-12 * tau)


def test_exact_keeps_what_saturation_would_lose() -> None:
    z = np.array([[[4.0, 0.0, 0.1]]])  # p_y = 1 to all digits of float64
    found = BY_NUMERICS["exact"](z, np.eye(3)[None, :1], tau=15.0, scale=1.0)
    remainder = np.exp(-60.0) + np.exp(-58.5)
    np.testing.assert_allclose(found.value[0], remainder, rtol=1e-12)
    np.testing.assert_allclose(
        found.d_anchors[0, 0], 15 * np.array([-remainder, np.exp(-60.0), np.exp(-58.5)]), rtol=1e-12
    )


@pytest.mark.parametrize("name", ["offical", [1], None])
def test_unknown_numerics(name: Any) -> None:
    with pytest.raises(UnknownNameError, match="exact, official"):
        create("imprinting", numerics=name)


def entropy(p: Any) -> Any:
    return -(p * torch.where(p > 0, p, 1.0).log()).sum(-1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("queries", ["soft", "norm2"])
@pytest.mark.parametrize("anchors", ["soft", "others"])
def test_all_terms_are_float64_autograd(anchors: str, queries: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    labels = np.eye(4)[[[0, 1, 2, 3, 3], [3, 1, 0, 2, 2]]]
    support, rest = (labels + 0.2 * rng.random((2, 5, 4))).astype(dtype), rng.random((2, 9, 4)).astype(dtype)
    rest[0, 1] = 0  # no label reaches it
    rest[1, :, 2] = 0  # this label reaches no point
    rest[0, 2] *= 1e-30  # its squares are no float32
    terms = Terms(anchors, 0.5, queries, 0.3, 0.7)
    found = evaluate(terms, "exact", support, rest, labels.astype(dtype), tau=6.0, scale=0.2)
    S, R = (torch.tensor(x.astype(np.float64), requires_grad=True) for x in (support, rest))
    Y = torch.tensor(labels)
    logits = 6.0 * (S - Y if anchors == "others" else S)
    given = -(Y * torch.log_softmax(logits, -1)).sum(-1).mean(-1)
    total = (R * R).sum(-1, keepdim=True)
    p = torch.softmax(6.0 * R, -1) if queries == "soft" else R * R / torch.where(total > 0, total, 1.0)
    loss = 0.5 * given + 0.3 * entropy(p).mean(-1) - 0.7 * entropy(p.mean(-2))
    loss.sum().backward()
    tolerance: Any = {"rtol": 1e-12 if dtype == np.float64 else 1e-5, "atol": 1e-15 if dtype == np.float64 else 1e-7}
    assert all(x is not None and x.dtype == dtype for x in found)
    np.testing.assert_allclose(found.value, loss.detach().numpy(), **tolerance)
    np.testing.assert_allclose(found.d_anchors, S.grad.numpy(), **tolerance)
    np.testing.assert_allclose(found.d_rest, R.grad.numpy(), **tolerance)


def test_an_anchors_own_label_hides_what_others_say() -> None:
    """At tau = 15 eq. 7 is about as sure of a good anchor as of one whose neighbours all say otherwise."""
    good, bad = np.array([[[1.3, 0.0]]]), np.array([[[1.0, 0.3]]])
    own = [evaluate(Terms(), "exact", z, z, np.eye(2)[None, :1], tau=15.0, scale=1.0).value[0] for z in (good, bad)]
    others = [
        evaluate(Terms(anchors="others"), "exact", z, z, np.eye(2)[None, :1], tau=15.0, scale=1.0).value[0]
        for z in (good, bad)
    ]
    assert max(own) < 1e-4
    assert others[0] < 0.02 and others[1] > 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("cross_entropy", ["loss='cross_entropy'", "mapping such as"]),
        (None, ["loss=None", "Leave it out"]),
        ({"entropi": 1}, ["'entropi'", "Did you mean 'entropy'"]),
        ({"anchors": "hard"}, ["'hard'", "others, soft"]),
        ({"queries": "norm"}, ["'norm'", "norm2, soft"]),
        ({"entropy": -1}, ["entropy=-1", "0 or more"]),
        ({"marginal": float("nan")}, ["marginal=nan", "0 or more"]),
        (Terms(weight="1"), ["weight='1'", "0 or more"]),
    ],
)
def test_bad_losses_are_named_with_rule_and_remedy(given: Any, words: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        a2lp.create("a2lp", loss=given)
    for word in words:
        assert word in str(raised.value)


def test_a_loss_is_kept_as_terms() -> None:
    paper: Any = a2lp.create("a2lp")
    other: Any = a2lp.create("a2lp", loss={"entropy": 1})
    assert paper.loss == Terms() == make_terms({}) and not paper.uniform
    assert other.loss == Terms(entropy=1.0) and not other.uniform
    assert a2lp.create("a2lp", loss=Terms(marginal=0.1)).uniform


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["balanced", "dirichlet"])
def test_a2lp_plus_is_above_a2lp_in_a_tenth_of_the_steps(sampler: str) -> None:
    cub = features.load("cub")
    tasks = draw(sampler, cub.labels, seed=3, n_way=5, n_shot=1, n_query=15, n_tasks=400)
    batch = tasks.batch(cub.features)
    plus, paper = (a2lp.create(name).predict(batch) for name in ("a2lp_plus", "a2lp"))
    assert (10 * plus.steps <= paper.steps).all()
    right = [(found.labels == tasks.query_labels).mean(axis=1).tolist() for found in (plus, paper)]
    difference = paired_difference(*right)
    assert difference.mean > difference.ci95


@pytest.mark.parametrize(("n_query", "n_shot"), [(3, 1), (5, 1), (3, 5)])
def test_a_few_queries_do_not_draw_each_other_into_one_class(n_query: int, n_shot: int) -> None:
    """Where all cosines are large, as of a WideResNet: with 17 neighbours of 20 points, all rows are alike."""
    cub = features.load("cub")
    tasks = draw("balanced", cub.labels, seed=1, n_way=5, n_shot=n_shot, n_query=n_query, n_tasks=100)
    batch = tasks.batch(cub.features.astype(np.float32) + 0.5)
    near = {"n_neighbors": min(20, 5 * (n_query + n_shot) - 1)}
    plus, plain = (a2lp.create(name, **own).predict(batch) for name, own in (("a2lp_plus", {}), ("lp", near)))
    right = [float((found.labels == tasks.query_labels).mean()) for found in (plus, plain)]
    assert right[0] > right[1] - 0.005


def test_neighbours_of_a2lp_plus_follow_the_number_of_points() -> None:
    plus = a2lp.create("a2lp_plus")
    assert [plus._settings(n).n_neighbors for n in (4, 20, 32, 80, 100, 380)] == [1, 4, 7, 17, 17, 17]
