"""The closed-form gradient against automatic differentiation in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from a2lp.arrays import to_numpy
from a2lp.engines import select
from a2lp.engines.contract import Problem, Settings
from a2lp.preprocess import l2, plc


def autograd(support: Any, rest: Any, codes: Any, c: int, k: int, gamma: float, alpha: float, tau: float) -> Any:
    """dL/dV of the anchors of one task by torch, from equations 1 to 7 as they are written; and the size of dL/dZ."""
    anchors = torch.tensor(support, requires_grad=True)
    V = torch.cat([anchors, torch.tensor(rest)])
    n, s = len(V), len(anchors)
    similarity = (V @ V.T).clamp(min=0)
    ranked = similarity.detach().clone().fill_diagonal_(-1).argsort(dim=1, descending=True)
    mask = torch.zeros(n, n, dtype=torch.float64).scatter(1, ranked[:, :k], 1.0)
    positive = similarity > 0
    A = torch.where(positive, torch.where(positive, similarity, 1.0) ** gamma, 0.0) * mask
    W = (A + A.T) / 2
    D = W.sum(1) + 1e-12
    S = W / torch.sqrt(D[:, None] * D[None])
    Y = torch.zeros(n, c, dtype=torch.float64)
    Y[torch.arange(s), torch.tensor(codes)] = 1
    Z = torch.linalg.solve(torch.eye(n, dtype=torch.float64) - alpha * S, Y)[:s]
    Z.retain_grad()
    z_true = Z[torch.arange(s), torch.tensor(codes)]
    others = torch.ones(s, c, dtype=torch.bool)
    others[torch.arange(s), torch.tensor(codes)] = False
    margins = tau * (Z - z_true[:, None])[others].reshape(s, c - 1)
    torch.log1p(margins.exp().sum(1)).mean().backward()
    return anchors.grad.numpy(), float(Z.grad.abs().max())


def by_engine(engine: str, support: Any, rest: Any, codes: Any, c: int, scale: float, **constants: Any) -> Any:
    """The same gradient from one step of gradient descent, large enough that the anchors keep all its digits."""
    convert = torch.asarray if engine == "batched-torch" else np.asarray
    problem = Problem(convert(support[None]), convert(rest[None]), convert(codes[None]), c)
    rate = 1e3 / scale
    config = Settings(steps=1, final_forward=True, optimizer="gd", lr=rate, **constants)
    found, _ = select.choose(engine.removesuffix("-torch"), problem, config)
    moved = to_numpy(found.run(problem, config).anchors)[0]
    return (support - moved) / rate


tasks = st.fixed_dictionaries(
    {
        "c": st.integers(2, 8),
        "extra": st.integers(0, 8),
        "m": st.integers(3, 30),
        "d": st.sampled_from([3, 16, 33, 64]),
        "near": st.floats(0, 1),
        "off_sphere": st.booleans(),
        "centred": st.booleans(),
        "gamma": st.sampled_from([3.0, 3.0, 1.0, 2.5]),
        "alpha": st.sampled_from([0.8, 0.2, 0.95]),
        "seed": st.integers(0, 2**32 - 1),
    }
)


@pytest.mark.parametrize("tau", [2.0, 5.0, 15.0])
@pytest.mark.parametrize("engine", ["reference", "batched", "batched-torch", "fused_cpu"])
@settings(max_examples=25, deadline=None)
@given(task=tasks)
def test_closed_form_is_autograd(engine: str, tau: float, task: dict[str, Any]) -> None:
    rng = np.random.default_rng(task["seed"])
    s, m, d = task["c"] + task["extra"], task["m"], task["d"]
    points = np.abs(rng.normal(size=(s + m, d))) + 0.3 * rng.normal(size=(s + m, d))
    points = plc(points) if task["centred"] else l2(points)
    support, rest = points[:s], points[s:]
    if task["off_sphere"]:  # where adapted anchors are
        support = support * rng.uniform(0.7, 1.6, (s, 1)) + 0.1 * rng.normal(size=(s, d)) / np.sqrt(d)
    codes = np.r_[rng.permutation(task["c"]), rng.integers(0, task["c"], task["extra"])]
    k = 2 + round(task["near"] * (s + m - 3))
    constants = {"gamma": task["gamma"], "alpha": task["alpha"], "tau": tau}
    expected, incoming = autograd(support, rest, codes, task["c"], k, **constants)
    size = np.abs(expected).max()
    if size == 0:  # anchors without a neighbour
        return
    found = by_engine(engine, support, rest, codes, task["c"], size, n_neighbors=k, **constants)
    # a graph of few neighbours hardly feels lengths: the gradient then is a small difference of its terms
    assert np.linalg.norm(found - expected) <= 1e-8 * np.linalg.norm(expected) + 1e-11 * incoming


@pytest.mark.parametrize("engine", ["reference", "batched", "batched-torch", "fused_cpu"])
def test_one_class_has_no_gradient_at_all(engine: str) -> None:
    rng = np.random.default_rng(0)
    points = l2(rng.random((20, 10)))
    found = by_engine(engine, points[:4], points[4:], np.zeros(4, int), 1, 1.0, n_neighbors=5, gamma=3.0, alpha=0.8)
    assert (found == 0).all()
