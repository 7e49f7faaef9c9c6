"""Who is ahead: the best of a column, paired differences, Holm, ranks, base data apart; and the tables of it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math

import numpy as np
import pytest
import scipy.stats

from a2lp.bench import tables
from a2lp.bench.comparison_table import comparison_rows, comparison_table
from a2lp.bench.run import run
from a2lp.bench.standings import overall_ranking, rank_methods
from a2lp.bench.statistics import paired_difference
from a2lp.features import BaseStatistics


@pytest.fixture(scope="module")
def cells(make_cells):
    return make_cells(["prototypical", "lp", "a2lp"], ("l2", "plc"), (1, 2), 30, params={"a2lp": {"steps": 30}})


@pytest.fixture(scope="module")
def records(cells):
    return run(cells)


@pytest.fixture(scope="module")
def standings(cells, records):
    return rank_methods(cells, records)


def of(standings, method, preprocess="l2", n_shot=1):
    return next(
        s for s in standings if (s.method, s.column.preprocess, s.column.n_shot) == (method, preprocess, n_shot)
    )


def test_rows_carry_the_paired_difference(standings, records):
    rows = comparison_rows(standings, "lp")
    for row, record in zip(rows, records, strict=True):
        assert row["mean_accuracy"] == pytest.approx(np.mean(record.accuracies))
        assert row["seconds_per_1000"] == pytest.approx(1000 * record.seconds / 30)
        same = [r for r in records if all(r.config[k] == record.config[k] for k in ("n_shot", "preprocess"))]
        lp = next(r for r in same if r.config["method"] == "lp")
        best = max(same, key=lambda r: np.mean(r.accuracies))
        assert (row["difference"], row["difference_ci95"]) == paired_difference(record.accuracies, lp.accuracies)
        assert row["best"] == best.config["method"]
        assert row["difference_to_best"] == paired_difference(record.accuracies, best.accuracies).mean
        assert (row["uniform"], row["uses_base"], row["failed"]) == (False, False, None)


def test_holm_is_over_all_pairs_of_a_column(standings):
    three = [of(standings, name) for name in ("prototypical", "lp", "a2lp")]
    best = max(three, key=lambda s: s.record.accuracy.mean)
    p = {
        frozenset((a.method, b.method)): scipy.stats.ttest_rel(a.record.accuracies, b.record.accuracies).pvalue
        for a in three
        for b in three
        if a.method < b.method
    }
    running, adjusted = 0.0, {}
    for place, (pair, value) in enumerate(sorted(p.items(), key=lambda item: item[1])):
        running = max(running, min(1.0, (3 - place) * value))
        adjusted[pair] = running
    for one in three:
        if one is not best:
            assert one.p_value == pytest.approx(adjusted[frozenset((one.method, best.method))], rel=1e-9)
    ranks = scipy.stats.rankdata([[-a for a in s.record.accuracies] for s in three], axis=0).mean(axis=1)
    assert [s.rank for s in three] == pytest.approx(ranks.tolist())


def test_overall_ranks_are_over_all_columns(standings):
    names, found = overall_ranking(standings, given=(False, False))
    assert (names, found.n) == (["prototypical", "lp", "a2lp"], 4 * 30)
    each = [[s.rank for s in standings if s.method == name] for name in names]
    assert found.ranks.tolist() == pytest.approx(np.mean(each, axis=1).tolist())
    assert overall_ranking(standings, given=(True, False)) is None


def test_table_has_the_papers_layout(standings):
    table = comparison_table(standings, "lp")
    assert table.columns == (("l2", "1-shot"), ("l2", "2-shot"), ("plc", "1-shot"), ("plc", "2-shot"))
    accuracy, to_lp, to_best, rank, seconds = table.sections
    assert [row.label for row in accuracy.rows] == ["prototypical", "lp", "a2lp"]
    assert [row.label for row in to_lp.rows] == ["prototypical", "a2lp"]
    assert len(to_best.rows) == len(rank.rows) == len(seconds.rows) == 3
    for column in range(4):
        entries = {row.label: row.entries[column] for row in accuracy.rows}
        highest = max(entries.values(), key=lambda e: float(e.text.split()[0]))
        assert highest.best
        assert sum(row.entries[column].text == "best" for row in to_best.rows) == 1
    assert "3-way" in table.title
    assert "seed 0" in table.title


def test_a_method_alone_is_its_own_table(make_cells):
    cells = make_cells(["lp"])
    table = comparison_table(rank_methods(cells, run(cells)), "lp")
    assert [section.title for section in table.sections] == ["accuracy, %", "seconds per 1000 tasks"]


def test_base_data_are_kept_apart(make_cells, digits):
    """One column: two methods with base data and two without; each is compared with its own kind."""
    base = BaseStatistics.of(digits.features, digits.labels)
    settings = {"lp": {"preprocess": "whiten"}, "imprinting": {"preprocess": "cl2n", "steps": 5}, "a2lp": {"steps": 5}}
    cells = make_cells(["prototypical", "imprinting", "lp", "a2lp"], ("own",), base=base, params=settings)
    standings = rank_methods(cells, run(cells))
    found = {s.method: (s.record.uses_base, s.best.config["method"]) for s in standings}
    assert {method: uses for method, (uses, _) in found.items()} == {
        "prototypical": False, "imprinting": True, "lp": True, "a2lp": False,
    }  # fmt: skip
    assert all(found[best][0] == uses for uses, best in found.values())
    assert all(s.p_value <= 1 for s in standings if s.best is not s.record)
    table = comparison_table(standings, "lp")
    titles = {section.title: [row.label for row in section.rows] for section in table.sections}
    assert titles["accuracy, %, without base data"] == ["prototypical", "a2lp"]
    assert titles["accuracy, %, with base data"] == ["imprinting", "lp"]
    assert titles["difference to lp"] == ["imprinting"]
    assert table.columns == (("", "assumes"), ("own", "1-shot"))
    assert [row.entries[0].text for row in table.sections[1].rows] == ["base", "base"]
    assert any(note.startswith("base: ") for note in table.notes)


def test_those_that_assume_balance_are_marked(cells, records):
    marked = [dataclasses.replace(r, uniform=r.config["method"] == "a2lp") for r in records]
    table = comparison_table(rank_methods(cells, marked))
    assert {row.label: row.entries[0].text for row in table.sections[0].rows} == {
        "prototypical": "", "lp": "", "a2lp": "uniform",
    }  # fmt: skip


def test_cells_that_failed_or_were_stopped(cells, records):
    """The one that failed has a note, the one that was stopped is compared on its own tasks and is never the best."""

    def change(record):
        if record.config["method"] == "prototypical":
            return dataclasses.replace(record, accuracies=[], seconds=0.0, failed="ValueError: no luck")
        if record.config["method"] == "lp":
            return dataclasses.replace(record, accuracies=[100.0] * 7, limit=2.0)
        return record

    standings = rank_methods(cells, [change(record) for record in records])
    failed, stopped, whole = (of(standings, name) for name in ("prototypical", "lp", "a2lp"))
    assert failed.best is None
    assert stopped.best is whole.record
    assert stopped.difference == paired_difference([100.0] * 7, whole.record.accuracies[:7])
    assert math.isnan(stopped.rank) and whole.rank == 1
    table = comparison_table(standings, "lp")
    assert [row.entries[0].text for row in table.sections[0].rows][:2] == ["failed", "100.00 ±0.00 (7)"]
    assert not any(e.best for e in table.sections[0].rows[1].entries)
    assert "prototypical (balanced, l2, 1-shot) failed: ValueError: no luck" in table.notes
    assert any("limit of 2 s after n of 30 tasks" in note for note in table.notes)
    row = json.loads(tables.to_json(comparison_rows(standings)))[0]
    assert (row["failed"], row["mean_accuracy"], row["n_tasks"]) == ("ValueError: no luck", None, 0)
    assert overall_ranking(standings, given=(False, False)) is None


def test_json_and_csv_agree(standings):
    rows = comparison_rows(standings, "lp")
    from_json = json.loads(tables.to_json(rows))
    from_csv = list(csv.DictReader(io.StringIO(tables.to_csv(rows))))
    assert [row["mean_accuracy"] for row in from_json] == [row["mean_accuracy"] for row in rows]
    assert [float(row["rank"]) for row in from_csv] == [row["rank"] for row in rows]


def test_what_is_not_a_number_is_null(make_cells):
    cells = make_cells(["lp"], n_tasks=1)
    [row] = json.loads(tables.to_json(comparison_rows(rank_methods(cells, run(cells)), "a2lp")))
    assert row["ci95"] is row["difference"] is row["p_holm"] is None


def test_markdown_and_latex(standings):
    table = comparison_table(standings, "lp")
    text = tables.to_markdown(table)
    assert all(line.count("|") == 6 for line in text.splitlines() if line.startswith("|"))
    assert "**" in text
    assert text.splitlines()[-1].startswith("- \\*")
    latex = tables.to_latex(table)
    assert r"\multicolumn{2}{c}{plc}" in latex
    assert r"\%" in latex
    assert "±" not in latex
    body = [line for line in latex.splitlines() if line.endswith(r"\\") and "multicolumn{5}" not in line]
    assert all(line.count("&") == 4 for line in body if "multicolumn{2}" not in line)
