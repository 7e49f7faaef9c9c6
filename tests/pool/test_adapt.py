"""Adapted anchors on the sparse graph against the paper, line by line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from a2lp.engines import reference
from a2lp.engines.contract import Points, Settings
from a2lp.errors import InputError
from a2lp.pool.adapt import adapt
from a2lp.pool.graph import neighbour_graph
from a2lp.pool.propagate import propagate
from a2lp.preprocess import l2

PAPER = Settings(n_neighbors=10, gamma=3.0, alpha=0.8, steps=8, lr=1e-2)


def pool(n: int = 300, s: int = 15, c: int = 5) -> tuple[Any, Any]:
    """Points and codes, -1 but for s of them that are scattered over the rows."""
    rng = np.random.default_rng(0)
    classes = np.concatenate([np.arange(c), rng.integers(0, c, n - c)])
    x = rng.normal(size=(c, 16))[classes] + 1.5 * rng.normal(size=(n, 16))
    shuffled = rng.permutation(n)
    codes = np.full(n, -1)
    codes[shuffled[:s]] = classes[:s]
    out = np.empty_like(x)
    out[shuffled] = x
    return out, codes


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gamma": 1.5, "final_forward": True},
        {"renormalize": True, "reduction": "sum"},
        {"optimizer": "gd", "lr": 0.1},
        {"steps": 0},
    ],
)
def test_equals_the_reference(changes: dict[str, Any]) -> None:
    x, codes = pool()
    settings = Settings(**(vars(PAPER) | changes))
    labelled = codes >= 0
    unit = l2(x)
    points = Points(np.concatenate([unit[labelled], unit[~labelled]])[None], codes[labelled][None], 5, 0)
    expected = reference.run(points, settings)
    found = adapt(x, codes, settings, tolerance=1e-11)
    np.testing.assert_allclose(found.anchors, expected.anchors[0], atol=1e-8)
    np.testing.assert_allclose(found.Z[labelled], expected.z[0, :15], atol=1e-8)
    np.testing.assert_allclose(found.Z[~labelled], expected.z[0, 15:], atol=1e-8)
    np.testing.assert_allclose(found.losses, expected.losses[0], atol=1e-10)


def test_float32_with_the_default_tolerance_stays_near() -> None:
    x, codes = pool()
    exact, single = adapt(x, codes, PAPER), adapt(x.astype(np.float32), codes, PAPER)
    assert single.Z.dtype == np.float32
    np.testing.assert_allclose(single.anchors, exact.anchors, atol=1e-3)
    assert (single.Z.argmax(axis=1) == exact.Z.argmax(axis=1)).mean() > 0.99


def test_the_graph_is_that_of_the_moved_points_in_the_callers_order() -> None:
    x, codes = pool()
    found = adapt(x, codes, Settings(**(vars(PAPER) | {"renormalize": True})), tolerance=1e-10)
    moved = l2(x)
    moved[codes >= 0] = found.anchors
    np.testing.assert_allclose(found.graph.weights.toarray(), neighbour_graph(moved, 10).weights.toarray(), atol=1e-12)
    y = np.eye(6)[codes][:, :5]
    np.testing.assert_allclose(found.Z, propagate(found.graph, y, tolerance=1e-10).Z, atol=1e-8)


def test_all_points_but_one_labelled() -> None:
    x, codes = pool(12, 12, 3)
    codes[4] = -1
    settings = Settings(**(vars(PAPER) | {"n_neighbors": 5}))
    told: list[tuple[int, int]] = []
    found = adapt(x, codes, settings, progress=lambda done, of: told.append((done, of)))
    assert found.anchors.shape == (11, 16) and np.isfinite(found.Z).all()
    assert told == [(step, 8) for step in range(1, 9)]


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (np.zeros(3, int), r"codes has shape \(3,\)"),
        (np.full(300, -1), "at least one point must have one"),
        (np.full(300, 0.5), "whole numbers"),
    ],
)
def test_bad_codes_are_named(codes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        adapt(pool()[0], codes, PAPER)


def test_a_step_that_leads_nowhere_is_named() -> None:
    x, codes = pool()
    with pytest.raises(InputError, match="lr=1e\\+39"):
        adapt(x.astype(np.float32), codes, Settings(**(vars(PAPER) | {"lr": 1e39})))
