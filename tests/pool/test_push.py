"""Pushed labels against a dense solve."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from a2lp.pool.graph import neighbour_graph
from a2lp.pool.push import push


@given(seed=st.integers(0, 10_000), alpha=st.sampled_from([0.5, 0.8, 0.95]), m=st.integers(1, 6))
def test_a_pushed_column_is_the_dense_one(seed, alpha, m):
    rng = np.random.default_rng(seed)
    graph = neighbour_graph(rng.normal(size=(60, 5)), 6)
    rows, weights = rng.integers(60, size=m), rng.choice([-1.0, 1.0], size=m)
    touched, values = push(graph, rows, weights, alpha)
    found, right = np.zeros(60), np.zeros(60)
    found[touched] = values
    np.add.at(right, rows, weights)
    system = np.eye(60) - alpha * graph.normalised.toarray()
    assert len(np.unique(touched)) == len(touched)
    assert np.abs(system @ found - right).max() <= 1.01e-4
    exact = np.linalg.solve(system, right)
    assert np.abs(found - exact).max() <= 1e-4 * np.abs(np.linalg.inv(system)).sum(axis=1).max()


def test_a_label_taken_back_leaves_nothing():
    rng = np.random.default_rng(0)
    graph = neighbour_graph(rng.normal(size=(200, 8)), 10)
    there, more = push(graph, 7)
    back, less = push(graph, 7, -1.0)
    assert (there == back).all() and (more == -less).all() and (more > 0).all()


def test_the_work_stays_near_the_label():
    side = np.repeat([20, -20], 100)[:, None] * np.eye(4)[0]
    far = np.random.default_rng(0).normal(size=(200, 4)) + side
    touched, _ = push(neighbour_graph(far, 8), 3)
    assert touched.max() < 100
