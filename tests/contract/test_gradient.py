"""The closed-form gradient against automatic differentiation in float64, and against sixty digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from a2lp.arrays import to_numpy
from a2lp.engines import select
from a2lp.engines.contract import Points, Settings
from a2lp.losses import Terms
from a2lp.preprocess import l2, plc


def eq_7(Z: Any, Y: Any, s: int, tau: float) -> Any:
    """The anchors' cross-entropy."""
    others = Y[:s] == 0
    margins = tau * (Z[:s] - (Y[:s] * Z[:s]).sum(1, keepdim=True))[others].reshape(s, -1)
    return torch.log1p(margins.exp().sum(1)).mean()


def autograd(
    support: Any,
    rest: Any,
    codes: Any,
    c: int,
    k: int,
    gamma: float,
    alpha: float,
    tau: float,
    loss: Callable[[Any, Any, int, float], Any] = eq_7,
) -> tuple[Any, float]:
    """dL/dV of the anchors of one task by torch, from equations 1 to 7 as they are written.

    Also the size of the terms that it is the sum of: a weight acts on Z as it is and through two degrees, and where
    the two nearly cancel no float64 computation has the digits of the difference.
    """
    anchors = torch.tensor(support, requires_grad=True)
    V = torch.cat([anchors, torch.tensor(rest)])
    n, s = len(V), len(anchors)
    similarity = (V @ V.T).clamp(min=0)
    mask = torch.zeros(n, n, dtype=torch.float64).scatter(1, neighbours(V.detach(), k), 1.0)
    positive = similarity > 0
    A = torch.where(positive, torch.where(positive, similarity, 1.0) ** gamma, 0.0) * mask
    W = (A + A.T) / 2
    direct = W.clone()
    D = W.sum(1) + 1e-12
    for inner in (direct, D):
        inner.retain_grad()
    S = direct / torch.sqrt(D[:, None] * D[None])
    Y = torch.zeros(n, c, dtype=torch.float64)
    Y[torch.arange(s), torch.tensor(codes)] = 1
    Z = torch.linalg.solve(torch.eye(n, dtype=torch.float64) - alpha * S, Y)
    loss(Z, Y, s, tau).backward()
    with torch.no_grad():
        terms = direct.grad.abs() + D.grad.abs()[:, None]
        slope = torch.where(positive, gamma * torch.where(positive, similarity, 1.0) ** (gamma - 1), 0.0)
        terms = (terms + terms.T) / 2 * mask * slope
        size = torch.linalg.norm((terms + terms.T)[:s] @ V.abs())
    return anchors.grad.numpy(), float(size)


def neighbours(V: Any, k: int) -> Any:
    """The k nearest of every point, by torch."""
    return (V @ V.T).clamp(min=0).fill_diagonal_(-1).argsort(dim=1, descending=True)[:, :k]


# of float64, some hundred times over: what a sum of cancelling terms may lose
ROUNDING = 1e-14


def by_engine(engine: str, support: Any, rest: Any, codes: Any, c: int, scale: float, **constants: Any) -> Any:
    """The same gradient from one step of gradient descent, large enough that the anchors keep all its digits."""
    convert = torch.asarray if engine == "batched-torch" else np.asarray
    points = Points(convert(np.concatenate([support, rest])[None]), convert(codes[None]), c, len(rest))
    rate = 1e3 / scale
    config = Settings(steps=1, final_forward=True, optimizer="gd", lr=rate, **constants)
    found = select.run(select.PROPAGATION, engine.removesuffix("-torch"), points, config)
    moved = to_numpy(found.result.anchors)[0]
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


def draw(task: dict[str, Any]) -> tuple[Any, Any, Any, int]:
    rng = np.random.default_rng(task["seed"])
    s, m, d = task["c"] + task["extra"], task["m"], task["d"]
    points = np.abs(rng.normal(size=(s + m, d))) + 0.3 * rng.normal(size=(s + m, d))
    points = plc(points) if task["centred"] else l2(points)
    support, rest = points[:s], points[s:]
    if task["off_sphere"]:  # where adapted anchors are
        support = support * rng.uniform(0.7, 1.6, (s, 1)) + 0.1 * rng.normal(size=(s, d)) / np.sqrt(d)
    codes = np.r_[rng.permutation(task["c"]), rng.integers(0, task["c"], task["extra"])]
    return support, rest, codes, 1 + round(task["near"] * (s + m - 2))


@pytest.mark.parametrize("tau", [2.0, 5.0, 15.0])
@pytest.mark.parametrize("engine", ["reference", "batched", "batched-torch", "fused_cpu"])
@settings(max_examples=25, deadline=None)
@given(task=tasks)
def test_closed_form_is_autograd(engine: str, tau: float, task: dict[str, Any]) -> None:
    support, rest, codes, k = draw(task)
    constants = {"gamma": task["gamma"], "alpha": task["alpha"], "tau": tau}
    expected, terms = autograd(support, rest, codes, task["c"], k, **constants)
    size = np.abs(expected).max()
    if size == 0:  # anchors without a neighbour
        return
    found = by_engine(engine, support, rest, codes, task["c"], size, n_neighbors=k, **constants)
    assert np.linalg.norm(found - expected) <= 1e-8 * np.linalg.norm(expected) + ROUNDING * terms


def entropy(p: Any) -> Any:
    return -(p * torch.where(p > 0, p, 1.0).log()).sum(-1)


def squares(z: Any) -> Any:
    """The distributions of rows of Z, none for a row of zeros."""
    total = (z * z).sum(-1, keepdim=True)
    return z * z / torch.where(total > 0, total, 1.0)


