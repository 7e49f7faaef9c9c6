from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest

from a2lp.bench import tables
from a2lp.bench.run import run
from a2lp.bench.statistics import paired_difference


@pytest.fixture(scope="module")
def records(make_cells):
    return run(make_cells(["prototypical", "lp"], preprocess=("l2", "plc"), shots=(1, 2), n_tasks=30))


def test_rows_carry_the_paired_difference(records):
    rows = tables.bench_rows(records, "lp")
    assert {
        "method",
        "n_way",
        "n_shot",
        "preprocess",
        "sampler",
        "features",
        "n_tasks",
        "mean_accuracy",
        "ci95",
        "seconds",
    } <= set(rows[0])
    for row, record in zip(rows, records, strict=True):
        assert row["mean_accuracy"] == pytest.approx(np.mean(record.accuracies))
        same = [r for r in records if all(r.config[k] == record.config[k] for k in ("n_shot", "preprocess"))]
        lp = next(r for r in same if r.config["method"] == "lp")
        assert (row["difference"], row["difference_ci95"]) == paired_difference(record.accuracies, lp.accuracies)


def test_table_has_the_papers_layout(records):
    table = tables.bench_table(records, "lp")
    assert table.columns == (("l2", "1-shot"), ("l2", "2-shot"), ("plc", "1-shot"), ("plc", "2-shot"))
    accuracy, difference, seconds = table.blocks
    assert [label for label, _ in accuracy.rows] == ["prototypical", "lp"]
    assert [label for label, _ in difference.rows] == ["prototypical"]
    assert len(seconds.rows) == 2
    for column in range(4):
        entries = {label: entries[column] for label, entries in accuracy.rows}
        highest = max(entries.values(), key=lambda e: float(e.text.split()[0]))
        assert highest.best
    assert "3-way" in table.title
    assert "seed 0" in table.title


def test_a_method_alone_is_its_own_table(make_cells):
    table = tables.bench_table(run(make_cells(["lp"])), "lp")
    assert [block.title for block in table.blocks] == ["accuracy, %", "seconds per 1000 tasks"]


def test_json_and_csv_agree(records):
    rows = tables.bench_rows(records, "lp")
    from_json = json.loads(tables.to_json(rows))
    from_csv = list(csv.DictReader(io.StringIO(tables.to_csv(rows))))
    assert from_json == rows
    assert [float(row["mean_accuracy"]) for row in from_csv] == [row["mean_accuracy"] for row in rows]


def test_what_is_not_a_number_is_null(make_cells):
    [row] = json.loads(tables.to_json(tables.bench_rows(run(make_cells(["lp"], n_tasks=1)), "lp")))
    assert row["ci95"] is None
    [row] = json.loads(tables.to_json(tables.bench_rows(run(make_cells(["lp"], n_tasks=2)), "a2lp")))
    assert row["difference"] is None


def test_markdown_and_latex(records):
    table = tables.bench_table(records, "lp")
    lines = tables.to_markdown(table).splitlines()
    assert all(line.count("|") == 6 for line in lines if line.startswith("|"))
    assert sum("**" in line for line in lines) >= 1
    latex = tables.to_latex(table)
    assert r"\multicolumn{2}{c}{plc}" in latex
    assert r"\%" in latex
    assert "±" not in latex
    body = [line for line in latex.splitlines() if line.endswith(r"\\") and "multicolumn{5}" not in line]
    assert all(line.count("&") == 4 for line in body if "multicolumn{2}" not in line)


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
