"""Sweeps as tables, and how any table is written."""

from __future__ import annotations

import math

import numpy as np

from a2lp.bench import tables
from a2lp.bench.run import run


def test_minus_signs_are_minus_signs_in_latex():
    entries = (tables.Entry(tables.plus_minus(-1.5, 0.25, sign=True)),)
    table = tables.Table("t", (("l2", "1-shot"),), (tables.Block("difference", (("k_eff", entries),)),))
    assert r"k\_eff & $-$1.50 $\pm$0.25 \\" in tables.to_latex(table)


def test_plus_minus():
    assert tables.plus_minus(78.934, 0.786) == "78.93 ±0.79"
    assert tables.plus_minus(4.156, 0.5, sign=True) == "+4.16 ±0.50"
    assert tables.plus_minus(50.0, math.nan) == "50.00"


def test_sweep_ranks_by_the_mean_over_shots(digits):
    from a2lp.bench.protocol import draw_episodes, plan_sweep

    sizes = {"sampler": "balanced", "n_way": 3, "n_query": 10, "n_tasks": 20, "seed": 0}
    episodes = [draw_episodes(digits, n_shot=k, **sizes) for k in (1, 3)]
    records = run(plan_sweep(episodes, "lp", {"n_neighbors": [1, 5, 15]}, params={}))
    rows = tables.sweep_rows(records, ["n_neighbors"])
    means = {
        k: np.mean([np.mean(r.accuracies) for r in records if r.config["params"]["n_neighbors"] == k])
        for k in (1, 5, 15)
    }
    order = sorted(means, key=lambda k: -means[k])
    assert [row["n_neighbors"] for row in rows[::2]] == order
    assert [row["rank"] for row in rows] == [1, 1, 2, 2, 3, 3]
    table = tables.sweep_table(records, ["n_neighbors"])
    assert [name for _, name in table.columns] == ["1-shot", "3-shot", "mean"]
    assert [label for label, _ in table.blocks[0].rows] == [f"n_neighbors={k}" for k in order]
    assert all(e.best for e in table.blocks[0].rows[0][1])