def with_squares(Z: Any, Y: Any, s: int, tau: float) -> Any:
    p = squares(Z[s:])
    return eq_7(Z - Y, Y, s, tau) * 0.5 + 0.9 * entropy(p).mean() - 0.7 * entropy(p.mean(0))


def with_softmax(Z: Any, Y: Any, s: int, tau: float) -> Any:
    p = torch.softmax(tau * Z[s:], -1)
    return eq_7(Z, Y, s, tau) * 1e3 + 0.2 * entropy(p).mean() - 0.3 * entropy(p.mean(0))


LOSSES = {
    with_squares: Terms(anchors="others", weight=0.5, queries="norm2", entropy=0.9, marginal=0.7),
    with_softmax: Terms(anchors="soft", weight=1e3, queries="soft", entropy=0.2, marginal=0.3),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("engine", ["reference", "batched", "batched-torch", "fused_cpu"])
@settings(max_examples=25, deadline=None)
@given(task=tasks, tau=st.sampled_from([2.0, 5.0, 15.0]))
def test_closed_form_is_autograd_with_terms_on_queries(engine: str, loss: Any, task: Any, tau: float) -> None:
    support, rest, codes, k = draw(task)
    constants = {"gamma": task["gamma"], "alpha": task["alpha"], "tau": tau}
    expected, terms = autograd(support, rest, codes, task["c"], k, **constants, loss=loss)
    size = np.abs(expected).max()
    if size == 0:
        return
    found = by_engine(engine, support, rest, codes, task["c"], size, n_neighbors=k, loss=LOSSES[loss], **constants)
    # dL/dZ is a difference itself, of logarithms about 1 in size: for queries of one class nothing but rounding is left
    assert np.linalg.norm(found - expected) <= 1e-8 * np.linalg.norm(expected) + ROUNDING * (1 + terms)


def by_differences(support: Any, rest: Any, codes: Any, c: int, k: int, gamma: float, alpha: float, tau: float) -> Any:
    """dL/dV by central differences of the loss in sixty digits."""
    s, d = support.shape
    n = s + len(rest)
    near = neighbours(torch.tensor(np.concatenate([support, rest])), k).tolist()

    def loss(V: list[list[Any]]) -> Any:
        A = mpmath.zeros(n)
        for i in range(n):
            for j in near[i]:
                A[i, j] = max(mpmath.fdot(V[i], V[j]), 0) ** gamma
        W = (A + A.T) / 2
        D = [mpmath.fsum(W[i, j] for j in range(n)) + mpmath.mpf("1e-12") for i in range(n)]
        M = mpmath.matrix(n, n)
        Y = mpmath.zeros(n, c)
        for i in range(n):
            for j in range(n):
                M[i, j] = (i == j) - mpmath.mpf(alpha) * W[i, j] / mpmath.sqrt(D[i] * D[j])
        for i in range(s):
            Y[i, int(codes[i])] = 1
        Z = M**-1 * Y
        value = mpmath.mpf(0)
        for i in range(s):
            y = int(codes[i])
            value += mpmath.log(mpmath.fsum(mpmath.exp(tau * (Z[i, j] - Z[i, y])) for j in range(c)))
        return value / s

    with mpmath.workdps(60):
        V = [[mpmath.mpf(float(x)) for x in row] for row in np.concatenate([support, rest])]
        step = mpmath.mpf("1e-18")
        gradient = np.empty((s, d))
        for a in range(s):
            for j in range(d):
                kept = V[a][j]
                values = []
                for sign in (1, -1):
                    V[a][j] = kept + sign * step
                    values.append(loss(V))
                V[a][j] = kept
                gradient[a, j] = float((values[0] - values[1]) / (2 * step))
    return gradient


# Graphs of few neighbours: where every weight of a component is divided by itself, Z does not feel it, and all that
# is left of the gradient is what the 1e-12 beside the degrees lets through.
FEW = {"c": 3, "extra": 0, "m": 4, "near": 0.0, "off_sphere": True, "centred": True, "gamma": 1.0, "alpha": 0.95}


@pytest.mark.parametrize(
    ("task", "cancels"), [(FEW | {"d": 6, "seed": 4}, True), (FEW | {"d": 6, "seed": 1, "near": 0.5}, False)]
)
def test_sixty_digits(task: dict[str, Any], cancels: bool) -> None:
    support, rest, codes, k = draw(task)
    constants = {"gamma": task["gamma"], "alpha": task["alpha"], "tau": 5.0}
    truth = by_differences(support, rest, codes, task["c"], k, **constants)
    expected, terms = autograd(support, rest, codes, task["c"], k, **constants)
    length = np.linalg.norm(truth)
    assert (np.linalg.norm(expected - truth) > 1e-8 * length) == cancels  # autograd's own digits
    for engine in ("reference", "batched", "batched-torch", "fused_cpu"):
        found = by_engine(engine, support, rest, codes, task["c"], np.abs(truth).max(), n_neighbors=k, **constants)
        error = np.linalg.norm(found - truth)
        assert error <= (ROUNDING * terms if cancels else 1e-12 * length)


@pytest.mark.parametrize("engine", ["reference", "batched", "batched-torch", "fused_cpu"])
def test_one_class_has_no_gradient_at_all(engine: str) -> None:
    rng = np.random.default_rng(0)
    points = l2(rng.random((20, 10)))
    found = by_engine(engine, points[:4], points[4:], np.zeros(4, int), 1, 1.0, n_neighbors=5, gamma=3.0, alpha=0.8)
    assert (found == 0).all()
